// JSON lines as corpora: which lines they are, the texts of their pairs, and hostile files.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "engine/data/text_corpus.h"
#include "engine/data/train_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/gzip.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

namespace trafo {
namespace {

using namespace testing;

using Texts = std::vector<std::vector<std::string>>;

class JsonLines : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  LoadOptions disk(CorpusFormat format = CorpusFormat::automatic) const {
    return {0, (folder_ / "unpacked").string(), format};
  }
  static Texts texts_of(const TextCorpus& corpus) {
    Texts all;
    PairBuffers buffers;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      const PairView pair = corpus.view(i, buffers);
      std::vector<std::string> texts{std::string(pair.source), std::string(pair.target),
                                     std::string(pair.rejected)};
      if (corpus.form() == CorpusForm::monolingual) texts = {texts[1]};
      if (corpus.form() == CorpusForm::parallel) texts.pop_back();
      all.push_back(texts);
    }
    return all;
  }
  // In memory and on disk, plain and as gzip.
  void expect_texts(const std::string& name, const std::string& text, CorpusForm form,
                    const Texts& expected) const {
    for (const std::string& path : {write(name, text), write(name + ".gz", gzip_of(text))})
      for (const TextCorpus& corpus : {load_tsv(path), load_tsv(path, disk())}) {
        EXPECT_EQ(corpus.form(), form) << path;
        EXPECT_EQ(corpus.format(), CorpusFormat::json_lines) << path;
        EXPECT_EQ(texts_of(corpus), expected) << path;
      }
  }
  void expect_refused(ErrorCode code, const std::string& name, const std::string& text,
                      const std::string& part,
                      CorpusFormat format = CorpusFormat::automatic) const {
    const std::string path = write(name, text);
    LoadOptions memory;
    memory.format = format;
    for (const LoadOptions& options : {memory, disk(format)})
      expect_error(code, part, [&] { load_monolingual(path, options); });
  }
  void corrupt(const std::string& text, const std::string& part) const {
    expect_refused(ErrorCode::corrupt_file, "c.jsonl", text, part);
  }

  TemporaryDirectory folder_;
};

TEST_F(JsonLines, MembersAreTheTextsOfPairs) {
  expect_texts("t.jsonl",
               "{\"id\": 7, \"text\": \"one\\ntwo\\t\\u00e9 \\ud83d\\ude00 \\\"\\\\\"}\n",
               CorpusForm::monolingual, {{"one\ntwo\t\u00e9 \U0001F600 \"\\"}});
  expect_texts("p.jsonl",
               "\xef\xbb\xbf{\"completion\": \"b\", \"prompt\": \"a\"}\r\n\r\n"
               "  {\"prompt\":\"c\\nd\",\"completion\":\"e\",\"text\":\"f\"}",
               CorpusForm::parallel, {{"a", "b"}, {"c\nd", "e"}});
  expect_texts("s.ndjson", "{\"source\": \"a\", \"target\": \"b\"}\n", CorpusForm::parallel,
               {{"a", "b"}});
  expect_texts(
      "d.json",
      "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"completion\": \"d\"}\n",
      CorpusForm::preferences, {{"a", "b", "c"}});
}

TEST_F(JsonLines, AlpacasTemplateJoinsInstructionAndInput) {
  const std::string alone =
      "Below is an instruction that describes a task. Write a response that appropriately "
      "completes the request.\n\n### Instruction:\nAdd.\n\n### Response:";
  const std::string both =
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:";
  expect_texts("a.jsonl",
               "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n"
               "{\"instruction\": \"Add.\", \"input\": \"\", \"output\": \"3\"}\n"
               "{\"instruction\": \"Add.\", \"output\": \"3\", \"input\": null}\n"
               "{\"instruction\": \" \", \"output\": \"3\"}\n"
               "{\"instruction\": \"Add.\", \"output\": \"3\"}\n",
               CorpusForm::parallel, {{both, "3"}, {alone, "3"}, {alone, "3"}, {alone, "3"}});
  corrupt("{\"instruction\": \"a\", \"output\": \"b\", \"input\": 3}\n",
          "c.jsonl:1: input is not a text");
}

TEST_F(JsonLines, TheSamePairsHaveTheFingerprintOfTextFiles) {
  const std::string lines =
      "\n{\"prompt\": \"a\", \"completion\": \"b\"}\n\n{\"prompt\": \" \", \"completion\": \"x\"}\n"
      "{\"prompt\": \"c\", \"completion\": \"d\"}\n";
  const std::string path = write("p.txt", lines);
  const TextCorpus text = load_parallel(write("s", "\na\n\n \nc\n"), write("t", "\nb\n\nx\nd\n"));
  for (const TextCorpus& corpus : {load_monolingual(path), load_monolingual(path, disk())}) {
    EXPECT_EQ(corpus.fingerprint(), text.fingerprint());
    EXPECT_EQ(corpus.report().lines, 5);
    EXPECT_EQ(corpus.report().dropped_empty, 3);
    EXPECT_EQ(corpus.line(0), 1);
    EXPECT_EQ(corpus.line(1), 4);
    EXPECT_EQ(texts_of(corpus), texts_of(text));
  }
}

TEST_F(JsonLines, TheFirstLineOfAFileWithAnyNameDecides) {
  const std::string record = "\n{\"text\": \"a\"}\n";
  EXPECT_EQ(texts_of(load_monolingual(write("notes.txt", record))), (Texts{{"a"}}));
  for (const std::string text :
       {"{text: a}\n", "{\"a\" b}\n", "{\"a\\\":\n", "{}\n", "[\"a\"]\n", "a {\"text\": \"a\"}\n",
        "{\"a\": b}\n", "{\"a\": 1} b\n", "{\"a\": \n", "{\"a\": 1e999}\n"})
    for (const LoadOptions& options : {LoadOptions(), disk()}) {
      const TextCorpus corpus = load_monolingual(write("notes.txt", text), options);
      EXPECT_EQ(corpus.format(), CorpusFormat::text) << text;
      EXPECT_EQ(texts_of(corpus)[0][0] + "\n", text);
    }
  LoadOptions text;
  text.format = CorpusFormat::text;
  EXPECT_EQ(texts_of(load_monolingual(write("a.jsonl", record), text)),
            (Texts{{"{\"text\": \"a\"}"}}));
  expect_refused(ErrorCode::corrupt_file, "notes.txt", "plain\n", "notes.txt:1: not valid JSON",
                 CorpusFormat::json_lines);
  // A record that is damaged is not taken for text.
  expect_refused(ErrorCode::corrupt_file, "notes.txt", "{\"id\": 1, \"text\": \"\\ud800\"}\n",
                 "notes.txt:1: not valid JSON");
  expect_refused(ErrorCode::corrupt_file, "notes.txt",
                 "{\"prompt\": \"a\", \"completion\": \"b\", \"prompt\": \"c\"}\n",
                 "notes.txt:1: a JSON object has a key twice");
}

TEST_F(JsonLines, BlankLinesBeforeTheFirstRecordCount) {
  const std::string lines = " \n\n\t\n{\"text\": \"a\"}\n \n";
  for (const LoadOptions& options : {LoadOptions(), disk()}) {
    const TextCorpus corpus = load_monolingual(write("a.jsonl", lines), options);
    EXPECT_EQ(texts_of(corpus), (Texts{{"a"}}));
    EXPECT_EQ(corpus.line(0), 3);
    EXPECT_EQ(corpus.report().lines, 5);
    expect_error(ErrorCode::invalid_argument, "no usable sentence pair",
                 [&] { load_monolingual(write("b.jsonl", " \n\n \n"), options); });
    // Text of white space stays in the fingerprint.
    EXPECT_NE(load_monolingual(write("c.txt", " \na\n"), options).fingerprint(),
              load_monolingual(write("d.txt", "\na\n"), options).fingerprint());
  }
}

TEST_F(JsonLines, StandardInputIsKnownByItsFirstLine) {
  const std::string path = write("in", "{\"prompt\": \"a\\nb\", \"completion\": \"c\"}\n");
  const int saved = dup(STDIN_FILENO);
  const int file = open(path.c_str(), O_RDONLY);
  dup2(file, STDIN_FILENO);
  const TextCorpus corpus = load_tsv("-", disk());
  dup2(saved, STDIN_FILENO);
  close(file);
  close(saved);
  EXPECT_EQ(texts_of(corpus), (Texts{{"a\nb", "c"}}));
}

TEST_F(JsonLines, OtherObjectsAreRefusedWithWhatTheyHave) {
  corrupt("{\"a\": 1, \"b\\n\": 2}\n",
          "c.jsonl:1: a JSON object with the members 'a' and 'b?'; training reads these: prompt, "
          "chosen and rejected; prompt, completion and label; prompt and completion; ");
  corrupt("{}\n", "a JSON object with no members");
  corrupt("[{\"text\": \"a\"}]\n", "c.jsonl:1: it is a JSON array, not an object a line: jq");
  expect_refused(ErrorCode::corrupt_file, "notes.txt", "{\"question\": \"a\"}\n",
                 "notes.txt:1: a JSON object with the members 'question'");
  std::string many = "{\"k0\": 0";
  for (int i = 1; i < 20; ++i) many += concat(", \"k", i, "\": 0");
  corrupt(many + "}\n", "'k7' and 12 others; training");
}

TEST_F(JsonLines, LinesThatAreNoRecordsAreNamed) {
  const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  corrupt(good + "{\"prompt\": \"a\"}\n", "c.jsonl:2: there is no completion");
  corrupt(good + "\n" + good + "{\"prompt\": 1, \"completion\": \"b\"}\n",
          "c.jsonl:4: prompt is not a text");
  corrupt(good + "{\"prompt\": \"a\", \"completion\": [\"b\"]}\n",
          "c.jsonl:2: completion is not a text");
  corrupt(good + "{\"prompt\": null, \"completion\": \"b\"}\n", "c.jsonl:2: prompt is not a text");
  corrupt(good + "[1]\n", "c.jsonl:2: no JSON object");
  corrupt(good + "\"a\"\n", "c.jsonl:2: no JSON object");
  corrupt(good + "{\"prompt\": \"a\", \"comp", "c.jsonl:2: not valid JSON at byte ");
  corrupt(good + good.substr(0, good.size() - 1) + good, "c.jsonl:2: not valid JSON at byte ");
  corrupt(good + "plain text\n", "c.jsonl:2: not valid JSON at byte 1");
  corrupt(good + "{\"prompt\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}\n",
          "c.jsonl:2: a JSON object has a key twice");
  corrupt(good + "{\"prompt\": \"a\\ud800\", \"completion\": \"b\"}\n",
          "c.jsonl:2: not valid JSON");
  corrupt(good + "{\"prompt\": \"a\\udc00\\ud800\", \"completion\": \"b\"}\n",
          "c.jsonl:2: not valid JSON");
  corrupt(good + "{\"prompt\": \"a\\u0000\", \"completion\": \"b\"}\n",
          "c.jsonl:2: prompt has a NUL character");
  corrupt(good + "{\"prompt\": \"a\", \"completion\": \"b\", \"n\": 1e999}\n",
          "c.jsonl:2: not valid JSON: a number is out of range");
  corrupt(
      good + "{\"prompt\": \"a\", \"completion\": \"b\", \"n\": " + std::string(100000, '[') + "\n",
      "c.jsonl:2: the JSON text is nested more than 16 deep");
  const auto invalid = [&](const std::string& text, const std::string& part) {
    expect_refused(ErrorCode::invalid_argument, "c.jsonl", text, part);
  };
  invalid(good + "{\"prompt\": \"\xff\", \"completion\": \"b\"}\n", "c.jsonl:2: invalid UTF-8");
  invalid(good + std::string("{\"prompt\": \"\0", 13) + "\", \"completion\": \"b\"}\n",
          "c.jsonl:2: NUL byte");
  invalid(good + "{\"prompt\": \"" + std::string(1 << 20, 'a') + "\"}\n",
          "c.jsonl:2: the line is longer than 1048576 bytes");
  invalid("", "c.jsonl: is empty");
  invalid("{\"text\": \"\"}\n\n", "no usable sentence pair");
  // A record of the most bytes, and with members that need the most memory.
  const std::string head = "{\"prompt\": \"a\", \"completion\": \"b\", \"x\": [0";
  std::string wide = head;
  while (wide.size() + 4 < (1 << 20)) wide += ",0";
  EXPECT_EQ(texts_of(load_tsv(write("w.jsonl", wide + "]}\n"))), (Texts{{"a", "b"}}));
}

TEST_F(JsonLines, FormsThatDoNotFitAreRefused) {
  const std::string pairs = write("p.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const std::string text = write("x", "a\n");
  for (const LoadOptions& options : {LoadOptions(), disk()}) {
    expect_error(ErrorCode::invalid_argument,
                 "p.jsonl:1: the records have prompt and completion; preferences are prompt", [&] {
                   load_preferences({&pairs, 1}, options);
                 });
    // Files with one side each.
    expect_error(ErrorCode::invalid_argument,
                 "p.jsonl:1: it has JSON lines with prompt and completion, all sides of a pair",
                 [&] { load_parallel(text, pairs, options); });
    expect_error(ErrorCode::invalid_argument,
                 "chat.jsonl:1: it has JSON lines with messages, all sides of a pair", [&] {
                   load_parallel(text, write("chat.jsonl", "{\"messages\": []}\n"), options);
                 });
    expect_error(ErrorCode::invalid_argument,
                 "second.jsonl:2: it has JSON lines with text, all sides of a pair", [&] {
                   load_parallel(text, write("second.jsonl", "\n{\"text\": \"a\"}\n"), options);
                 });
    expect_error(ErrorCode::invalid_argument,
                 "de.jsonl: its name says that it has JSON lines, all sides of a pair",
                 [&] { load_parallel(write("de.jsonl", "{\"de\": \"a\"}\n"), text, options); });
    for (const std::string line : {"{\"name\": 1}\n", "{\"text\": b}\n"})
      EXPECT_EQ(load_parallel(text, write("y", line), options).size(), 1) << line;
  }
  LoadOptions forced;
  forced.format = CorpusFormat::json_lines;
  expect_error(ErrorCode::invalid_argument, "2 paths: JSON lines are one file",
               [&] { load_parallel(text, text, forced); });
}

TEST_F(JsonLines, AFileThatChangesIsNoticed) {
  std::string lines;
  for (int i = 0; i < 70; ++i) lines += concat("{\"text\": \"word ", 100 + i, "\"}\n");
  const std::string path = write("t.jsonl", lines);
  const TextCorpus corpus = load_monolingual(path, disk());
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "{\"text\": 12345678901}";
  PairBuffers buffers;
  expect_error(ErrorCode::io, "has changed", [&] { corpus.view(0, buffers); });
  expect_error(ErrorCode::io, "has changed", [&] {
    for (int64_t i = 1; i < 65; ++i) corpus.view(i, buffers);
  });
}

TEST_F(JsonLines, ParquetIsNamedWithWhatConvertsIt) {
  for (const std::string begin : {"PAR1\x15", "PAR1\x15\x04\x15\n"})
    expect_refused(ErrorCode::invalid_argument, "t.parquet", begin,
                   "t.parquet:1: binary data; it is Parquet: duckdb -c \"COPY (FROM");
  expect_refused(ErrorCode::invalid_argument, "t.parquet", "PAR1\x15\xff\n", "it is Parquet");
  EXPECT_EQ(load_monolingual(write("gene.txt", "PAR1 is a gene\n")).size(), 1);
}

TEST_F(JsonLines, AVocabularyIsTrainedOnTextWithItsTabs) {
  std::string record, whole;
  std::vector<std::string> columns;
  for (int i = 0; i < 9; ++i) {
    record += "do\\n\\t\\t\\tit\\n";
    whole += "do\n\t\t\tit\n";
    columns.insert(columns.end(), {"do\n", "it\n"});
  }
  const TextCorpus corpus =
      load_monolingual(write("t.jsonl", concat("{\"text\": \"", record, "\"}\n")));
  TokenizerTrainOptions options;
  options.kind = "byte-bpe";
  options.vocab_size = 290;
  options.hard_vocab_limit = false;
  const std::string trained = train_tokenizer(corpus, options).serialized();
  EXPECT_EQ(trained, Tokenizer::train(std::vector<std::string>{whole}, options).serialized());
  EXPECT_NE(trained, Tokenizer::train(columns, options).serialized());
}

TEST_F(JsonLines, AVocabularyIsTrainedOnDocumentsOfAnyLength) {
  std::string document, lines;
  for (int i = 0; document.size() < 30000; ++i)
    document += concat("the quick ", i, " brown foxes jump over a lazy dog ");
  std::string rest = document;
  for (size_t end; rest.size() > 4192; rest.erase(0, end)) {
    end = rest.rfind(' ', 4192);
    lines += rest.substr(0, end) + "\n";
  }
  lines += rest + "\n";
  const TextCorpus one =
      load_monolingual(write("one.jsonl", concat("{\"text\": \"", document, "\"}\n")));
  const TextCorpus pieces = load_monolingual(write("pieces", lines));
  for (const std::string kind : {"sentencepiece", "byte-bpe"}) {
    TokenizerTrainOptions options;
    options.kind = kind;
    options.vocab_size = 290;
    options.hard_vocab_limit = false;
    const std::string trained = train_tokenizer(one, options).serialized();
    EXPECT_EQ(trained, train_tokenizer(pieces, options).serialized()) << kind;
    EXPECT_EQ(trained, Tokenizer::train(std::vector<std::string>{document}, options).serialized())
        << kind;
    options.max_sentences = 3;  // fewer than the pieces
    EXPECT_NE(trained, train_tokenizer(one, options).serialized()) << kind;
  }
}

}  // namespace
}  // namespace trafo
