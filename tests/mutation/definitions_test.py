#!/usr/bin/env python3
"""definitions.py finds texts by their tokens and the definitions around them; mutation.py notices places without two forms."""

import unittest

import definitions
import mutation

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


class Forms(unittest.TestCase):
    """mutation.misshapen(): a place has two forms only where each is a whole expression or a whole statement."""

    def misshapen(self, part, wrong, before="("):
        return mutation.misshapen(mutation.words_of(part), mutation.words_of(wrong), before)

    def test_whole_ones(self):
        for part, wrong, before in [("a + b", "a", "("), ("-1", "+1", "="), ("f(x, [] { g(); })", "true", ","), ("c ? a : b", "b", "="),
                                    ("*p", "q", "return"), ("f(); g();", "", "{"), ("if (a) b();", "if (c) { b(); }", "}"), ("x = y;", "*z = 0;", ")"),
                                    ("return f(x);", "return 0;", "{"), ("x = a > b;", "x = a;", "{"), ("if (a) c(); else f(x);", "", "{")]:
            self.assertIsNone(self.misshapen(part, wrong, before), part)

    def test_parts(self):
        for part, wrong, before in [("+ 1", "", "x"), ("+ 1", "- 1", "x"), ("a &&", "", "("), ("a : b", "a : c", "?"), ("a, b", "a, c", "("),
                                    ("if (a &&", "if (", "{"), ("{a, b},", "{a, c},", "{"), ("g();", "", "+"), ("f();", "g()", "{"),
                                    ("std::vector<int> a = f(); g(a);", "g(b);", "{"), ("int a = 1;", "", ";"), ("f(a", "f(b", "("),
                                    ("const NoGrad no_grad(c);", "", ";"), ("const nn::Scope scope;", "", "{"),
                                    ("const std::lock_guard<std::mutex> lock(m);", "", ";")]:
            self.assertIsNotNone(self.misshapen(part, wrong, before), part)


if __name__ == "__main__":
    unittest.main()
