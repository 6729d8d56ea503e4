// Output on a terminal, and without one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "apps/translate-train/text/terminal_text.h"
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

TEST(TerminalText, WritesControlCharactersOut) {
  EXPECT_EQ(terminal_text("der Hund l\u00e4uft \u4e2d \U0001F600"),
            "der Hund l\u00e4uft \u4e2d \U0001F600");
  EXPECT_EQ(terminal_text("a\x1b[31mb\nc\td\x7f"), "a\\u001B[31mb\\u000Ac\\u0009d\\u007F");
  EXPECT_EQ(terminal_text("\u0085\u009b1m"), "\\u0085\\u009B1m");
  EXPECT_EQ(terminal_text("a\u202eb\u2066c\u200f\u061c\u2028"),
            "a\\u202Eb\\u2066c\\u200F\\u061C\\u2028");
  EXPECT_EQ(terminal_text("a\xff\xc3"), "a\\u00FF\\u00C3");
  EXPECT_EQ(terminal_text(std::string_view("\0", 1)), "\\u0000");
}

using Terminal = Cli;

TEST_F(Terminal, ErrorsHoldNoControlCharacters) {
  write_file(file("bad.yml"), "\"\\e[31mred\\u202E\": 1\n");
  for (const Arguments& arguments :
       {Arguments{"train", "--config", "bad.yml"}, Arguments{"info", "no\x1b[2Jfile\nforged"},
        Arguments{"translate", "--model", "run", "-i", "no\u009b2Jfile\u202e"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_NE(outcome.exit_code, 0);
    for (const char* steering : {"\x1b", "\u202e", "\u009b", "\nforged"})
      EXPECT_EQ(outcome.err.find(steering), std::string::npos) << outcome.err;
  }
}

TEST_F(Terminal, WhatInfoShowsHoldsNoControlCharacters) {
  copy_of_run("odd");
  write_file(file("odd/latest"), "\x1b[2J20\u202e\n");
  write_file(file("odd/best-\x1b[31m\u009b1m"), "20\r\x07\n");
  const Outcome outcome = run({"info", "odd"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("best-\\u001B[31m"), std::string::npos) << outcome.out;
  for (const char* steering : {"\x1b", "\u202e", "\u009b", "\r", "\x07"})
    EXPECT_EQ((outcome.out + outcome.err).find(steering), std::string::npos) << outcome.out;
}

// A pipe gets control characters unchanged, a terminal does not.
TEST_F(Terminal, TextOnATerminalIsWrittenOut) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(other_end, 0);
  write_file(file("odd.yml"), "train-sets: [t.de, t.en]\nmodel: \"a\\e[31m\\u202E\"\n");
  const std::string command = "cd '" + folder_->path() +
                              "' && '" TRANSLATE_TRAIN "' train --config odd.yml --dump-config > ";
  EXPECT_EQ(std::system((command + ptsname(terminal)).c_str()), 0);
  std::string shown(1 << 12, '\0');
  const ssize_t bytes = read(terminal, shown.data(), shown.size());
  ASSERT_GT(bytes, 0);
  shown.resize(static_cast<size_t>(bytes));
  close(other_end);
  close(terminal);
  for (const char* steering : {"\x1b", "\u202e"})
    EXPECT_EQ(shown.find(steering), std::string::npos) << shown;
}

// The text that a program shows on a terminal of 80 columns while it runs.
std::string shown_on_terminal(const std::string& command) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  const std::string path = ptsname(terminal);
  std::atomic<bool> ended = false;
  std::thread program([&] {
    EXPECT_EQ(std::system((command + " 2> " + path).c_str()), 0);
    ended = true;
  });
  std::string shown, part(1 << 12, '\0');
  for (bool last = false; !last;) {
    last = ended;  // what came before is read once more
    pollfd wanted{terminal, POLLIN, 0};
    poll(&wanted, 1, 100);
    for (ssize_t bytes; (bytes = read(terminal, part.data(), part.size())) > 0;)
      shown.append(part, 0, static_cast<size_t>(bytes));
  }
  program.join();
  close(other_end);
  close(terminal);
  return shown;
}

TEST_F(Terminal, TheLiveLineFits80Columns) {
  std::string command = "cd '" + folder_->path() + "' && '" TRANSLATE_TRAIN "'";
  for (const std::string& word : small("live", "20u")) command += " '" + word + "'";
  const std::string shown = shown_on_terminal(command);
  size_t whole = 0;
  for (size_t at = 0; (at = shown.find("\rEp ", at)) != std::string::npos; ++at) {
    const std::string line = shown.substr(at + 1, shown.find("\x1b[K", at) - at - 1);
    EXPECT_LT(line.size(), 80u) << line;
    EXPECT_NE(line.find(" tok/s  ETA "), std::string::npos) << line;
    whole += line.find("  best bleu ") != std::string::npos;
  }
  EXPECT_GT(whole, 0u) << shown;
}

// Descriptors 1 and 2 are free then, and the next files that are opened would get them.
TEST_F(Terminal, WarningsDoNotEndUpInTheOutput) {
  std::string too_long;  // cut, with a warning
  for (int i = 0; i < 2000; ++i) too_long += "ein Hund ";
  write_file(file("in.de"), "ein Hund\n" + too_long + "\nein Haus\n");
  const std::string command = "cd '" + folder_->path() +
                              "' && '" TRANSLATE_TRAIN
                              "' translate --model run --cpu-threads 1 -i in.de -o ";
  EXPECT_EQ(std::system((command + "open.en 2> /dev/null").c_str()), 0);
  std::system((command + "closed.en >&- 2>&-").c_str());
  const auto content = [](const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_FALSE(content(file("open.en")).empty());
  EXPECT_EQ(content(file("closed.en")), content(file("open.en")));
}

}  // namespace
}  // namespace translate_train::testing
