// Token ids in place of text, special tokens that texts name, and models without a vocabulary.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_fixture.h"
#include "trafo.h"

namespace translate_train::testing {
namespace {

class IdLines : public Cli {
 protected:
  // The ids of each line of a file, with the end, as the vocabulary of the run makes them.
  static std::string ids_of(const std::string& name) {
    trafo_tokenizer* tokenizer = nullptr;
    const std::string path = file("run/vocab.spm");
    EXPECT_EQ(trafo_tokenizer_load(path.data(), path.size(), &tokenizer), nullptr);
    std::string text;
    for (const std::string& line : lines_of(read_file(file(name)))) {
      int32_t* ids = nullptr;
      size_t count = 0;
      EXPECT_EQ(trafo_tokenizer_encode(tokenizer, line.data(), line.size(), &ids, &count), nullptr);
      for (size_t i = 0; i < count; ++i) text += std::to_string(ids[i]) + " ";
      text += std::to_string(TRAFO_TOKEN_EOS) + "\n";
      trafo_ids_free(ids);
    }
    trafo_tokenizer_free(tokenizer);
    return text;
  }
  // The text of each line of ids.
  static std::string text_of(const std::string& id_lines) {
    trafo_tokenizer* tokenizer = nullptr;
    const std::string path = file("run/vocab.spm");
    EXPECT_EQ(trafo_tokenizer_load(path.data(), path.size(), &tokenizer), nullptr);
    std::string text;
    for (const std::string& line : lines_of(id_lines)) {
      std::vector<int32_t> ids;
      std::istringstream numbers(line);
      for (int32_t id = 0; numbers >> id;) ids.push_back(id);
      char* decoded = nullptr;
      size_t length = 0;
      EXPECT_EQ(trafo_tokenizer_decode(tokenizer, ids.data(), ids.size(), &decoded, &length),
                nullptr);
      text += std::string(decoded, length) + "\n";
      trafo_string_free(decoded);
    }
    trafo_tokenizer_free(tokenizer);
    return text;
  }
  static std::string translated(const Arguments& more, const std::string& input = "") {
    const Outcome outcome = run(words_of("translate -q --device cpu -m run") + more, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
};

TEST_F(IdLines, AreTranslatedAndScoredAsTheirText) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  write_file(file("v.de.ids"), ids_of("v.de"));
  write_file(file("v.en.ids"), ids_of("v.en"));
  const std::string text = translated({"-i", "v.de"});
  EXPECT_EQ(text_of(translated({"--ids", "-i", "v.de.ids"})), text);

  for (const Arguments& flags : {Arguments{}, Arguments{"-n"}, Arguments{"--json"}}) {
    const auto scored = [&](const Arguments& more) {
      const Outcome outcome = run(words_of("score -q --device cpu -m run") + more + flags);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      return outcome.out;
    };
    EXPECT_EQ(scored({"--ids", "-t", "v.de.ids", "v.en.ids"}), scored({"-t", "v.de", "v.en"}));
  }
  expect_refused(run(words_of("translate --ids -m run"), "5 x 2\n"),
                 "standard input:1: --ids wants token ids between spaces, got 'x'");
  expect_refused(run(words_of("translate --ids -m run"), "5 6\n"), "must end with eos");
  expect_refused(run(words_of("score --ids -m run --text v.en.ids --end-source off")), "--ids");
}

TEST_F(IdLines, AModelWithoutAVocabulary) {
  for (const Arguments& step :
       {with_tiny_model(
            words_of("train -q -t t.de t.en --valid-sets v.de v.en --model lm --after 2u "
                     "--task llama --device cpu"),
            {.decoder_only = true}),
        words_of("export -q -m lm --to hf-llama -o llama")}) {
    const Outcome outcome = run(step);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  for (const char* name : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json"})
    fs::remove(file("llama") + "/" + name);
  for (const Arguments& step :
       {words_of("import -q --from llama -o bare"),
        words_of("export -q -m bare --to hf-llama -o again"), words_of("info -m bare")}) {
    const Outcome outcome = run(step);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_TRUE(fs::exists(file("again/model.safetensors")));
  const Outcome found = run(words_of("translate -q --ids --end-source off -m bare"), "5 6\n\n");
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(lines_of(found.out).size(), 2u) << found.out;
  expect_refused(run(words_of("translate -m bare"), "a\n"), "no vocabulary belongs to it");
  expect_refused(run(words_of("export -m bare --to gguf -o bare.gguf")), "tokenizer is missing");
}

// The tokens that a run puts around its sources are the same in every command, and after an export.
TEST_F(IdLines, ARunKeepsTheFrameOfItsSources) {
  const Arguments train = with_tiny_model(
      words_of("train -q -t t.de t.en --valid-sets v.de v.en --model framed --task llama "
               "--device cpu --begin-source on --end-source off"),
      {.decoder_only = true});
  for (const Arguments& step : {train + words_of("--after 2u"), train + words_of("--after 3u"),
                                words_of("export -q -m framed --to hf-llama -o framed-hf"),
                                words_of("import -q --from framed-hf -o framed-again")}) {
    const Outcome outcome = run(step);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  const auto config = nlohmann::json::parse(read_file(file("framed-hf/tokenizer_config.json")));
  EXPECT_EQ(config["add_bos_token"], true);
  EXPECT_EQ(config["add_eos_token"], false);
  const auto scored = [&](const std::string& model, const std::string& flags) {
    const Outcome outcome = run(words_of("score -q --device cpu --text v.de -m " + model + flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string found = scored("framed", "");
  EXPECT_EQ(scored("framed", " --begin-source on --end-source off"), found);
  EXPECT_EQ(scored("framed-again", ""), found);
  EXPECT_EQ(scored("framed", " --begin-source model"), found);
  EXPECT_NE(scored("framed", " --begin-source off"), found);
  EXPECT_NE(scored("framed", " --end-source on"), found);
}

TEST_F(IdLines, SpecialTokensInTextByChoice) {
  const std::string line = lines_of(read_file(file("v.de")))[0];
  const auto tokens = [&](const Arguments& more, const std::string& text) {
    write_file(file("one.de"), line + "\n");
    write_file(file("one.en"), text + "\n");
    const Outcome outcome =
        run(words_of("score -q --device cpu --json -m run -t one.de one.en") + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["target_tokens"].get<int>();
  };
  const int plain = tokens({}, "a house");
  EXPECT_GT(tokens({}, "a house</s>"), plain + 1);
  EXPECT_EQ(tokens({"--parse-special"}, "a house</s>"), plain + 1);
  expect_refused(run(words_of("translate --ids --parse-special -m run")), "--parse-special");
  // A run does not go on with the other reading of its text.
  expect_refused(run(small("run", "25u") + Arguments{"--parse-special", "on"}), "parse-special");
}

// Files that `encode` writes train as their text does, with documents that are longer than a
// window.
TEST_F(IdLines, FilesOfOtherProgramsTrainAsTheirText) {
  std::string documents;
  const std::vector<std::string> lines = lines_of(read_file(file("t.en")));
  for (size_t i = 0; i < lines.size(); ++i)
    documents += lines[i] + (i % 7 < 4 || i % 7 == 6 ? "\n" : " ");
  write_file(file("documents"), documents);
  const auto train = [&](const std::string& name, const std::string& data) {
    return run(with_tiny_model(
        words_of("train --vocabs run/vocab.spm --device cpu --cpu-threads 2 --after 4u "
                 "--save-freq 2u --max-length 12 --model " +
                 name + " " + data),
        {.width = 32, .vocabulary = 0, .batch_tokens = 200, .decoder_only = true}));
  };
  const auto weights = [](const std::string& name) {
    return read_file(file(name + "/ckpt/4/model.safetensors"));
  };
  const Outcome plain =
      train("plain", "--train-sets documents --valid-sets v.en --long-lines window");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  for (const std::string& format : words_of("llmc nanogpt megatron")) {
    for (const std::string& name : words_of("documents v.en")) {
      const Outcome written = run(words_of("encode --vocabs run/vocab.spm -t " + name + " --to " +
                                           format + " -o " + name + "-" + format + ".bin"));
      ASSERT_EQ(written.exit_code, 0) << written.err;
      EXPECT_NE(written.err.find(" documents, "), std::string::npos) << written.err;
    }
    const std::string data = "--train-sets documents-" + format + ".bin --valid-sets v.en-" +
                             format + ".bin --data-format " + format;
    const Outcome memory = train(format, data);
    ASSERT_EQ(memory.exit_code, 0) << memory.err;
    EXPECT_NE(memory.err.find("has token ids"), std::string::npos) << memory.err;
    EXPECT_EQ(weights(format), weights("plain")) << format;
    const Outcome disk = train(format + "-disk", data + " --data-in-memory 0");
    ASSERT_EQ(disk.exit_code, 0) << disk.err;
    EXPECT_EQ(weights(format + "-disk"), weights("plain")) << format;
  }
  // Each file is a corpus; validation data is held out of them.
  const Outcome shards = train("shards",
                               "--train-sets documents-llmc.bin v.en-llmc.bin --data-format llmc "
                               "--data-weights 1 0.5");
  EXPECT_EQ(shards.exit_code, 0) << shards.err;

  const auto refused = [&](const std::string& data, const std::string& text) {
    const Outcome outcome = train("refused", data + " --valid-sets v.en-nanogpt.bin");
    EXPECT_NE(outcome.exit_code, 0) << data;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  refused("--train-sets documents-llmc.bin --data-format megatron", "documents-llmc.idx");
  refused("--train-sets documents-nanogpt.bin --data-format llmc",
          "token files of llm.c begin with 20240520");
  refused("--train-sets documents-megatron.bin --data-format megatron --document-end 2",
          "is for --data-format llmc and nanogpt");
  refused("--train-sets documents-nanogpt.bin --data-format nanogpt --task tiny", "decoder-lm");
  expect_refused(
      run(words_of("train --train-sets documents-llmc.bin --data-format llmc --model no")),
      "give the vocabulary that made them");
  ASSERT_EQ(run(words_of("vocab -t v.en --dim-vocabs 60 --soft-limit -o small.spm")).exit_code, 0);
  expect_refused(run(words_of("train --train-sets documents-llmc.bin --data-format llmc --task lm "
                              "--vocabs small.spm --device cpu --model refused")),
                 "the vocabulary has 0 to ");
  expect_refused(run(words_of("encode --vocabs run/vocab.spm -t t.tsv --to text -o no.bin")),
                 "--to");
  expect_refused(run(words_of("encode --vocabs run/vocab.spm -t v.en --to megatron -o no")),
                 "give NAME.bin");
}

}  // namespace
}  // namespace translate_train::testing
