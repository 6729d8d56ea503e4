// CSV as corpora: its columns, quotes and line feeds, and hostile files.
#include <algorithm>
#include <fstream>

#include "engine/core/limits.h"
#include "engine/data/csv_record.h"
#include "engine/data/text_corpus.h"
#include "engine/data/train_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/gzip.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

namespace trafo {
namespace {

using namespace testing;

using Rows = std::vector<std::vector<std::string>>;

class Csv : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  LoadOptions disk(CorpusFormat format = CorpusFormat::automatic) const {
    return {0, (folder_ / "unpacked").string(), format};
  }
  // In memory and on disk, plain and as gzip.
  std::vector<TextCorpus> corpora(const std::string& text) const {
    std::vector<TextCorpus> all;
    for (const std::string& path : {write("t.csv", text), write("t.csv.gz", gzip_of(text))})
      for (const LoadOptions& options : {LoadOptions(), disk()})
        all.push_back(load_tsv(path, options));
    return all;
  }
  void expect_rows(const std::string& text, CorpusForm form, const Rows& expected) const {
    uint64_t fingerprint = 0;
    for (const TextCorpus& corpus : corpora(text)) {
      EXPECT_EQ(corpus.form(), form) << text;
      EXPECT_EQ(corpus.format(), CorpusFormat::csv);
      if (fingerprint == 0) fingerprint = corpus.fingerprint();
      EXPECT_EQ(corpus.fingerprint(), fingerprint);
      Rows found;
      PairBuffers buffers;
      for (int64_t i = 0; i < corpus.size(); ++i) {
        const PairView pair = corpus.view(i, buffers);
        found.push_back(
            {std::string(pair.source), std::string(pair.target), std::string(pair.rejected)});
      }
      EXPECT_EQ(found, expected) << text;
    }
  }
  void refused(const std::string& text, const std::string& part,
               ErrorCode code = ErrorCode::corrupt_file) const {
    const std::string path = write("t.csv", text);
    for (const LoadOptions& options : {LoadOptions(), disk()})
      expect_error(code, part, [&] { load_tsv(path, options); });
  }

  TemporaryDirectory folder_;
};

TEST_F(Csv, NamesOfColumnsChooseTheTexts) {
  expect_rows("text\none\n\ntwo\n", CorpusForm::monolingual, {{"", "one", ""}, {"", "two", ""}});
  expect_rows("id,completion,prompt\n1,b,a\n2,d,c", CorpusForm::parallel,
              {{"a", "b", ""}, {"c", "d", ""}});
  expect_rows("\xef\xbb\xbfsource,target\r\na,b\r\n", CorpusForm::parallel, {{"a", "b", ""}});
  expect_rows("prompt,chosen,rejected\np,c,r\np, ,r\n", CorpusForm::preferences, {{"p", "c", "r"}});
  expect_rows("prompt,completion,label\np,c,true\nq,d,False\nr,e,0\ns,f,1\n",
              CorpusForm::preferences,
              {{"p", "c", ""}, {"q", "", "d"}, {"r", "", "e"}, {"s", "f", ""}});
  expect_rows("instruction,input,output\nAdd.,,3\n", CorpusForm::parallel,
              {{"Below is an instruction that describes a task. Write a response that "
                "appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Response:",
                "3", ""}});
}

TEST_F(Csv, QuotedFieldsHaveCommasQuotesAndLineFeeds) {
  expect_rows(
      "source,target\n"
      "\"a, b\",\"say \"\"hi\"\"\"\n"
      "\"two\nlines\",\"\n\nlead\"\r\n"
      "\"CR LF\r\ninside\",5\" pipe\n"
      "\"\"\"\",\",\"\n",
      CorpusForm::parallel,
      {{"a, b", "say \"hi\"", ""},
       {"two\nlines", "\n\nlead", ""},
       {"CR LF\ninside", "5\" pipe", ""},
       {"\"", ",", ""}});
  // A pair is known by the first line of its record.
  for (const TextCorpus& corpus : corpora("source,target\n\"a\nb\",c\n\nd,\"e\nf\"\ng,h\n")) {
    ASSERT_EQ(corpus.size(), 3);
    EXPECT_EQ(corpus.report().dropped_empty, 1);
    EXPECT_EQ(corpus.line(0), 1);
    EXPECT_EQ(corpus.line(1), 4);
    EXPECT_EQ(corpus.line(2), 6);
    EXPECT_TRUE(corpus.place(2).ends_with(":7")) << corpus.place(2);
  }
}

TEST_F(Csv, FaultsNameFileAndLine) {
  refused("a,b\n1,2\n",
          "t.csv:1: the first line of CSV has the names of the columns, and these "
          "are 'a' and 'b'; training reads these: prompt, chosen and rejected");
  refused("source;target\n", "columns are separated by commas");
  refused("text,text\n", "t.csv:1: two columns have the name 'text'");
  refused("source,target\na,b\nc\n", "t.csv:3: 1 fields, the header has 2 columns");
  refused("source,target\na,b\n\nc,d,e\n", "t.csv:4: 3 fields, the header has 2 columns");
  refused("source,target\n\"a\nb\",c\n\"d\"x,e\n",
          "t.csv:4: field 1 has text after its closing quote");
  refused("source,target\na,b\nc,\"d\ne\n", "t.csv:3: field 2 begins with a quote, and no quote");
  refused("prompt,completion,label\na,b,maybe\n",
          "t.csv:2: label is 'maybe', it must be true or false");
  refused("source,target\n\"" + std::string(limits::kLineBytes / 2, 'x') + "\n" +
              std::string(limits::kLineBytes / 2, 'x') + "\n",
          "t.csv:2: the record is longer than 1048576 bytes: a quote may be missing");
  refused("source,target\n", "t.csv", ErrorCode::invalid_argument);
  refused("source,target\na,\xff\n", "t.csv:2: ", ErrorCode::invalid_argument);
  const std::string csv = write("a.csv", "source,target\na,b\n"), text = write("b.txt", "a\nb\n");
  expect_error(ErrorCode::invalid_argument, "its name says that it has CSV",
               [&] { load_parallel(csv, text); });
  LoadOptions as_csv;
  as_csv.format = CorpusFormat::csv;
  expect_error(ErrorCode::invalid_argument, "2 paths: CSV is one file",
               [&] { load_parallel(text, text, as_csv); });
  // By request, whatever the name; and the name does not matter to text.
  EXPECT_EQ(load_tsv(write("c.dat", "source,target\na,b\n"), as_csv).size(), 1);
  LoadOptions as_text;
  as_text.format = CorpusFormat::text;
  EXPECT_EQ(load_monolingual(csv, as_text).size(), 2);
}

// The fields of a record, and whether it goes on, by an independent reading of one character after
// the other.
TEST_F(Csv, AnyRecordIsReadAsWritten) {
  uint32_t state = 7;
  const auto next = [&state](uint32_t limit) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % limit;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> fields(1 + next(4));
    std::string record;
    for (std::string& field : fields) {
      for (uint32_t i = next(6); i > 0; --i) field += ",\"\nab "[next(6)];
      const bool quoted =
          field.find_first_of(",\n") != std::string::npos || field.starts_with('"') || next(2) == 0;
      if (&field != fields.data()) record += ',';
      if (!quoted) {
        record += field;
        continue;
      }
      record += '"';
      for (const char c : field) record += c == '"' ? std::string("\"\"") : std::string(1, c);
      record += '"';
    }
    EXPECT_EQ(csv_fields(record, "t"), fields) << record;
    CsvScan scan;
    size_t begin = 0;
    while (true) {
      const size_t end = std::min(record.find('\n', begin), record.size());
      scan.add(std::string_view(record).substr(begin, end - begin));
      EXPECT_EQ(scan.is_open(), end < record.size()) << record;
      if (end == record.size()) break;
      begin = end + 1;
    }
  }
}

TEST_F(Csv, AVocabularyIsTrainedOnTheTexts) {
  const std::string path = write("v.csv", "prompt,completion\n\"alpha, beta\",gamma\n");
  TokenizerTrainOptions options;
  options.vocab_size = 40;
  options.hard_vocab_limit = false;
  const Tokenizer tokenizer = train_tokenizer(load_tsv(path), options);
  std::vector<int32_t> ids;
  tokenizer.encode("alpha, gamma", ids);
  EXPECT_EQ(tokenizer.decode(ids), "alpha, gamma");
}

}  // namespace
}  // namespace trafo
