#include "engine/text/pattern/pattern.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/errors.h"

namespace trafo {
namespace {

// The matches, in brackets.
std::string marked(std::string_view expression, std::string_view text) {
  std::vector<Pattern::Match> matches;
  Pattern(expression, "x").find_all(text, matches);
  std::string result;
  size_t from = 0;
  for (const Pattern::Match& match : matches) {
    result.append(text.substr(from, match.begin - from)) += '[';
    result.append(text.substr(match.begin, match.end - match.begin)) += ']';
    from = match.end;
  }
  return result.append(text.substr(from));
}

TEST(Pattern, MatchesTheFirstAlternativeThatFits) {
  EXPECT_EQ(marked("a|ab", "ab"), "[a]b");
  EXPECT_EQ(marked("ab|a", "aba"), "[ab][a]");
  EXPECT_EQ(marked("(?:a|ab)c", "abc"), "[abc]");
  EXPECT_EQ(marked("x|", "axb"), "[]a[x]b");
}

TEST(Pattern, RepeatsGreedilyLazilyAndPossessively) {
  EXPECT_EQ(marked("a+b", "aaab"), "[aaab]");
  EXPECT_EQ(marked("a+?", "aa"), "[a][a]");
  EXPECT_EQ(marked("(?:ab)*?c", "ababc"), "[ababc]");
  EXPECT_EQ(marked("a{2,3}", "aaaaa"), "[aaa][aa]");
  EXPECT_EQ(marked("a{,2}b", "aaab"), "a[aab]");
  EXPECT_EQ(marked("a*+ab", "aaab"), "aaab");
  EXPECT_EQ(marked("a?+ab", "ab aab"), "ab [aab]");
  EXPECT_EQ(marked("\\s+(?!\\S)", "  a   "), "[ ] a[   ]");
}

TEST(Pattern, KnowsClassesAndProperties) {
  EXPECT_EQ(marked("[^\\s\\p{L}]+", "a1! b"), "a[1!] b");
  EXPECT_EQ(marked("[\\p{L}&&[^a-c]]", "adé"), "a[d][é]");
  EXPECT_EQ(marked("\\P{L}", "aé1日"), "aé[1]日");
  EXPECT_EQ(marked("\\p{^Lu}", "Aa"), "A[a]");
  EXPECT_EQ(marked("[a\\-z]", "a-mz"), "[a][-]m[z]");
  EXPECT_EQ(marked("(?i:'s|'m)k", "'Sk 'ſK 'MK"), "['Sk] 'ſK 'MK");
  EXPECT_EQ(marked("(?i:'s)", "'ſ"), "['ſ]");
  EXPECT_EQ(marked("[\\x{4E00}-\\u9fff]", "a日"), "a[日]");
  EXPECT_EQ(marked("^a|b$", "ab\nab"), "[a][b]\n[a][b]");
  EXPECT_EQ(marked("\\Aa|b\\z", "ab\nab"), "[a]b\na[b]");
}

TEST(Pattern, RefusesWhatItDoesNotDo) {
  const auto expect = [](ErrorCode code, const char* expression, const char* why) {
    expect_error(code, std::string("x: the pattern '") + expression + "' has " + why,
                 [&] { Pattern(expression, "x"); });
  };
  for (const char* unsupported :
       {"(?<=a)b", "(?<!a)b", "(?>a)b", "(a)\\1", "\\bx", "(?i)a", "[[:alpha:]]", "\\p{Han}",
        "(?i:é)", "(?i:ss)", "(?:a|b)++", "(?:a?)*", "a{2}+", "(?=a)*", "a{2000}", "\\X"})
    expect(ErrorCode::unsupported, unsupported, "");
  expect(ErrorCode::unsupported, "\\p{Han}", "the property 'Han', which is not supported, at");
  for (const char* wrong :
       {"(a", "a)", "[a", "*a", "\\", "\\p{L", "[z-a]", "a{3,2}", "\\x{110000}"})
    expect(ErrorCode::corrupt_file, wrong, "");
  std::string deep(100, '('), large = "(?:";
  for (int i = 0; i < 5000; ++i) large += "ab|";
  expect_error(ErrorCode::corrupt_file, "groups inside each other", [&] { Pattern(deep, "x"); });
  expect_error(ErrorCode::unsupported, "x: the pattern is too large",
               [&] { Pattern(large + "c)", "x"); });
  expect_error(ErrorCode::unsupported, "x: the pattern is too large",
               [&] { Pattern("(?:(?:[a-z]{1000}){1000}){1000}", "x"); });
}

// Each of these takes a backtracking matcher without memory longer than the age of the universe,
// or a time of the square of the text.
TEST(Pattern, TakesBoundedTimeForHostilePatternsAndTexts) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string many(20000, 'a');
  EXPECT_EQ(marked("(?:a+)+b", many), many);
  EXPECT_EQ(marked("(?:a|a)+b", many), many);
  EXPECT_EQ(marked("(?:a|aa)+b", many), many);
  EXPECT_EQ(marked("a*a*a*a*b", many), many);
  EXPECT_EQ(marked("(?:a+?)+?b", many), many);
  EXPECT_EQ(marked("a++b", many), many);
  EXPECT_EQ(marked("(?:(?:a+)+)+(?=b)", many), many);
  EXPECT_EQ(marked("(?:a?){30}a{30}b", std::string(2000, 'a')), std::string(2000, 'a'));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 60);
  // More steps than the bound are an error.
  expect_error(ErrorCode::invalid_argument, "needs more than 4096 steps a byte",
               [&] { marked("(?:(?=a*)a)+b", many); });
}

}  // namespace
}  // namespace trafo
