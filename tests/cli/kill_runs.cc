#include "tests/cli/kill_runs.h"

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
               "--progress off --model " +
               run + " --after " + std::to_string(kKilledUpdates) + "u --cpu-threads " +
               std::to_string(threads)),
      {.width = 32, .vocabulary = 0, .batch_tokens = 512});
}

std::string final_weights(const TemporaryFolder& folder, const std::string& run) {
  return read_file(
      folder.file(run + "/ckpt/" + std::to_string(kKilledUpdates) + "/model.safetensors"));
}

}  // namespace translate_train::testing
