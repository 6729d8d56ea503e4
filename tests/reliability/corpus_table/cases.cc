#include "tests/reliability/corpus_table/cases.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/gzip.h"

namespace trafo::corpus_table {
namespace {

namespace fs = std::filesystem;
const std::string kMegabyte(size_t{1} << 20, 'x');

Case taken(std::string title, std::string outcome, Form form, std::string source,
           std::string target, int64_t pairs, int64_t dropped = 0) {
  Case c{std::move(title), std::move(outcome), form, std::move(source), std::move(target)};
  c.pairs = pairs;
  c.dropped = dropped;
  return c;
}

Case refused(std::string title, std::string message, Form form, std::string source,
             std::string target = "") {
  Case c{std::move(title), "refused: `" + message + "`", form, std::move(source),
         std::move(target)};
  c.refused = std::move(message);
  return c;
}

// One line of `bytes` after a good one.
Case bad_bytes(std::string title, const std::string& bytes, const std::string& message) {
  return refused(std::move(title), message, Form::mono, "good\n" + bytes + "\n");
}

Case zipped(Case c) {
  c.gzip = true;
  return c;
}

Case made(Case c, std::function<void(const std::string&, const std::string&)> make) {
  c.make = std::move(make);
  return c;
}

void add_text(std::vector<Case>& all) {
  using enum Form;
  all.push_back(taken("two files, line by line", "taken", pair, "a\nb\n", "A\nB\n", 2));
  all.push_back(taken("no end of line at the end of the file", "taken: the last line counts", pair,
                      "a\nb", "A\nB\n", 2));
  all.push_back(
      taken("lines that end in CR LF", "taken, without the CR", pair, "a\r\nb\r\n", "A\nB\n", 2));
  all.push_back(taken("a CR inside a line", "taken: it is text", mono, "a\rb\n", "", 1));
  all.push_back(taken("a byte order mark at the start", "taken, without the mark", mono,
                      "\xef\xbb\xbf"
                      "a\n",
                      "", 1));
  all.push_back(taken("a byte order mark elsewhere", "taken: it is text", mono,
                      "a\n\xef\xbb\xbf"
                      "b\n",
                      "", 2));
  all.push_back(
      taken("a tab in a line of two files", "taken: it is text", pair, "a\tb\n", "A\n", 1));
  all.push_back(taken("noncharacters, private use, emoji joined of several", "taken", mono,
                      "\xef\xbf\xbf \xee\x80\x80 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\n",
                      "", 1));
  all.push_back(
      taken("the same file on both sides", "taken: a copying task", pair, "a\nb\n", "", 2));
  all.back().same_file = true;
  all.push_back(taken("a single pair", "taken", pair, "a\n", "A\n", 1));
  all.push_back(taken("a line of exactly 1 MiB", "taken", mono, kMegabyte + "\n", "", 1));
  all.push_back(taken("an empty line on one side", "the pair is left out and counted", pair,
                      "a\n\nc\n", "A\nB\nC\n", 2, 1));
  all.push_back(taken("a line of white space (of any script)", "the pair is left out and counted",
                      pair, "a\n \xe3\x80\x80\t\nc\n", "A\nB\nC\n", 2, 1));
  all.push_back(taken("empty lines in text of one side", "left out and counted", mono, "a\n\n\nb\n",
                      "", 2, 2));
  all.push_back(refused("an empty file", "is empty (0 lines)", mono, ""));
  all.push_back(refused("two empty files", "is empty (0 lines)", pair, "", ""));
  all.push_back(
      refused("one of two files is empty", "the two sides differ in length", pair, "", "A\n"));
  all.push_back(refused("nothing but empty lines",
                        "no usable sentence pair: each of the 2 lines has an empty side", pair,
                        "\n\n", "\n\n"));
  all.push_back(refused("the source has more lines", "the two sides differ in length", pair,
                        "a\nb\nc\n", "A\nB\n"));
  all.push_back(refused("the target has more lines", "the two sides differ in length", pair,
                        "a\nb\n", "A\nB\nC\n"));
  all.push_back(refused("a line over 1 MiB", ":2: the line is longer than 1048576 bytes", mono,
                        "a\n" + kMegabyte + "x\n"));
  all.push_back(refused("3 MiB without an end of line", ":1: the line is longer than 1048576 bytes",
                        mono, kMegabyte + kMegabyte + kMegabyte));
  all.push_back(refused("a fault on both sides", ":2: NUL byte", pair, "a\nb\n\xff\n",
                        std::string("A\nB\0\nC\n", 7)));
}

void add_bytes(std::vector<Case>& all) {
  all.push_back(
      bad_bytes("a continuation byte alone", "b\x80", ":2: invalid UTF-8 at byte 2 (0x80)"));
  all.push_back(
      bad_bytes("an overlong form of two bytes", "\xc0\xaf", ":2: invalid UTF-8 at byte 1 (0xc0)"));
  all.push_back(bad_bytes("an overlong form of three bytes", "\xe0\x80\xaf",
                          ":2: invalid UTF-8 at byte 1 (0xe0)"));
  all.push_back(bad_bytes("an overlong form of four bytes", "\xf0\x80\x80\xaf",
                          ":2: invalid UTF-8 at byte 1 (0xf0)"));
  all.push_back(
      bad_bytes("half of a surrogate pair", "\xed\xa0\x80", ":2: invalid UTF-8 at byte 1 (0xed)"));
  all.push_back(bad_bytes("a number above U+10FFFF", "\xf4\x90\x80\x80",
                          ":2: invalid UTF-8 at byte 1 (0xf4)"));
  all.push_back(
      bad_bytes("a byte that no UTF-8 has", "\xf8", ":2: invalid UTF-8 at byte 1 (0xf8)"));
  all.push_back(bad_bytes("a character cut short at the end of its line", "b\xe2\x82",
                          ":2: invalid UTF-8 at byte 2 (0xe2)"));
  all.push_back(bad_bytes("Latin-1",
                          "Stra\xdf"
                          "e",
                          ":2: invalid UTF-8 at byte 5 (0xdf); the file is not UTF-8: if it is "
                          "Latin-1, iconv -f WINDOWS-1252 -t UTF-8 converts it"));
  all.push_back(bad_bytes("a NUL byte", std::string("b\0c", 3), ":2: NUL byte at byte 2"));
  all.push_back(refused("a character cut short at the end of the file",
                        ":2: invalid UTF-8 at byte 1 (0xc3)", Form::mono, "a\n\xc3"));
  all.push_back(refused("UTF-16", ":1: invalid UTF-8 at byte 1 (0xff)", Form::mono,
                        std::string("\xff\xfe"
                                    "a\0\n\0",
                                    6)));
}

void add_tsv(std::vector<Case>& all) {
  using enum Form;
  all.push_back(taken("a line with one tab", "taken", tsv, "a\tA\nb\tB", "", 2));
  all.push_back(taken("TSV with an empty side", "the pair is left out and counted", tsv,
                      "a\tA\n\tB\nc\t\n", "", 1, 2));
  all.push_back(taken("TSV that ends in CR LF", "taken, without the CR", tsv, "a\tA\r\n", "", 1));
  all.push_back(refused("TSV, a line without a tab", ":2: 0 tabs, a line must have exactly one",
                        tsv, "a\tA\nb\n"));
  all.push_back(refused("TSV, a line with two tabs", ":2: 2 tabs, a line must have exactly one",
                        tsv, "a\tA\nb\tB\tx\n"));
  all.push_back(
      refused("TSV, an empty line", ":2: 0 tabs, a line must have exactly one", tsv, "a\tA\n\n"));
}

void add_gzip(std::vector<Case>& all) {
  using enum Form;
  const std::string good = gzip_of("a\nb\n");
  std::string flipped = good, long_text;
  flipped[good.size() - 6] = static_cast<char>(flipped[good.size() - 6] ^ 1);  // of the checksum
  for (int i = 0; i < 1000; ++i) long_text += std::to_string(i * 7919) + "\n";
  const std::string long_gzip = gzip_of(long_text);
  all.push_back(zipped(taken("gzip", "taken", mono, good, "", 2)));
  all.push_back(zipped(taken("gzip, several files joined", "taken, one after the other", mono,
                             good + gzip_of("c\n"), "", 3)));
  all.push_back(zipped(taken("gzip with zeros after it", "taken, without the zeros", mono,
                             good + std::string(512, '\0'), "", 2)));
  all.push_back(zipped(refused("gzip with something else after it",
                               "the gzip file is damaged: something else follows its data", mono,
                               good + "garbage")));
  all.push_back(zipped(refused("gzip, cut short", "the gzip file is truncated", mono,
                               long_gzip.substr(0, long_gzip.size() / 2))));
  all.push_back(zipped(refused("gzip, cut short in its checksum", "the gzip file is truncated",
                               mono, good.substr(0, good.size() - 3))));
  all.push_back(zipped(refused("gzip, a flipped bit", "the gzip file is damaged", mono, flipped)));
  all.push_back(zipped(
      refused("a text that is named .gz", "is named .gz but holds no gzip data", mono, "a\nb\n")));
  all.push_back(zipped(
      refused("an empty file that is named .gz", "is named .gz but holds no gzip data", mono, "")));
  all.push_back(zipped(refused("gzip of a text with a fault", ":2: invalid UTF-8 at byte 1 (0xff)",
                               mono, gzip_of("a\n\xff\n"))));
  all.push_back(taken("gzip without .gz in its name", "taken", mono, good, "", 2));
}

void add_files(std::vector<Case>& all) {
  using enum Form;
  all.push_back(
      made(refused("a directory", "is a directory", mono, ""),
           [](const std::string& path, const std::string&) { fs::create_directory(path); }));
  all.push_back(made(refused("no such file", "No such file or directory", mono, ""),
                     [](const std::string&, const std::string&) {}));
  all.push_back(made(refused("a symbolic link to nothing", "No such file or directory", mono, ""),
                     [](const std::string& path, const std::string&) {
                       fs::create_symlink(path + "-none", path);
                     }));
  all.push_back(made(taken("a symbolic link to a file", "taken", mono, "", "", 1),
                     [](const std::string& path, const std::string&) {
                       if (FILE* file = std::fopen((path + "-real").c_str(), "w")) {
                         std::fputs("a\n", file);
                         std::fclose(file);
                       }
                       fs::create_symlink(path + "-real", path);
                     }));
  all.push_back(made(
      refused("a file that may not be opened (here: a socket)", "cannot be opened: ", mono, ""),
      [](const std::string& path, const std::string&) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
          std::abort();
        close(fd);
      }));
  all.back().status = 1;
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> all;
  add_text(all);
  add_bytes(all);
  add_tsv(all);
  add_gzip(all);
  add_files(all);
  return all;
}

}  // namespace trafo::corpus_table
