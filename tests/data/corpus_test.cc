#include "engine/data/corpus.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

class CorpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("trafo_corpus_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view bytes) {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }
  std::string write_gzip(const std::string& name, const std::string& bytes) {
    const std::string path = (folder_ / name).string();
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // The error must have the code, and its message every part.
  template <class Function>
  static void expect_error(Function&& function, ErrorCode code,
                           std::initializer_list<std::string_view> parts) {
    try {
      function();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const auto part : parts) EXPECT_TRUE(contains(error.message(), part)) << error.what();
    }
  }
  void expect_bad_lines(std::string_view bytes, std::initializer_list<std::string_view> parts) {
    const std::string path = write("bad.txt", bytes);
    expect_error([&] { read_lines(path); }, ErrorCode::invalid_argument, parts);
    expect_error([&] { read_lines(path); }, ErrorCode::invalid_argument, {path});
  }

  std::filesystem::path folder_;
};

using Lines = std::vector<std::string>;

TEST_F(CorpusTest, LineEndsMarksAndMissingLastEnd) {
  EXPECT_EQ(read_lines(write("lf", "a\nb\n")), (Lines{"a", "b"}));
  EXPECT_EQ(read_lines(write("no_final", "a\nb")), (Lines{"a", "b"}));
  EXPECT_EQ(read_lines(write("crlf", "a\r\nb\r\n")), (Lines{"a", "b"}));
  EXPECT_EQ(read_lines(write("crlf_end", "a\r\nb\r")), (Lines{"a", "b"}));
  EXPECT_EQ(read_lines(write("inner_cr", "a\rb\n")), (Lines{"a\rb"}));
  EXPECT_EQ(read_lines(write("bom", "\xef\xbb\xbfs\n\xef\xbb\xbft\n")),
            (Lines{"s", "\xef\xbb\xbft"}));
  EXPECT_EQ(read_lines(write("empty_lines", "\n\nx\n\n")), (Lines{"", "", "x", ""}));
  EXPECT_EQ(read_lines(write("empty", "")), Lines{});
  EXPECT_EQ(read_lines(write("one_end", "\n")), Lines{""});
}

TEST_F(CorpusTest, LinesAcrossBufferBoundaries) {
  Lines expected;
  std::string bytes;
  for (size_t i = 0; i < 60; ++i) {
    expected.push_back(std::string(i * 997 % 9000 + (i == 30 ? 300000 : 0), 'x') + "ä");
    bytes += expected.back() + "\r\n";
  }
  EXPECT_EQ(read_lines(write("long", bytes)), expected);
  EXPECT_EQ(read_lines(write_gzip("long.gz", bytes)), expected);
}

TEST_F(CorpusTest, InvalidUtf8NamesLineAndByte) {
  expect_bad_lines("good\nb\xc3\n", {"bad.txt:2: invalid UTF-8 at byte 2 (0xc3)"});
  // Other formats that a file may have.
  expect_bad_lines("\xff\xfeG\0u\0\n", {":1: invalid UTF-8", "it is UTF-16: iconv"});
  expect_bad_lines(
      "\xfd"
      "7zXZ",
      {":1: invalid UTF-8", "it is xz: xz -d"});
  expect_bad_lines("\x28\xb5\x2f\xfd", {":1: invalid UTF-8", "it is zstd: zstd -d"});
  expect_bad_lines("BZh91AY&SY\xf4", {":1: invalid UTF-8", "it is bzip2: bunzip2"});
  expect_bad_lines({"G\0u\0t\0", 6}, {":1: NUL byte at byte 2", "may be UTF-16 without"});
  expect_bad_lines({"\0G\0u", 4}, {":1: NUL byte at byte 1", "may be UTF-16 without"});
  expect_bad_lines("\x80", {":1: invalid UTF-8 at byte 1 (0x80)"});  // lone continuation
  expect_bad_lines("ab\xff", {"byte 3 (0xff)"});                     // never a byte of UTF-8
  expect_bad_lines("\xc0\xaf\n", {"byte 1 (0xc0)"});                 // overlong, two bytes
  expect_bad_lines("\xe0\x80\xaf\n", {"byte 1 (0xe0)"});             // overlong, three
  expect_bad_lines("\xf0\x80\x80\xaf\n", {"byte 1 (0xf0)"});         // overlong, four
  expect_bad_lines("x\xed\xa0\x80\n", {"byte 2 (0xed)"});            // surrogate
  expect_bad_lines("\xf4\x90\x80\x80\n", {"byte 1 (0xf4)"});         // above U+10FFFF
  expect_bad_lines("\xf5\x80\x80\x80\n", {"byte 1 (0xf5)"});
  expect_bad_lines("0123456789\xe4\xbd\n", {"byte 11 (0xe4)"});  // cut by the line end
  expect_bad_lines("caf\xe9\n", {":1: invalid UTF-8 at byte 4 (0xe9); the file is not UTF-8",
                                 "Latin-1, iconv -f WINDOWS-1252 -t UTF-8"});
  expect_bad_lines("\xff\xfeh\x00i\x00", {"byte 1 (0xff)"});  // UTF-16
}

TEST_F(CorpusTest, NulByteNamesLineAndByte) {
  expect_bad_lines(std::string_view("a\nbc\0d\n", 7), {"bad.txt:2: NUL byte at byte 3"});
}

TEST_F(CorpusTest, LineLimit) {
  CorpusOptions options;
  options.max_line_bytes = 10;
  EXPECT_EQ(read_lines(write("fits",
                             "\xef\xbb\xbf"
                             "0123456789\r\n"),
                       options),
            Lines{"0123456789"});
  const std::string long_line = write("long", "short\n01234567890\n");
  expect_error([&] { read_lines(long_line, options); }, ErrorCode::invalid_argument,
               {"long:2", "longer than 10 bytes"});
  const std::string endless = write("endless", std::string((1 << 20) + 1, 'a'));
  expect_error([&] { read_lines(endless); }, ErrorCode::invalid_argument,
               {"endless:1", "1048576 bytes"});
  EXPECT_EQ(read_lines(write("exact", std::string(1 << 20, 'a'))).at(0).size(), 1u << 20);
  // A highly compressed endless line stops at the limit as well.
  const std::string bomb = write_gzip("bomb.gz", std::string(8 << 20, 'a'));
  expect_error([&] { read_lines(bomb); }, ErrorCode::invalid_argument, {"bomb.gz:1"});
}

TEST_F(CorpusTest, UnreadablePaths) {
  expect_error([&] { read_lines((folder_ / "absent").string()); }, ErrorCode::not_found,
               {"absent", "No such file"});
  expect_error([&] { read_lines(folder_.string()); }, ErrorCode::invalid_argument,
               {"is a directory"});
  std::filesystem::create_directory(folder_ / "folder.gz");
  expect_error([&] { read_lines((folder_ / "folder.gz").string()); }, ErrorCode::invalid_argument,
               {"is a directory"});
  if (geteuid() != 0) {  // root reads everything
    const std::string locked = write("locked", "a\n");
    std::filesystem::permissions(locked, std::filesystem::perms::none);
    expect_error([&] { read_lines(locked); }, ErrorCode::io, {"locked"});
  }
}

TEST_F(CorpusTest, NamedPipesAreRead) {
  const std::string path = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "one\ntwo\n"; });
  EXPECT_EQ(read_lines(path), (Lines{"one", "two"}));
  writer.join();
}

TEST_F(CorpusTest, GzipDamage) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i * 7919 % 10007) + "\n";
  const std::string good = bytes_of(write_gzip("good.gz", text));
  EXPECT_EQ(read_lines((folder_ / "good.gz").string()).size(), 5000u);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{5}, good.size() / 2, good.size() - 1}) {
    const std::string path = write("cut.gz", std::string_view(good).substr(0, size));
    expect_error([&] { read_lines(path); }, ErrorCode::corrupt_file, {"cut.gz"});
  }
  std::string flipped = good;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);  // its CRC
  const std::string path = write("flipped.gz", flipped);
  expect_error([&] { read_lines(path); }, ErrorCode::corrupt_file, {"flipped.gz", "damaged"});
  const std::string plain = write("plain.gz", "no gzip\n");
  expect_error([&] { read_lines(plain); }, ErrorCode::corrupt_file, {"plain.gz", "no gzip data"});
  EXPECT_EQ(read_lines(write_gzip("empty.gz", "")), Lines{});
}

TEST_F(CorpusTest, GzipIsKnownByItsFirstBytes) {
  EXPECT_EQ(read_lines(write_gzip("unnamed", "a\nb\n")), (Lines{"a", "b"}));
  const std::string cut = bytes_of((folder_ / "unnamed").string()).substr(0, 2);
  expect_error([&] { read_lines(write("cut", cut)); }, ErrorCode::corrupt_file,
               {"cut:1: the gzip file is truncated"});
  EXPECT_EQ(read_lines(write("unit separator", "\x1f")), Lines{"\x1f"});
  EXPECT_FALSE(is_gzip_file(write("text", "\x1f")));
  EXPECT_FALSE(is_gzip_file((folder_ / "no such file").string()));
}

TEST_F(CorpusTest, SentencesInMemoryAreNoFile) {
  const std::string fault = error_of([] { make_parallel({"caf\xe9"}, {"a"}); }).message();
  EXPECT_TRUE(fault.ends_with("source sentence 1: invalid UTF-8 at byte 4 (0xe9)")) << fault;
}

TEST_F(CorpusTest, GzipMembersAndPadding) {
  const std::string one = bytes_of(write_gzip("one.gz", "a\nb\n"));
  const std::string two = bytes_of(write_gzip("two.gz", "c\n"));
  EXPECT_EQ(read_lines(write("both.gz", one + two)), (Lines{"a", "b", "c"}));
  const std::string zeros(100, '\0');
  EXPECT_EQ(read_lines(write("padded.gz", one + zeros)), (Lines{"a", "b"}));
  for (const std::string& rest : {std::string("x"), zeros + "x", zeros + two})
    expect_error([&] { read_lines(write("more.gz", one + rest)); }, ErrorCode::corrupt_file,
                 {"more.gz", "something else follows its data"});
}

TEST_F(CorpusTest, ParallelFiles) {
  const ParallelCorpus corpus =
      read_sides(std::vector<std::string>{write("s", "eins\n\n \t\ndrei\nvier\n"),
                                          write_gzip("t.gz", "one\ntwo\nx\nthree\n\xe3\x80\x80")});
  EXPECT_EQ(corpus.source, (Lines{"eins", "drei"}));
  EXPECT_EQ(corpus.target, (Lines{"one", "three"}));
  EXPECT_EQ(corpus.line, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(corpus.report.lines, 5);
  EXPECT_EQ(corpus.report.pairs, 2);
  EXPECT_EQ(corpus.report.dropped_empty, 3);
  EXPECT_EQ(corpus.report.dropped_long, 0);
  const std::string same = write("same", "a\nb\n");
  EXPECT_EQ(read_sides(std::vector<std::string>{same, same}).report.pairs, 2);
}

TEST_F(CorpusTest, DifferingLineCountsNameBoth) {
  const std::string two = write("two", "a\nb\n"), four = write("four", "a\nb\nc\nd");
  expect_error(
      [&] {
        read_sides(std::vector<std::string>{two, four});
      },
      ErrorCode::invalid_argument, {"two has 2 lines", "four has 4"});
  expect_error(
      [&] {
        read_sides(std::vector<std::string>{four, two});
      },
      ErrorCode::invalid_argument, {"four has 4 lines", "two has 2"});
  const std::string empty = write("empty", "");
  expect_error(
      [&] {
        read_sides(std::vector<std::string>{two, empty});
      },
      ErrorCode::invalid_argument, {"empty has 0"});
  expect_error([&] { make_parallel({"a"}, {}); }, ErrorCode::invalid_argument,
               {"1 source", "0 target"});
}

TEST_F(CorpusTest, LinesInMemoryHaveTheFingerprintOfTheirFiles) {
  const std::string source = write("source", "a\nb\n"), target = write("target", "c\nd\n");
  EXPECT_EQ(make_parallel({"a", "b"}, {"c", "d"}).fingerprint,
            read_sides(std::vector<std::string>{source, target}).fingerprint);
}

TEST_F(CorpusTest, NothingToUse) {
  const std::string empty = write("empty", ""), blank = write("blank", "\n \n"),
                    two = write("two", "a\nb\n");
  expect_error(
      [&] {
        read_sides(std::vector<std::string>{empty, empty});
      },
      ErrorCode::invalid_argument, {"is empty (0 lines)"});
  expect_error(
      [&] {
        read_sides(std::vector<std::string>{blank, two});
      },
      ErrorCode::invalid_argument, {"no usable sentence pair", "2 lines"});
  expect_error([&] { read_columns(empty, CorpusForm::parallel); }, ErrorCode::invalid_argument,
               {"is empty"});
  expect_error([&] { make_parallel({}, {}); }, ErrorCode::invalid_argument, {"is empty"});
  expect_error(
      [&] {
        read_sides(std::vector<std::string>{"-", "-"});
      },
      ErrorCode::invalid_argument, {"standard input"});
}

TEST_F(CorpusTest, Tsv) {
  const ParallelCorpus corpus =
      read_columns(write("c.tsv", "eins\tone\r\n\ttwo\ndrei\tthree"), CorpusForm::parallel);
  EXPECT_EQ(corpus.source, (Lines{"eins", "drei"}));
  EXPECT_EQ(corpus.target, (Lines{"one", "three"}));
  EXPECT_EQ(corpus.report.dropped_empty, 1);
  const std::string none = write("none.tsv", "a\tb\nno tab\n");
  expect_error([&] { read_columns(none, CorpusForm::parallel); }, ErrorCode::invalid_argument,
               {"none.tsv:2", "0 tabs"});
  const std::string many = write("many.tsv", "a\tb\tc\td\n");
  expect_error([&] { read_columns(many, CorpusForm::parallel); }, ErrorCode::invalid_argument,
               {"many.tsv:1", "3 tabs"});
}

TEST_F(CorpusTest, FromMemory) {
  const ParallelCorpus corpus = make_parallel({"a", "", "c"}, {"x", "y", "z"});
  EXPECT_EQ(corpus.source, (Lines{"a", "c"}));
  EXPECT_EQ(corpus.line, (std::vector<int64_t>{1, 3}));
  expect_error(
      [&] {
        make_parallel({"a", "b"}, {"x", "\xff"});
      },
      ErrorCode::invalid_argument, {"target sentence 2", "byte 1"});
  expect_error([&] { make_parallel({std::string("a\0", 2)}, {"x"}); }, ErrorCode::invalid_argument,
               {"source sentence 1", "NUL"});
}

TEST_F(CorpusTest, StandardInput) {
  const std::string path = write("in", "a\tb\n");
  const int saved = dup(STDIN_FILENO);
  const int file = open(path.c_str(), O_RDONLY);
  dup2(file, STDIN_FILENO);
  const ParallelCorpus corpus = read_columns("-", CorpusForm::parallel);
  EXPECT_EQ(corpus.target, Lines{"b"});
  LineReader reader("-");
  std::string line;
  EXPECT_FALSE(reader.next(line));
  EXPECT_FALSE(reader.next(line));
  EXPECT_EQ(reader.name(), "standard input");
  close(file);
  dup2(saved, STDIN_FILENO);
  close(saved);
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c == 0xd800) c = 0xe000;
    std::string bytes;
    append_utf8(c, bytes);
    size_t position = 0;
    ASSERT_EQ(find_invalid_utf8(bytes), kValidUtf8);
    ASSERT_EQ(next_code_point(bytes, position), c);
    ASSERT_EQ(position, bytes.size());
  }
}

TEST(Utf8, IterationAndTruncation) {
  EXPECT_EQ(to_code_points("aä€🙂"), (std::vector<char32_t>{'a', 0xe4, 0x20ac, 0x1f642}));
  EXPECT_EQ(to_code_points("a\xff"
                           "b"),
            (std::vector<char32_t>{'a', 0xfffd, 'b'}));
  EXPECT_EQ(find_invalid_utf8("12345678\xff"), 8u);
  EXPECT_EQ(truncate_utf8("aä€", 6), "aä€");
  EXPECT_EQ(truncate_utf8("aä€", 5), "aä");
  EXPECT_EQ(truncate_utf8("aä€", 2), "a");
  EXPECT_EQ(truncate_utf8("€", 2), "");
  EXPECT_TRUE(is_unicode_space(0x3000));
  EXPECT_FALSE(is_unicode_space(0x200b));
}

TEST(Utf8, FaultsNameWhatTheFileIsOnItsFirstLineAlone) {
  EXPECT_EQ(text_fault("aä€", 1), "");
  EXPECT_EQ(text_fault("a\xff", 0), "invalid UTF-8 at byte 2 (0xff)");
  EXPECT_EQ(text_fault({"a\0", 2}, 0), "NUL byte at byte 2");
  // One byte tells no format.
  EXPECT_TRUE(contains(text_fault("\xff", 1), "(0xff); the file is not UTF-8"))
      << text_fault("\xff", 1);
  EXPECT_TRUE(contains(text_fault("\xff\xfe", 1), "it is UTF-16: iconv"));
  EXPECT_TRUE(contains(text_fault("\xff\xfe", 2), "the file is not UTF-8"));
  for (const std::string_view half : {std::string_view("\0a", 2), std::string_view("a\0", 2)}) {
    EXPECT_TRUE(contains(text_fault(half, 1), "may be UTF-16 without")) << text_fault(half, 1);
    EXPECT_FALSE(contains(text_fault(half, 2), "UTF")) << text_fault(half, 2);
  }
  EXPECT_EQ(text_fault(std::string_view("\0\0", 2), 1), "NUL byte at byte 1");
}

TEST(Utf8, ACharacterThatTheEndCutsIsInvalid) {
  const std::string text = "aä€🙂";  // characters begin at 0, 1, 3 and 6
  const size_t begins[] = {0, 0, 1, 1, 3, 3, 3, 6, 6, 6, 6};
  for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
    const bool whole = bytes == 0 || bytes == 1 || bytes == 3 || bytes == 6 || bytes == 10;
    const size_t expected = whole ? kValidUtf8 : begins[bytes];
    EXPECT_EQ(find_invalid_utf8(std::string_view(text).substr(0, bytes)), expected) << bytes;
  }
}

// The text ends where readable memory ends.
TEST(Utf8, ReadsNothingBehindTheText) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
  for (const std::string text : {"abcdefghij", "abcdefghä", "abc", "€", "🙂", "\xf0\x9f", ""}) {
    char* start = static_cast<char*>(pages) + page - text.size();
    text.copy(start, text.size());
    for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
      const std::string_view end(start + text.size() - bytes, bytes);
      EXPECT_EQ(find_invalid_utf8(end), find_invalid_utf8(std::string(end))) << text;
      EXPECT_EQ(to_code_points(end), to_code_points(std::string(end))) << text;
      EXPECT_EQ(truncate_utf8(end, bytes), truncate_utf8(std::string(end), bytes)) << text;
    }
  }
  munmap(pages, 2 * page);
}

}  // namespace
}  // namespace trafo
