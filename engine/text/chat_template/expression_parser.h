// Expressions from tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_template/lexer.h"
#include "engine/text/chat_template/syntax.h"

namespace trafo::jinja {

// Of a call, and parameters of a macro.
inline constexpr size_t kMostArguments = 255;

// The tokens that are left, with errors that name the line. Both parsers are made of it.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, std::string_view label)
      : tokens_(std::move(tokens)), label_(label) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  int line() const { return current().line; }
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  std::string expect_name(std::string_view what);
  [[noreturn]] void refuse(std::string_view message) const;  // CORRUPT_FILE
  [[noreturn]] void unsupported(std::string_view message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;
  std::string_view label() const { return label_; }

 private:
  std::vector<Token> tokens_;
  std::string_view label_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, int nesting) : tokens_(tokens), nesting_(nesting) {}

  ExpressionRef parse();        // without commas at the top
  ExpressionRef parse_tuple();  // with them
  // Without `x if y else z`, as the sequence of a for loop.
  ExpressionRef parse_plain();
  // The filters after a '|', on the value named "".
  ExpressionRef parse_filters(ExpressionRef input);

 private:
  using Kind = Expression::Kind;
  ExpressionRef make(Kind kind, int line) const;
  ExpressionRef closed(ExpressionRef node) const;  // sets its depth
  ExpressionRef binary(std::string symbol, ExpressionRef left, ExpressionRef right, int line) const;
  ExpressionRef parse_either();
  ExpressionRef parse_both();
  ExpressionRef parse_negation();
  ExpressionRef parse_comparison();
  ExpressionRef parse_sum();
  ExpressionRef parse_concat();
  ExpressionRef parse_product();
  ExpressionRef parse_power();
  ExpressionRef parse_unary(bool with_filters = true);
  ExpressionRef parse_primary();
  ExpressionRef parse_name();
  ExpressionRef parse_brackets();
  ExpressionRef parse_dict();
  ExpressionRef parse_postfix(ExpressionRef node);
  ExpressionRef parse_subscript(ExpressionRef node);
  ExpressionRef parse_call(ExpressionRef node);
  ExpressionRef parse_filter(ExpressionRef node);
  ExpressionRef parse_test(ExpressionRef node);
  void parse_arguments(Expression& call);

  TokenReader& tokens_;
  const int nesting_;
  int depth_ = 0;
};

}  // namespace trafo::jinja
