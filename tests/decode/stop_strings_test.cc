// Stop strings in a text that comes in pieces: found whatever the pieces are.
#include "engine/decode/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/numeric/philox.h"

namespace trafo::testing {
namespace {

// By the definition: the stop string that is complete first, of several the longest.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops,
                        bool& found) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t begin = std::string::npos;
    for (const std::string& stop : stops)
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        begin = std::min(begin, end - stop.size());
    if (begin != std::string::npos) {
      found = true;
      return text.substr(0, begin);
    }
  }
  found = false;
  return text;
}

TEST(StopStrings, AreFoundWhereverPiecesEnd) {
  PhiloxStream random(9, 2);
  const auto any = [&](uint32_t below) { return random.next_u32() % below; };
  const auto word = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += static_cast<char>('a' + any(2));
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t i = any(3); i > 0; --i) stops.push_back(word(1 + any(5)));
    const std::string text = word(any(14));
    StopStrings stream(stops);
    std::string given;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(1 + any(4), text.size() - at);
      given += stream.push(std::string_view(text).substr(at, size));
      at += size;
      if (stream.stopped()) {
        EXPECT_EQ(stream.push("ab"), "");
      }
    }
    given += stream.finish();
    bool found = false;
    EXPECT_EQ(given, before_stop(text, stops, found));
    EXPECT_EQ(stream.stopped(), found);
    stopped += found ? 1 : 0;
  }
  EXPECT_GT(stopped, 300);
}

TEST(StopStrings, HoldBackNoMoreThanTheBeginningOfOne) {
  StopStrings stream({"\n\n", "END"});
  EXPECT_EQ(stream.push("a\n"), "a");
  EXPECT_EQ(stream.push("bEN"), "\nb");
  EXPECT_EQ(stream.push("E"), "EN");
  EXPECT_EQ(stream.push("NDx"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace trafo::testing
