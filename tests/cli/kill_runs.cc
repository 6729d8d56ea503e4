#include "tests/cli/kill_runs.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "examples/demo/corpus.h"

namespace translate_train::testing {

std::string prepare_killed_runs(const TemporaryFolder& folder) {
  const demo::Corpus corpus = demo::make_corpus(7, 1200, 100);
  const auto write_pairs = [&](const std::string& name, const std::vector<demo::Pair>& pairs) {
    std::string german, english;
    for (const demo::Pair& pair : pairs) {
      german += pair.german + "\n";
      english += pair.english + "\n";
    }
    write_file(folder.file(name + ".de"), german);
    write_file(folder.file(name + ".en"), english);
  };
  write_pairs("train", corpus.train);
  write_pairs("valid", corpus.held_out);
  const Outcome vocabulary = run_program(
      folder.path(),
      {"vocab", "--train-sets", "train.de", "train.en", "--dim-vocabs", "400", "--soft-limit"});
  return vocabulary.exit_code == 0 ? "" : "vocab failed: " + vocabulary.err;
}

std::vector<std::string> killed_run_command(const std::string& run, int threads) {
  return with_tiny_model(
      words_of("train --train-sets train.de train.en --valid-sets valid.de valid.en --vocabs "
               "vocab.spm --save-freq 3u --valid-freq 20u --valid-metrics ce-mean-words "
               "--progress off --autotune-gemm off --model " +
               run + " --after " + std::to_string(kKilledUpdates) + "u --cpu-threads " +
               std::to_string(threads)),
      {.width = 32, .vocabulary = 0, .batch_tokens = 512});
}

std::string final_weights(const TemporaryFolder& folder, const std::string& run) {
  return read_file(
      folder.file(run + "/ckpt/" + std::to_string(kKilledUpdates) + "/model.safetensors"));
}

namespace {

// The records of updates and validations. Other records say that a process began or ended.
std::string timeless_metrics(const std::string& text) {
  std::string kept;
  for (const std::string& line : lines_of(text)) {
    const auto record = nlohmann::json::parse(line);
    const std::string type = record.value("type", "");
    if (type != "train" && type != "valid") continue;
    for (const char* key : {"type", "update", "epoch", "loss", "nll", "grad_norm", "learning_rate",
                            "target_tokens", "ce-mean-words", "best_ce-mean-words"})
      if (record.contains(key)) kept += key + (":" + record.at(key).dump()) + " ";
    kept += "\n";
  }
  return kept;
}

std::string without_lines(const std::string& text, std::initializer_list<const char*> words) {
  std::string kept;
  for (const std::string& line : lines_of(text))
    if (std::none_of(words.begin(), words.end(),
                     [&](const char* word) { return line.find(word) != std::string::npos; }))
      kept += line + "\n";
  return kept;
}

}  // namespace

std::map<std::string, std::string> final_files(const TemporaryFolder& folder,
                                               const std::string& run) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.file(run))) {
    const std::string name = entry.path().lexically_relative(folder.file(run));
    if (entry.is_directory() || name == "train.log" || name == ".lock") continue;
    std::string content = read_file(entry.path());
    const std::string file = entry.path().filename();
    if (file == "metrics.jsonl") content = timeless_metrics(content);
    if (file == "state.json") content = without_lines(content, {"\"train_seconds\""});
    if (file == "manifest.json")  // its own seal, and the sum of the state
      content = without_lines(content, {"{\"crc32\":", "\"state.json\""});
    if (file == "config.yml")
      content = without_lines(content, {"cpu-threads:", "model:", "Checksums:"});
    files[name] = std::move(content);
  }
  return files;
}

std::string differences(const std::map<std::string, std::string>& a,
                        const std::map<std::string, std::string>& b) {
  std::string names;
  for (const auto& [name, content] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != content) names += name + " ";
  }
  for (const auto& [name, content] : b)
    if (!a.contains(name)) names += name + " ";
  return names;
}

}  // namespace translate_train::testing
