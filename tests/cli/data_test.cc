// Input of train: large and compressed corpora, mixtures, filters, text of one side; and what a
// full disk or an edited corpus does to a run.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

class DataTest : public ::testing::Test {
 protected:
  DataTest() {
    const demo::Corpus corpus = demo::make_corpus(7, 900, 60);
    std::string tsv;
    const auto write_pairs = [&](const std::string& name, const std::vector<demo::Pair>& pairs) {
      std::string german, english;
      for (const demo::Pair& pair : pairs) {
        german += pair.german + "\n";
        english += pair.english + "\n";
        if (name == "train") tsv += pair.german + "\t" + pair.english + "\n";
      }
      write_file(folder_.file(name + ".de"), german);
      write_file(folder_.file(name + ".en"), english);
    };
    write_pairs("train", corpus.train);
    write_pairs("valid", corpus.held_out);
    tsv_ = tsv;
    const Outcome made = run_program(folder_.path(), {"vocab", "-t", "train.de", "train.en",
                                                      "--dim-vocabs", "300", "-o", "v.spm"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }

  // Without the training sets.
  static std::vector<std::string> flags(const std::string& run, int updates, int threads = 2) {
    return with_tiny_model(
        words_of(
            "train --valid-sets valid.de valid.en --vocabs v.spm --valid-metrics ce-mean-words "
            "--save-freq 3u --device cpu --model " +
            run + " --after " + std::to_string(updates) + "u --cpu-threads " +
            std::to_string(threads)),
        {.width = 32, .vocabulary = 0, .batch_tokens = 400});
  }
  Outcome train(std::vector<std::string> arguments, const std::vector<std::string>& more,
                const std::string& input = "") {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments, input);
  }
  std::string weights(const std::string& run, int updates) {
    return read_file(folder_.file(run + "/ckpt/" + std::to_string(updates) + "/model.safetensors"));
  }

  TemporaryFolder folder_;
  std::string tsv_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(DataTest, FilesInMemoryOnDiskCompressedAndFromAPipeTrainTheSame) {
  const std::string german = read_file(folder_.file("train.de"));
  const gzFile file = gzopen(folder_.file("train.de.gz").c_str(), "wb");
  gzwrite(file, german.data(), static_cast<unsigned>(german.size()));
  gzclose(file);
  const Outcome memory = train(flags("memory", 8), {"--train-sets", "train.de", "train.en"});
  ASSERT_EQ(memory.exit_code, 0) << memory.err;
  const std::string expected = weights("memory", 8);
  EXPECT_EQ(
      train(flags("disk", 8, 1), {"--train-sets", "train.de", "train.en", "--data-in-memory", "0"})
          .exit_code,
      0);
  EXPECT_EQ(weights("disk", 8), expected);
  EXPECT_EQ(
      train(flags("gzip", 8), {"--train-sets", "train.de.gz", "train.en", "--data-in-memory", "1"})
          .exit_code,
      0);
  EXPECT_EQ(weights("gzip", 8), expected);
  EXPECT_EQ(train(flags("pipe", 8), {"--tsv", "-"}, tsv_).exit_code, 0);
  EXPECT_EQ(weights("pipe", 8), expected);
}

TEST_F(DataTest, ASampledMixGoesOnAsIfItHadNotStopped) {
  const std::vector<std::string> data = {"--train-sets",
                                         "train.de",
                                         "train.en",
                                         "--train-sets",
                                         "valid.de",
                                         "valid.en",
                                         "--data-weights",
                                         "0.5",
                                         "2.5",
                                         "--maxi-batch",
                                         "3",
                                         "--sentencepiece-alphas",
                                         "0.2",
                                         "0.4",
                                         "--max-length-ratio",
                                         "2",
                                         "--seed",
                                         "5"};
  const Outcome uncut = train(flags("uncut", 70), data);
  ASSERT_EQ(uncut.exit_code, 0) << uncut.err;
  EXPECT_TRUE(contains(uncut.err + uncut.out, "epoch 1: ")) << "what the filter left out";
  for (const int stop : {7, 31}) {
    const std::string run = "cut" + std::to_string(stop);
    ASSERT_EQ(train(flags(run, stop, 1), data).exit_code, 0);
    const Outcome rest = train({"train", "--model", run, "--after", "70u"}, {});
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_EQ(weights(run, 70), weights("uncut", 70)) << stop;
  }
  const auto state = nlohmann::json::parse(read_file(folder_.file("uncut/ckpt/70/state.json")));
  EXPECT_GE(state.at("epoch"), 1);
  EXPECT_GT(state.at("window"), 0);
}

TEST_F(DataTest, AnEditedCorpusIsNotContinuedWith) {
  for (const char* memory : {"256MiB", "0"}) {
    const std::string run = std::string("run") + memory;
    const std::vector<std::string> data = {"--train-sets", "train.de", "train.en",
                                           "--data-in-memory", memory};
    const std::string before = read_file(folder_.file("train.de"));
    ASSERT_EQ(train(flags(run, 3), data).exit_code, 0);
    std::string edited = before;
    edited[edited.size() / 2] = 'x';
    write_file(folder_.file("train.de"), edited);
    const Outcome refused = train({"train", "--model", run, "--after", "6u"}, {});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_TRUE(contains(refused.err, "the training corpus has changed since")) << refused.err;
    write_file(folder_.file("train.de"), before);
    EXPECT_EQ(train({"train", "--model", run, "--after", "6u"}, {}).exit_code, 0);
  }
}

// Every file that would grow over some KiB is refused by the system, as all of them would be on a
// disk that is full.
Outcome run_without_space(const std::string& folder, const std::vector<std::string>& arguments) {
  std::string command = "cd '" + folder + "' && ulimit -f 40 && exec '" + TRANSLATE_TRAIN "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " > full.out 2> full.err";
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), read_file(folder + "/full.out"), read_file(folder + "/full.err")};
}

TEST_F(DataTest, AFullDiskLeavesTheLastCheckpointAndARunThatGoesOn) {
  const std::vector<std::string> data = {"--train-sets", "train.de", "train.en"};
  ASSERT_EQ(train(flags("uncut", 9), data).exit_code, 0);
  ASSERT_EQ(train(flags("run", 3), data).exit_code, 0);
  const std::string saved = weights("run", 3);
  const Outcome full =
      run_without_space(folder_.path(), {"train", "--model", "run", "--after", "9u"});
  EXPECT_EQ(full.exit_code, kFailed) << full.err;
  EXPECT_TRUE(contains(full.err, "ckpt") && contains(full.err, "File too large")) << full.err;
  EXPECT_EQ(read_file(folder_.file("run/latest")), "3\n");
  EXPECT_EQ(weights("run", 3), saved);
  const Outcome rest = train({"train", "--model", "run", "--after", "9u"}, {});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(weights("run", 9), weights("uncut", 9));
  // Unpacking needs space as well.
  const std::string german = read_file(folder_.file("train.de"));
  const gzFile file = gzopen(folder_.file("train.de.gz").c_str(), "wb");
  gzwrite(file, german.data(), static_cast<unsigned>(german.size()));
  gzclose(file);
  std::vector<std::string> arguments = flags("other", 3);
  arguments.insert(arguments.end(),
                   {"--train-sets", "train.de.gz", "train.en", "--data-in-memory", "0"});
  const Outcome unpacking = run_without_space(folder_.path(), arguments);
  EXPECT_EQ(unpacking.exit_code, kFailed);
  EXPECT_TRUE(contains(unpacking.err, "cannot be unpacked in other: File too large"))
      << unpacking.err;
}

TEST_F(DataTest, OneFileIsTextForADecoder) {
  std::vector<std::string> arguments = with_tiny_model(
      words_of("train --train-sets train.de --valid-sets valid.de --vocabs v.spm --device cpu "
               "--after 5u"),
      {.width = 32, .vocabulary = 0, .batch_tokens = 400, .decoder_only = true});
  arguments = arguments + words_of("--model text");
  const Outcome text = train(arguments, {"--task", "lm"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(contains(text.out + text.err, "| ce ")) << text.err;
  EXPECT_TRUE(contains(text.err, "train.de is one file: training a language model")) << text.err;
  arguments.back() = "pairs";
  const Outcome pairs = train(arguments, {"--task", "tiny"});
  EXPECT_NE(pairs.exit_code, 0);
  EXPECT_TRUE(contains(pairs.err, "monolingual text trains a decoder-lm")) << pairs.err;
  const Outcome metric = train(arguments, {"--task", "lm", "--valid-metrics", "bleu"});
  EXPECT_NE(metric.exit_code, 0);
  EXPECT_TRUE(contains(metric.err, "bleu")) << metric.err;
}

// 187 documents, of which 52 have more than 64 tokens: bytes and an end.
TEST_F(DataTest, LongDocumentsAreDroppedOrCutIntoWindows) {
  std::string text;
  int64_t tokens = 0, tokens_of_short = 0, windows = 0;
  for (int i = 0; i < 187; ++i) {
    const bool is_long = i * 52 / 187 != (i + 1) * 52 / 187;
    const int64_t length = is_long ? 70 + 9 * (i % 40) : 10 + i % 50;
    for (int64_t j = 0; j < length; ++j) text += static_cast<char>('a' + (i * 7 + j * j) % 26);
    text += '\n';
    tokens += length + 1;
    (is_long ? windows : tokens_of_short) += is_long ? 1 + (length + 1 - 64 + 47) / 48 : length + 1;
  }
  write_file(folder_.file("documents"), text);
  const auto run = [&](const std::string& name, const std::string& more, int threads = 2) {
    return train(
        with_tiny_model(
            words_of("train --train-sets documents --valid-sets documents --vocab-kind byte "
                     "--device cpu --after 1e --max-length 64 --valid-freq 1e --model " +
                     name + " --cpu-threads " + std::to_string(threads)),
            {.width = 32, .vocabulary = 0, .batch_tokens = 400, .decoder_only = true}),
        words_of(more));
  };
  const auto trained = [](int64_t count) {
    std::string number = std::to_string(count);
    if (number.size() > 3) number.insert(number.size() - 3, ",");
    return number + " target tokens";
  };
  const Outcome dropped = run("dropped", "--task lm");
  ASSERT_EQ(dropped.exit_code, 0) << dropped.err;
  EXPECT_TRUE(contains(dropped.err, "training corpus: 52 of 187 pairs left out")) << dropped.err;
  EXPECT_TRUE(contains(dropped.err, trained(tokens_of_short))) << dropped.err;
  const std::string cut_text =
      "52 of 187 texts, over 64 tokens, cut into " + std::to_string(windows) + " windows";
  const std::string flags = "--task lm --long-lines window --window-stride 48";
  const Outcome cut = run("cut", flags);
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_TRUE(contains(cut.err, "training corpus: " + cut_text)) << cut.err;
  EXPECT_TRUE(contains(cut.err, "validation corpus: " + cut_text)) << cut.err;
  EXPECT_TRUE(contains(cut.err, trained(tokens))) << cut.err;
  const Outcome disk = run("disk", flags + " --data-in-memory 0", 1);
  ASSERT_EQ(disk.exit_code, 0) << disk.err;
  EXPECT_TRUE(contains(disk.err, "epoch 1: " + cut_text)) << disk.err;
  const std::string last = read_file(folder_.file("cut/latest"));
  EXPECT_EQ(read_file(folder_.file("disk/latest")), last);
  EXPECT_EQ(weights("disk", std::stoi(last)), weights("cut", std::stoi(last)));
  // Scores and validation use the same windows.
  const Outcome scored =
      run_program(folder_.path(), words_of("score -m cut --text documents --window-length 64 "
                                           "--window-stride 48 --device cpu --json"));
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  const auto summary = nlohmann::json::parse(scored.out);
  EXPECT_EQ(summary.at("target_tokens"), tokens);
  EXPECT_EQ(summary.at("skipped"), 0);
  double validated = 0;
  for (const std::string& line : lines_of(read_file(folder_.file("cut/metrics.jsonl"))))
    if (const auto record = nlohmann::json::parse(line); record.contains("ce-mean-words"))
      validated = record.at("ce-mean-words");
  EXPECT_NEAR(std::log(summary.at("perplexity").get<double>()), validated, 1e-4);

  const auto refused = [&](const std::string& more, const std::string& why) {
    const Outcome outcome = run("refused", more);
    EXPECT_NE(outcome.exit_code, 0) << more;
    EXPECT_TRUE(contains(outcome.err, why)) << outcome.err;
  };
  refused("--task lm --window-stride 48", "--window-stride");
  refused("--task lm --long-lines window --window-stride 65", "--window-stride");
  refused("--task lm --long-lines cut", "--long-lines");
  refused("--task tiny --long-lines window --arch encoder-decoder", "--long-lines");
}

// Lines of TSV as records, every other with all its letters that are not ASCII escaped.
std::string records_of(const std::string& tsv) {
  std::string records;
  size_t count = 0;
  for (const std::string& line : lines_of(tsv)) {
    const size_t tab = line.find('\t');
    const nlohmann::json record = {
        {"id", ++count}, {"prompt", line.substr(0, tab)}, {"completion", line.substr(tab + 1)}};
    records += record.dump(-1, ' ', count % 2 == 0) + "\n";
  }
  return records;
}

TEST_F(DataTest, JsonLinesTrainAsTheirTextsInTwoFilesDo) {
  const std::string records = records_of(tsv_);
  write_file(folder_.file("train.jsonl"), records);
  write_file(folder_.file("records"), "\n" + records);
  const gzFile file = gzopen(folder_.file("train.jsonl.gz").c_str(), "wb");
  gzwrite(file, records.data(), static_cast<unsigned>(records.size()));
  gzclose(file);
  const Outcome two = train(flags("two", 8), {"--train-sets", "train.de", "train.en"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_FALSE(contains(two.err, "JSON lines")) << two.err;
  const std::string expected = weights("two", 8);
  const auto same = [&](const std::string& run, const std::vector<std::string>& more,
                        const std::string& input = "") {
    const Outcome outcome = train(flags(run, 8), more, input);
    EXPECT_EQ(outcome.exit_code, 0) << run << "\n" << outcome.err;
    EXPECT_TRUE(contains(outcome.err, ": JSON lines of pairs")) << run << "\n" << outcome.err;
    EXPECT_EQ(weights(run, 8), expected) << run;
  };
  same("memory", {"--train-sets", "train.jsonl", "--task", "tiny"});
  same("disk", {"--tsv", "train.jsonl", "--data-in-memory", "0"});
  same("gzip", {"--tsv", "train.jsonl.gz", "--data-in-memory", "0"});
  same("name", {"--tsv", "records"});
  same("pipe", {"--tsv", "-"}, records);
  // The pairs are the same, so that a run continues with either.
  ASSERT_EQ(train(flags("cut", 5), {"--train-sets", "train.de", "train.en"}).exit_code, 0);
  const Outcome rest =
      train({"train", "--model", "cut", "--after", "8u"}, {"--tsv", "train.jsonl.gz"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(weights("cut", 8), expected);
  std::string edited = records;
  edited.replace(edited.rfind("\"completion\":\"") + 14, 1, "#");
  write_file(folder_.file("edited.jsonl"), edited);
  const Outcome changed =
      train({"train", "--model", "cut", "--after", "9u"}, {"--tsv", "edited.jsonl"});
  EXPECT_NE(changed.exit_code, 0);
  EXPECT_TRUE(contains(changed.err, "the training corpus has changed since")) << changed.err;
}

TEST_F(DataTest, ConversationsAreTrainedOnByATemplate) {
  std::string chats;
  for (const std::string& line : lines_of(read_file(folder_.file("train.de"))))
    chats += R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": )" +
             nlohmann::json(line).dump() + "}]}\n";
  write_file(folder_.file("chats.jsonl"), chats);
  const std::string source =
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content + eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}\r\n";
  write_file(folder_.file("t.jinja"), source);
  write_file(folder_.file("bad.jinja"), "\n{% include 'x' %}");
  const auto trained = [&](const std::string& rest) {
    return train(
        with_tiny_model(words_of("train --train-sets chats.jsonl --vocabs v.spm --device cpu "
                                 "--save-freq 3u --cpu-threads 1 --model chat " +
                                 rest),
                        {.width = 32, .vocabulary = 0, .batch_tokens = 400, .decoder_only = true}),
        {});
  };
  const auto refused = [&](const std::string& rest, const std::string& part) {
    const Outcome outcome = trained(rest);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
  };
  refused("--after 3u", "the vocabulary came without a chat template");
  refused("--after 3u --chat-template missing.jinja", "missing.jinja cannot be read");
  refused("--after 3u --chat-template bad.jinja", "2: the tag 'include' is not supported");
  refused("--after 3u --chat-template chatml", "no token <|im_start|>");
  const Outcome first = trained("--after 3u --chat-template t.jinja");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(contains(first.err, "chats.jsonl: JSON lines of conversations")) << first.err;
  EXPECT_EQ(read_file(folder_.file("chat/chat_template.jinja")), source);
  const Outcome rest = train({"train", "--model", "chat", "--after", "6u"}, {});
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  const Outcome other =
      train({"train", "--model", "chat", "--after", "9u", "--chat-loss", "all"}, {});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_TRUE(contains(other.err, "chat-loss")) << other.err;
}

TEST_F(DataTest, JsonLinesOfTextAreTrainedOnAsLinesAreAndMakeAVocabulary) {
  std::string records, valid;
  for (const std::string& line : lines_of(read_file(folder_.file("train.de"))))
    records += nlohmann::json{{"text", line}}.dump() + "\n";
  for (const std::string& line : lines_of(read_file(folder_.file("valid.de"))))
    valid += nlohmann::json{{"text", line}}.dump() + "\n";
  write_file(folder_.file("text.jsonl"), records);
  write_file(folder_.file("valid.jsonl"), valid);
  const auto trained = [&](const std::string& run, const std::string& sets) {
    return train(
        with_tiny_model(words_of("train --task lm --vocabs v.spm --device cpu --after 5u "
                                 "--save-freq 5u --cpu-threads 1 --model " +
                                 run + " " + sets),
                        {.width = 32, .vocabulary = 0, .batch_tokens = 400, .decoder_only = true}),
        {});
  };
  const Outcome lines = trained("lines", "--train-sets train.de --valid-sets valid.de");
  ASSERT_EQ(lines.exit_code, 0) << lines.err;
  const Outcome json = trained("json", "--train-sets text.jsonl --valid-sets valid.jsonl");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_TRUE(contains(json.err, "text.jsonl: JSON lines of text")) << json.err;
  EXPECT_EQ(weights("json", 5), weights("lines", 5));
  const Outcome listed = trained("listed", "--tsv text.jsonl --valid-sets valid.jsonl");
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_TRUE(contains(listed.out + listed.err, "| ce ")) << listed.err;
  EXPECT_EQ(weights("listed", 5), weights("lines", 5));
  for (const std::string set : {"train.de", "text.jsonl"}) {
    const Outcome made = run_program(
        folder_.path(), {"vocab", "-t", set, "--dim-vocabs", "200", "-o", set + ".spm"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  EXPECT_EQ(read_file(folder_.file("text.jsonl.spm")), read_file(folder_.file("train.de.spm")));
}

TEST_F(DataTest, FilesThatAreNoJsonLinesOfTextAreRefused) {
  const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  const auto refused = [&](const std::string& name, const std::string& text,
                           const std::string& reason) {
    write_file(folder_.file(name), text);
    const Outcome outcome = train(flags("none", 1), {"--tsv", name});
    EXPECT_EQ(outcome.exit_code, kUsage) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, reason)) << outcome.err;
  };
  refused("a.jsonl", good + "{\"prompt\": \"a\"}\n", "a.jsonl:2: there is no completion");
  refused("a.jsonl", good + "\n{\"prompt\": \"a\", \"completion\": 1}\n",
          "a.jsonl:3: completion is not a text");
  refused("a.jsonl", good + "{\"prompt\": \"a\", ", "a.jsonl:2: not valid JSON at byte ");
  refused("a.txt", "{\"messages\": 1}\n", "a.txt:1: messages is no list");
  refused("a.txt", "{\"question\": \"a\"}\n",
          "a.txt:1: a JSON object with the members 'question'; training reads these: prompt,");
  refused("a.json", "[{\"prompt\": \"a\"}]\n", "a.json:1: it is a JSON array");
  refused("a.jsonl", "{\"text\": \"a\"}\n", "monolingual text is one file");
  refused("a.parquet", "PAR1\x15\x04\x15\n",
          "a.parquet:1: binary data; it is Parquet: duckdb -c \"COPY (FROM");
  write_file(folder_.file("a.jsonl"), good);
  write_file(folder_.file("b.jsonl"), good);
  const Outcome sides = train(flags("none", 1), {"--train-sets", "a.jsonl", "b.jsonl"});
  EXPECT_EQ(sides.exit_code, kUsage) << sides.err;
  EXPECT_TRUE(contains(sides.err, "a.jsonl:1: it has JSON lines with prompt and completion"))
      << sides.err;
  const Outcome forced =
      train(flags("none", 1), {"--train-sets", "train.de", "train.en", "--data-format", "jsonl"});
  EXPECT_EQ(forced.exit_code, kUsage) << forced.err;
  EXPECT_TRUE(contains(forced.err, "2 paths: JSON lines are one file")) << forced.err;
  const Outcome columns = train(flags("none", 1), {"--tsv", "a.jsonl", "--data-format", "text"});
  EXPECT_EQ(columns.exit_code, kUsage) << columns.err;
  EXPECT_TRUE(contains(columns.err, "a.jsonl:1: 0 tabs")) << columns.err;
  // Text that begins as an object does.
  write_file(folder_.file("a.tsv"), "{\"a\": b\tc\n" + tsv_);
  const Outcome text = train(flags("text", 1), {"--tsv", "a.tsv"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
}

TEST_F(DataTest, MistakesAreNamed) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& reason,
                           int code = kUsage) {
    const Outcome outcome = train(flags("none", 1), more);
    EXPECT_EQ(outcome.exit_code, code) << reason << "\n" << outcome.err;
    EXPECT_TRUE(contains(outcome.err, reason)) << outcome.err;
  };
  refused({"--train-sets", "train.de", "train.en", "valid.de"}, "wants pairs of files");
  refused({"--train-sets", "train.de", "train.en", "--data-weights", "1", "2"},
          "there are 2 weights and 1 corpora");
  refused({"--train-sets", "train.de", "train.en", "--data-weights", "many"}, "wants numbers");
  refused({"--train-sets", "train.de", "train.en", "--data-in-memory", "much"}, "wants a size");
  refused({"--train-sets", "train.de", "train.en", "--data-weights", "0"},
          "the weight of corpus 1 is 0", kUsage);
  refused({"--train-sets", "train.de", "train.en", "--max-length-ratio", "0.5"},
          "--max-length-ratio: must be 0 (any) or at least 1", kUsage);
  refused({"--train-sets", "train.de", "train.en", "--max-length", "2"},
          "no sentence pair is left to train on", kUsage);
  for (const char* side : {"valid.de", "valid.en"})
    write_file(folder_.file(side), "ein " + std::string(400, 'b') + "\n");
  refused({"--train-sets", "train.de", "train.en", "--max-length", "60"},
          "no sentence pair is left to validate with: of 1 lines", kUsage);
}

// --- size ---

void write_synthetic(const std::string& source_path, const std::string& target_path,
                     int64_t pairs) {
  std::ofstream source(source_path, std::ios::binary), target(target_path, std::ios::binary);
  uint64_t state = 1;
  const auto below = [&state](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  std::string s, t;
  for (int64_t i = 0; i < pairs; ++i) {
    s.clear();
    t.clear();
    for (uint64_t words = 3 + below(20); words > 0; --words) {
      const uint64_t word = below(100) * below(100);  // small ones more often
      (s += "haus") += std::to_string(word) + " ";
      (t += "house") += std::to_string(word) + " ";
    }
    source << s << '\n';
    target << t << '\n';
  }
}

// Trains one update on this many pairs from disk; says and checks what that took.
void train_large(const TemporaryFolder& folder, int64_t pairs, int64_t limit_mib,
                 double limit_seconds) {
  write_synthetic(folder.file("large.src"), folder.file("large.trg"), pairs);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_program(folder.path(), {"train",
                                                      "--train-sets",
                                                      "large.src",
                                                      "large.trg",
                                                      "--valid-sets",
                                                      "valid.de",
                                                      "valid.en",
                                                      "--vocabs",
                                                      "v.spm",
                                                      "--model",
                                                      "large",
                                                      "--task",
                                                      "tiny",
                                                      "--after",
                                                      "1u",
                                                      "--valid-freq",
                                                      "0u",
                                                      "--valid-metrics",
                                                      "ce-mean-words",
                                                      "--cpu-threads",
                                                      "2",
                                                      "--device",
                                                      "cpu",
                                                      "--data-in-memory",
                                                      "1MiB"});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);  // the largest child so far, which is this one
  std::printf("%lld pairs: %.1f s from start to end of one update, peak RSS %ld MiB\n",
              static_cast<long long>(pairs), seconds, usage.ru_maxrss / 1024);
  EXPECT_LT(usage.ru_maxrss / 1024, limit_mib);
  EXPECT_LT(seconds, limit_seconds);
}

TEST_F(DataTest, TextOnDiskTakesNoMemoryOfItsSize) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory would be measured";
#endif
  // The time was measured on a machine with much other work; the long test says what is wanted.
  train_large(folder_, 150000, 600, 600);
}

// Text over 256 MiB stays on disk, in every command that learns from it: here 300 MB of lines, of
// which a shortlist takes a few, and a vocabulary of bytes reads all and learns nothing.
TEST_F(DataTest, CommandsThatLearnFromTextDoNotHoldIt) {
  constexpr long kMostKib = 140 << 10;
  {
    std::ofstream large(folder_.file("large"));
    std::string line;
    while (line.size() < 5000) line += "die Katze ";
    line += '\n';
    for (int i = 0; i < 60000; ++i) large << line;
    large << read_file(folder_.file("train.de"));
  }
  for (const char* command : {"vocab -t large -o large.byte --kind byte",
                              "shortlist -t large large -v v.spm -o large.s2t --max-pairs 100"}) {
    const Outcome outcome = run_program(folder_.path(), words_of(command));
    EXPECT_EQ(outcome.exit_code, 0) << command << outcome.err;
    EXPECT_LT(outcome.peak_kib, kMostKib) << command;
  }
  std::remove(folder_.file("large").c_str());
}

// A device has no end: it is refused by its kind.
TEST_F(DataTest, AVocabularyIsNoDevice) {
  const Outcome outcome =
      run_program(folder_.path(),
                  words_of("train --train-sets train.de train.en --vocabs /dev/zero --model z"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("/dev/zero: is no regular file"), std::string::npos) << outcome.err;
  EXPECT_LT(outcome.peak_kib, 100 << 10);
}

TEST_F(DataTest, TheNormalFormAndSymbolsOfAVocabularyAreChosen) {
  const auto vocabulary = [&](const std::string& more) {
    return run_program(folder_.path(),
                       words_of("vocab -t train.de -o chosen.spm --soft-limit " + more));
  };
  EXPECT_EQ(vocabulary("--normalization nfkc_cf --user-defined-symbols <a> <b>").exit_code, 0);
  const Outcome wrong = vocabulary("--normalization lower");
  EXPECT_EQ(wrong.exit_code, kUsage);
  EXPECT_NE(wrong.err.find("nmt_nfkc"), std::string::npos) << wrong.err;
  EXPECT_NE(vocabulary("--user-defined-symbols </s>").err.find("'</s>' is a special token's"),
            std::string::npos);
}

TEST_F(DataTest, FiveMillionPairsInTwoGibibytes) {
  if (std::getenv("TRAFO_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "5,000,000 pairs, 1.4 GB of temporary files: set TRAFO_LONG_TESTS=1";
  train_large(folder_, 5000000, 2048, 60);
}

}  // namespace
}  // namespace translate_train::testing
