#!/usr/bin/env python3
"""definitions.py finds texts by their tokens and the definitions around them."""

import unittest

import definitions

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


if __name__ == "__main__":
    unittest.main()
