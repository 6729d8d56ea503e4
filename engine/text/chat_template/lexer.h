// The tokens of a Jinja template, with trim_blocks and lstrip_blocks as transformers sets them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_template/budget.h"

namespace trafo::jinja {

enum class TokenKind {
  text,  // outside of tags, after white-space control
  output_begin,
  output_end,
  tag_begin,
  tag_end,
  name,
  string,  // without quotes, escapes decoded
  integer,
  real,
  symbol,
  end,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;

  bool is(TokenKind wanted, std::string_view spelled) const {
    return kind == wanted && text == spelled;
  }
  bool is_symbol(std::string_view spelled) const { return is(TokenKind::symbol, spelled); }
  bool is_name(std::string_view spelled) const { return is(TokenKind::name, spelled); }
};

// CORRUPT_FILE names the line.
std::vector<Token> read_tokens(std::string_view source, std::string_view label);

}  // namespace trafo::jinja
