#include "engine/text/chat_template/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/core/strings/quote.h"

namespace trafo::jinja {

bool TokenReader::skip_symbol(std::string_view symbol) {
  const bool found = current().is_symbol(symbol);
  if (found) take();
  return found;
}

bool TokenReader::skip_name(std::string_view name) {
  const bool found = current().is_name(name);
  if (found) take();
  return found;
}

void TokenReader::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) unexpected(symbol);
}

std::string TokenReader::expect_name(std::string_view what) {
  if (current().kind != TokenKind::name) unexpected(what);
  return take().text;
}

void TokenReader::refuse(std::string_view message) const {
  fail_template(ErrorCode::corrupt_file, label_, line(), message);
}

void TokenReader::unsupported(std::string_view message) const {
  fail_template(ErrorCode::unsupported, label_, line(), message);
}

void TokenReader::unexpected(std::string_view wanted) const {
  const bool end = current().kind == TokenKind::end;
  refuse(concat("expected ", wanted, ", found ",
                end ? std::string("the end of the template") : quote(current().text)));
}

ExpressionRef ExpressionParser::make(Kind kind, int line) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = line});
}

ExpressionRef ExpressionParser::closed(ExpressionRef node) const {
  int inside = 0;
  for (const ExpressionRef& part : node->parts)
    if (part) inside = std::max(inside, part->depth);
  for (const auto& [name, part] : node->named) inside = std::max(inside, part->depth);
  node->depth = inside + 1;
  if (node->depth > nesting_)
    fail_template(ErrorCode::corrupt_file, tokens_.label(), node->line,
                  "an expression is nested too deeply");
  return node;
}

ExpressionRef ExpressionParser::binary(std::string symbol, ExpressionRef left, ExpressionRef right,
                                       int line) const {
  ExpressionRef node = make(Kind::binary, line);
  node->name = std::move(symbol);
  node->parts.push_back(std::move(left));
  node->parts.push_back(std::move(right));
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse() {
  // An expression in brackets takes the stack of several operands.
  if ((depth_ += 2) > nesting_) tokens_.refuse("an expression is nested too deeply");
  const int line = tokens_.line();
  ExpressionRef node = parse_either();
  while (tokens_.skip_name("if")) {
    ExpressionRef whole = make(Kind::conditional, line);
    whole->parts.push_back(std::move(node));
    whole->parts.push_back(parse_either());
    whole->parts.push_back(tokens_.skip_name("else") ? parse() : nullptr);
    node = closed(std::move(whole));
  }
  depth_ -= 2;
  return node;
}

ExpressionRef ExpressionParser::parse_plain() {
  const int line = tokens_.line();
  ExpressionRef first = parse_either();
  if (!tokens_.current().is_symbol(",")) return first;
  ExpressionRef node = make(Kind::tuple, line);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_symbol(",")) node->parts.push_back(parse_either());
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse_tuple() {
  const int line = tokens_.line();
  ExpressionRef first = parse();
  if (!tokens_.current().is_symbol(",")) return first;
  ExpressionRef node = make(Kind::tuple, line);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_symbol(",")) {
    const Token& next = tokens_.current();
    if (next.is_symbol(")") || next.kind == TokenKind::tag_end ||
        next.kind == TokenKind::output_end)
      break;
    node->parts.push_back(parse());
  }
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse_either() {
  ExpressionRef left = parse_both();
  while (tokens_.current().is_name("or")) {
    ExpressionRef node = make(Kind::either, tokens_.take().line);
    node->parts.push_back(std::move(left));
    node->parts.push_back(parse_both());
    left = closed(std::move(node));
  }
  return left;
}

ExpressionRef ExpressionParser::parse_both() {
  ExpressionRef left = parse_negation();
  while (tokens_.current().is_name("and")) {
    ExpressionRef node = make(Kind::both, tokens_.take().line);
    node->parts.push_back(std::move(left));
    node->parts.push_back(parse_negation());
    left = closed(std::move(node));
  }
  return left;
}

ExpressionRef ExpressionParser::parse_negation() {
  if (!tokens_.current().is_name("not")) return parse_comparison();
  if (++depth_ > nesting_) tokens_.refuse("an expression is nested too deeply");
  ExpressionRef node = make(Kind::negation, tokens_.take().line);
  node->parts.push_back(parse_negation());
  --depth_;
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse_comparison() {
  static constexpr auto kSymbols =
      std::to_array<std::string_view>({"==", "!=", "<", "<=", ">", ">="});
  const int line = tokens_.line();
  ExpressionRef first = parse_sum();
  ExpressionRef node;
  while (true) {
    std::string symbol;
    const Token& token = tokens_.current();
    if (token.kind == TokenKind::symbol &&
        std::ranges::find(kSymbols, token.text) != kSymbols.end())
      symbol = tokens_.take().text;
    else if (tokens_.skip_name("in"))
      symbol = "in";
    else if (token.is_name("not") && tokens_.following().is_name("in"))
      symbol = "not in", tokens_.take(), tokens_.take();
    else
      break;
    if (!node) {
      node = make(Kind::comparison, line);
      node->parts.push_back(std::move(first));
    }
    node->operators.push_back(std::move(symbol));
    node->parts.push_back(parse_sum());
  }
  return node ? closed(std::move(node)) : std::move(first);
}

ExpressionRef ExpressionParser::parse_sum() {
  ExpressionRef left = parse_concat();
  while (tokens_.current().is_symbol("+") || tokens_.current().is_symbol("-")) {
    Token symbol = tokens_.take();
    left = binary(std::move(symbol.text), std::move(left), parse_concat(), symbol.line);
  }
  return left;
}

ExpressionRef ExpressionParser::parse_concat() {
  ExpressionRef first = parse_product();
  if (!tokens_.current().is_symbol("~")) return first;
  ExpressionRef node = make(Kind::concat, tokens_.line());
  node->parts.push_back(std::move(first));
  while (tokens_.skip_symbol("~")) node->parts.push_back(parse_product());
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse_product() {
  ExpressionRef left = parse_power();
  const auto is_product = [&](const Token& token) {
    return token.is_symbol("*") || token.is_symbol("/") || token.is_symbol("//") ||
           token.is_symbol("%");
  };
  while (is_product(tokens_.current())) {
    Token symbol = tokens_.take();
    left = binary(std::move(symbol.text), std::move(left), parse_power(), symbol.line);
  }
  return left;
}

ExpressionRef ExpressionParser::parse_power() {
  ExpressionRef left = parse_unary();
  while (tokens_.current().is_symbol("**")) {
    Token symbol = tokens_.take();
    left = binary(std::move(symbol.text), std::move(left), parse_unary(), symbol.line);
  }
  return left;
}

ExpressionRef ExpressionParser::parse_unary(bool with_filters) {
  if (++depth_ > nesting_) tokens_.refuse("an expression is nested too deeply");
  ExpressionRef node;
  const Token& token = tokens_.current();
  if (token.is_symbol("-") || token.is_symbol("+")) {
    const Token sign = tokens_.take();
    ExpressionRef operand = parse_unary(false);
    if (sign.text == "-") {
      node = make(Kind::negative, sign.line);
      node->parts.push_back(std::move(operand));
      node = closed(std::move(node));
    } else {  // operand - 0: makes integers of flags, and is refused of texts
      ExpressionRef zero = make(Kind::literal, sign.line);
      zero->value = int64_t{0};
      node = binary("-", std::move(operand), std::move(zero), sign.line);
    }
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  if (with_filters) node = parse_filters(std::move(node));
  --depth_;
  return node;
}

ExpressionRef ExpressionParser::parse_primary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  if (token.kind == TokenKind::name) return parse_name();
  if (token.kind == TokenKind::string) {
    std::string text;
    while (tokens_.current().kind == TokenKind::string) text += tokens_.take().text;
    ExpressionRef node = make(Kind::literal, line);
    node->value = std::move(text);
    return node;
  }
  if (token.kind == TokenKind::integer || token.kind == TokenKind::real) {
    const Token number = tokens_.take();
    ExpressionRef node = make(Kind::literal, line);
    const char* end = number.text.data() + number.text.size();
    const auto read = [&](auto value) {
      const auto result = std::from_chars(number.text.data(), end, value);
      if (result.ec != std::errc() || result.ptr != end)
        fail_template(ErrorCode::corrupt_file, tokens_.label(), line,
                      "a number is too large: " + quote(number.text));
      node->value = value;
    };
    number.kind == TokenKind::integer ? read(int64_t{0}) : read(double{0});
    return node;
  }
  if (token.is_symbol("(") || token.is_symbol("[")) return parse_brackets();
  if (token.is_symbol("{")) return parse_dict();
  tokens_.unexpected("an expression");
}

ExpressionRef ExpressionParser::parse_name() {
  Token token = tokens_.take();
  const std::string& name = token.text;
  ExpressionRef node = make(Kind::literal, token.line);
  if (name == "true" || name == "True")
    node->value = true;
  else if (name == "false" || name == "False")
    node->value = false;
  else if (name == "none" || name == "None")
    node->value = nullptr;
  else
    node->kind = Kind::name, node->name = std::move(token.text);
  return node;
}

// A list, a tuple or an expression in parentheses.
ExpressionRef ExpressionParser::parse_brackets() {
  const Token open = tokens_.take();
  const bool list = open.text == "[";
  const std::string_view close = list ? "]" : ")";
  ExpressionRef node = make(list ? Kind::list : Kind::tuple, open.line);
  bool comma = false;
  while (!tokens_.current().is_symbol(close)) {
    node->parts.push_back(parse());
    comma = tokens_.skip_symbol(",");
    if (!comma) break;
  }
  tokens_.expect_symbol(close);
  if (!list && !comma && node->parts.size() == 1) return std::move(node->parts[0]);
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse_dict() {
  ExpressionRef node = make(Kind::dict, tokens_.take().line);
  while (!tokens_.current().is_symbol("}")) {
    node->parts.push_back(parse());
    tokens_.expect_symbol(":");
    node->parts.push_back(parse());
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol("}");
  return closed(std::move(node));
}

ExpressionRef ExpressionParser::parse_postfix(ExpressionRef node) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.is_symbol(".") || token.is_symbol("["))
      node = parse_subscript(std::move(node));
    else if (token.is_symbol("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionRef ExpressionParser::parse_subscript(ExpressionRef node) {
  const Token open = tokens_.take();
  ExpressionRef whole = make(Kind::attribute, open.line);
  whole->parts.push_back(std::move(node));
  if (open.text == ".") {
    if (tokens_.current().kind == TokenKind::integer) {
      whole->kind = Kind::item;
      whole->parts.push_back(parse_primary());
    } else {
      whole->name = tokens_.expect_name("the name of a member");
    }
    return closed(std::move(whole));
  }
  whole->kind = Kind::item;
  const auto ends = [&] {
    return tokens_.current().is_symbol(":") || tokens_.current().is_symbol("]");
  };
  whole->parts.push_back(ends() ? nullptr : parse());
  while (tokens_.skip_symbol(":")) {
    whole->kind = Kind::slice;
    whole->parts.push_back(ends() ? nullptr : parse());
  }
  if (whole->kind == Kind::item && !whole->parts[1]) tokens_.unexpected("a subscript");
  if (whole->parts.size() > 4) tokens_.refuse("a slice has more than three parts");
  if (whole->kind == Kind::slice) whole->parts.resize(4);
  if (tokens_.current().is_symbol(",")) tokens_.unsupported("several subscripts are not supported");
  tokens_.expect_symbol("]");
  return closed(std::move(whole));
}

ExpressionRef ExpressionParser::parse_call(ExpressionRef node) {
  ExpressionRef call = make(Kind::call, tokens_.line());
  call->parts.push_back(std::move(node));
  parse_arguments(*call);
  return closed(std::move(call));
}

void ExpressionParser::parse_arguments(Expression& call) {
  tokens_.expect_symbol("(");
  while (!tokens_.current().is_symbol(")")) {
    if (tokens_.current().is_symbol("*") || tokens_.current().is_symbol("**"))
      tokens_.unsupported("arguments with * and ** are not supported");
    if (tokens_.current().kind == TokenKind::name && tokens_.following().is_symbol("=")) {
      std::string name = tokens_.take().text;
      tokens_.take();
      if (std::ranges::find(call.named, name, &decltype(call.named)::value_type::first) !=
          call.named.end())
        tokens_.refuse(concat("the argument ", quote(name), " is given twice"));
      call.named.emplace_back(std::move(name), parse());
    } else {
      if (!call.named.empty()) tokens_.refuse("an argument without a name follows one with a name");
      call.parts.push_back(parse());
    }
    if (call.parts.size() + call.named.size() > kMostArguments + 1)
      tokens_.refuse(concat("a call has more than ", kMostArguments, " arguments"));
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol(")");
}

ExpressionRef ExpressionParser::parse_filters(ExpressionRef node) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.is_symbol("|"))
      node = parse_filter(std::move(node));
    else if (token.is_name("is"))
      node = parse_test(std::move(node));
    else if (token.is_symbol("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionRef ExpressionParser::parse_filter(ExpressionRef node) {
  ExpressionRef whole = make(Kind::filter, tokens_.take().line);
  whole->name = tokens_.expect_name("the name of a filter");
  whole->filter = find_filter(whole->name);
  if (whole->filter == nullptr)
    tokens_.unsupported(concat("the filter ", quote(whole->name), " is not supported"));
  whole->parts.push_back(std::move(node));
  if (tokens_.current().is_symbol("(")) parse_arguments(*whole);
  return closed(std::move(whole));
}

ExpressionRef ExpressionParser::parse_test(ExpressionRef node) {
  ExpressionRef whole = make(Kind::test, tokens_.take().line);
  whole->negated = tokens_.skip_name("not");
  whole->name = tokens_.expect_name("the name of a test");
  whole->test = find_test(whole->name);
  if (whole->test == nullptr)
    tokens_.unsupported(concat("the test ", quote(whole->name), " is not supported"));
  whole->parts.push_back(std::move(node));
  const Token& next = tokens_.current();
  if (next.is_symbol("(")) {
    parse_arguments(*whole);
  } else if (next.kind == TokenKind::string || next.kind == TokenKind::integer ||
             next.kind == TokenKind::real || next.is_symbol("[") || next.is_symbol("{") ||
             (next.kind == TokenKind::name && !next.is_name("else") && !next.is_name("or") &&
              !next.is_name("and") && !next.is_name("if") && !next.is_name("is") &&
              !next.is_name("in") && !next.is_name("not"))) {
    whole->parts.push_back(parse_postfix(parse_primary()));
  }
  return closed(std::move(whole));
}

}  // namespace trafo::jinja
