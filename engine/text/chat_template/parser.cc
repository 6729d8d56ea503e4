#include <algorithm>
#include <array>
#include <initializer_list>

#include "engine/core/strings/quote.h"
#include "engine/text/chat_template/expression_parser.h"
#include "engine/text/chat_template/syntax.h"

namespace trafo::jinja {
namespace {

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, std::string_view label, const TemplateBounds& bounds)
      : tokens_(std::move(tokens), label),
        expressions_(tokens_, bounds.nesting),
        nesting_(bounds.nesting / 4) {}

  Syntax parse() {
    Syntax syntax;
    syntax.body = parse_block({});
    syntax.marks_generation = marks_generation_;
    return syntax;
  }

 private:
  using Kind = Statement::Kind;

  Statement make(Kind kind, int line) const { return Statement{.kind = kind, .line = line}; }

  // The statements up to a tag with one of these names, whose name is taken, or to the end.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    if (++depth_ > nesting_) tokens_.refuse("tags are nested too deeply");
    Block block;
    while (true) {
      const Token token = tokens_.take();
      if (token.kind == TokenKind::end) {
        if (ends.size() == 0) break;
        tokens_.refuse(concat("the tag ", quote(*(ends.end() - 1)), " is missing"));
      }
      if (token.kind == TokenKind::text) {
        block.push_back(make(Kind::text, token.line));
        block.back().text = token.text;
      } else if (token.kind == TokenKind::output_begin) {
        block.push_back(make(Kind::output, token.line));
        block.back().expression = expressions_.parse_tuple();
        expect_end(TokenKind::output_end, "}}");
      } else {
        const Token& name = tokens_.current();
        if (std::ranges::any_of(ends, [&](auto end) { return name.is_name(end); })) {
          end_ = tokens_.take().text;
          break;
        }
        block.push_back(parse_tag());
      }
    }
    --depth_;
    return block;
  }

  void expect_end(TokenKind kind, std::string_view spelled) {
    if (tokens_.current().kind != kind) tokens_.unexpected(spelled);
    tokens_.take();
  }
  void end_tag() { expect_end(TokenKind::tag_end, "%}"); }

  Statement parse_tag() {
    const int line = tokens_.line();
    const std::string name = tokens_.expect_name("the name of a tag");
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "generation") return parse_generation(line);
    if (name == "break" || name == "continue") return parse_leave(name, line);
    static constexpr auto kOthers = std::to_array<std::string_view>(
        {"elif", "else", "endif", "endfor", "endset", "endmacro", "endgeneration"});
    if (std::ranges::find(kOthers, name) != kOthers.end())
      tokens_.refuse(concat("the tag ", quote(name), " belongs to no other"));
    tokens_.unsupported(concat("the tag ", quote(name), " is not supported"));
  }

  Statement parse_if(int line) {
    Statement branch = make(Kind::branch, line);
    ExpressionRef condition = expressions_.parse_plain();
    while (true) {
      end_tag();
      Block body = parse_block({"elif", "else", "endif"});
      branch.branches.emplace_back(std::move(condition), std::move(body));
      if (end_ != "elif") break;
      condition = expressions_.parse_plain();
    }
    if (end_ == "else") {
      end_tag();
      branch.otherwise = parse_block({"endif"});
    }
    end_tag();
    return branch;
  }

  Statement parse_for(int line) {
    Statement loop = make(Kind::loop, line);
    loop.target = parse_target(false);
    if (!tokens_.skip_name("in")) tokens_.unexpected("in");
    loop.expression = expressions_.parse_plain();
    if (tokens_.skip_name("if")) loop.condition = expressions_.parse();
    if (tokens_.current().is_name("recursive"))
      tokens_.unsupported("recursive loops are not supported");
    end_tag();
    ++loops_;
    loop.body = parse_block({"else", "endfor"});
    --loops_;
    if (end_ == "else") {
      end_tag();
      loop.otherwise = parse_block({"endfor"});
    }
    end_tag();
    return loop;
  }

  Target parse_target(bool member) {
    Target target;
    const bool brackets = tokens_.skip_symbol("(");
    target.names.push_back(tokens_.expect_name("a name"));
    if (member && tokens_.skip_symbol(".")) {
      target.member = tokens_.expect_name("the name of a member");
      return target;
    }
    while (tokens_.skip_symbol(",")) {
      target.unpacks = true;
      if (tokens_.current().kind == TokenKind::name && !tokens_.current().is_name("in"))
        target.names.push_back(tokens_.take().text);
      else if (member && !brackets)
        tokens_.unexpected("a name");
    }
    if (brackets) tokens_.expect_symbol(")");
    if ((!member || loops_ > 0) && std::ranges::find(target.names, "loop") != target.names.end())
      tokens_.refuse("loop cannot be set in a loop");
    constexpr std::string_view kWords[] = {"true", "false", "none", "True", "False", "None"};
    for (const std::string& name : target.names)
      if (std::ranges::find(kWords, name) != std::end(kWords))
        tokens_.refuse(concat(name, " cannot be set"));
    return target;
  }

  Statement parse_set(int line) {
    Statement set = make(Kind::assignment, line);
    set.target = parse_target(true);
    if (tokens_.skip_symbol("=")) {
      set.expression = expressions_.parse_tuple();
      end_tag();
      return set;
    }
    set.kind = Kind::block_set;
    if (set.target.unpacks) tokens_.unexpected("=");
    ExpressionRef body =
        std::make_unique<Expression>(Expression{.kind = Expression::Kind::name, .line = line});
    set.expression = expressions_.parse_filters(std::move(body));
    end_tag();
    ++inside_;
    set.body = parse_loopless({"endset"});
    --inside_;
    end_tag();
    return set;
  }

  // Statements of another scope: break and continue do not leave it.
  Block parse_loopless(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loops_, 0);
    Block body = parse_block(ends);
    loops_ = loops;
    return body;
  }

  Statement parse_macro(int line) {
    Statement macro = make(Kind::macro, line);
    macro.text = tokens_.expect_name("the name of a macro");
    if (loops_ > 0 || inside_ > 0)
      tokens_.unsupported("macros inside of loops, macros and block sets are not supported");
    tokens_.expect_symbol("(");
    while (!tokens_.current().is_symbol(")")) {
      macro.target.names.push_back(tokens_.expect_name("a parameter"));
      const bool has_default = tokens_.skip_symbol("=");
      if (!has_default && !macro.defaults.empty() && macro.defaults.back())
        tokens_.refuse("a parameter without a default follows one with a default");
      macro.defaults.push_back(has_default ? expressions_.parse() : nullptr);
      if (macro.defaults.size() > kMostArguments)
        tokens_.refuse(concat("a macro has more than ", kMostArguments, " parameters"));
      if (!tokens_.skip_symbol(",")) break;
    }
    tokens_.expect_symbol(")");
    end_tag();
    ++inside_;
    macro.body = parse_loopless({"endmacro"});
    --inside_;
    if (tokens_.current().kind == TokenKind::name) tokens_.take();  // {% endmacro NAME %}
    end_tag();
    return macro;
  }

  Statement parse_generation(int line) {
    if (inside_ > 0)
      tokens_.unsupported("the tag 'generation' inside of macros, block sets and other such tags");
    Statement generation = make(Kind::generation, line);
    marks_generation_ = true;
    end_tag();
    ++inside_;
    generation.body = parse_loopless({"endgeneration"});
    --inside_;
    end_tag();
    return generation;
  }

  Statement parse_leave(const std::string& name, int line) {
    if (loops_ == 0) tokens_.refuse(concat("the tag ", quote(name), " is outside of a loop"));
    end_tag();
    return make(name == "break" ? Kind::leave_loop : Kind::next_element, line);
  }

  TokenReader tokens_;
  ExpressionParser expressions_;
  const int nesting_;
  std::string end_;  // the name of the tag that ended the last block
  int depth_ = 0, loops_ = 0;
  int inside_ = 0;  // macros, block sets and generation blocks
  bool marks_generation_ = false;
};

}  // namespace

Syntax parse_template(std::string_view source, std::string_view label,
                      const TemplateBounds& bounds) {
  if (source.size() > bounds.source_bytes)
    fail_template(ErrorCode::corrupt_file, label, 1,
                  concat("the template has more than ", bounds.source_bytes, " bytes"));
  return StatementParser(read_tokens(source, label), label, bounds).parse();
}

}  // namespace trafo::jinja
