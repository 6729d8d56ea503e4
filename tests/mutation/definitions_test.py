#!/usr/bin/env python3
"""definitions.py finds texts by their tokens and the definitions around them; generated.py makes mutations of them."""

import unittest

import definitions
import generated

SOURCE = r'''
#include <vector>
namespace trafo::io {
namespace {
constexpr int kLimit = 3;   // not kLimit = 4
struct Entry { int64_t size = 0; bool operator==(const Entry&) const = default; };
TRAFO_MACRO(name, Type)
template <typename T, int N = 4>
auto sum(std::vector<T> x, int y = {}) -> decltype(x[0]) {
  const auto f = [&](int z) { return z < 1'000 ? "a" "b" : "c"; };
  return f(y) + (x.empty() ? 1 : 2);
}
}  // namespace
#if SOMETHING
void Reader::open(int at) {
#else
void Reader::open() {
#endif
  at_ = 1; /* at_ = 2; */
}
Reader::Reader(Path path) : path_{std::move(path)}, size_(0) { open(); }
Reader::~Reader() { close(); }
bool Reader::operator()(int x) const noexcept { return x; }
class Writer : public Sink {
 public:
  explicit Writer(int fd) noexcept : Sink{fd} {}
  std::function<void(int)> call_ = [](int) { ignore(); };
};
}  // namespace trafo::io
'''


class DefinitionsTest(unittest.TestCase):
    def setUp(self):
        self.tokens = definitions.tokens_of(SOURCE)
        self.definitions = definitions.definitions(self.tokens)

    def owners(self, text):
        """The innermost definition around each occurrence of `text`."""
        wanted = [token for token, _, _ in definitions.tokens_of(text)]
        found = []
        for at in definitions.occurrences([token for token, _, _ in self.tokens], wanted):
            around = [(end - begin, name) for name, begin, end in self.definitions if begin <= at < end]
            found.append("::".join(min(around)[1]))
        return found

    def test_definitions(self):
        for text, owner in [("kLimit = 3", "kLimit"), ("size = 0", "Entry::size"), ("const Entry&", "Entry::operator=="),
                            ("f(y)  +(x.empty()", "sum"), ('z < 1\'000 ? "ab" :', "sum"), ("at_ = 1;", "Reader::open"),
                            ("std::move(path)", "Reader::Reader"), ("close()", "Reader::~Reader"), ("return x;", "Reader::operator()"),
                            ("Sink{fd}", "Writer::Writer"), ("ignore();", "Writer::call_")]:
            self.assertEqual(self.owners(text), ["trafo::io::" + owner], text)

    def test_comments_and_parts_of_tokens_are_not_found(self):
        for text in ["kLimit = 4", "at_ = 2", "kLim", "at_ =="]:
            self.assertEqual(self.owners(text), [], text)

    def test_positions_are_those_of_the_text(self):
        for token, begin, end in self.tokens:
            if token[0] not in '"#':
                self.assertEqual(SOURCE[begin:end], token)


class GeneratedTest(unittest.TestCase):
    def made(self, source):
        tokens = definitions.tokens_of(source)
        found = []
        for _, begin, end in definitions.definitions(tokens):
            for operator, first, last, new in generated.of_function(tokens, begin, end):
                found.append((operator, source[tokens[first][1]:tokens[last - 1][2]], new))
        return found

    def test_operators(self):
        made = self.made("int f(int a, std::vector<int> b) {\n  require(a < 3, kCode, \"at most \", 7);\n  if (a == b.size() + 2) return 1;\n"
                         "  b.clear();\n  a = 5;\n  return true ? a * 2 : 0;\n}\n")
        for expected in [("relation", "<", "<="), ("relation", "==", "!="), ("arithmetic", "+", "-"), ("arithmetic", "*", "/"),
                         ("neighbour", "2", "3"), ("neighbour", "2", "1"), ("neighbour", "0", "1"), ("constants", "true", "false"),
                         ("condition", "(a == b.size() + 2)", None), ("statement", "b.clear()", ""), ("statement", "a = 5", "")]:
            self.assertIn(expected, made)
        self.assertNotIn("7", [text for _, text, _ in made])  # a message
        self.assertEqual([text for operator, text, _ in made if operator == "relation"], ["<", "=="])  # no template

    def test_five_hundred_of_a_seed_are_always_the_same(self):
        first, second, other = (generated.chosen(500, seed) for seed in (1, 1, 2))
        self.assertEqual([str(each) for each in first], [str(each) for each in second])
        self.assertNotEqual([each.name for each in first], [each.name for each in other])
        self.assertEqual(len({each.name for each in first}), 500)
        self.assertEqual(len({each.operator for each in first}), 6)

    def test_survivors_are_explained(self):
        names = {each.name for each in generated.candidates()}
        for name, why in generated.survivors().items():
            self.assertIn(name, names, "there is no such mutation any more")
            self.assertGreater(len(why), 20, name)


if __name__ == "__main__":
    unittest.main()
