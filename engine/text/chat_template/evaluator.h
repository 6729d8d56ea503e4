// Runs a template.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/chat_template/jinja_template.h"
#include "engine/text/chat_template/syntax.h"

namespace trafo::jinja {

// The variables of a scope. The scope around it has the names that it lacks.
class Scope {
 public:
  explicit Scope(Scope* around) : around_(around) {}
  void set(std::string_view name, Value value, Budget& budget);
  // Null: neither this scope nor one around it has the name.
  const Value* find(std::string_view name, Budget& budget) const;

 private:
  Scope* around_;
  std::vector<std::pair<std::string, Value>> values_;
};

class Evaluator {
 public:
  Evaluator(const TemplateBounds& bounds, std::string_view label, const std::optional<Day>& today);
  RenderedTemplate render(const Block& body, const Json& variables);

 private:
  enum class Flow { goes_on, leaves_loop, next_element };
  class Nesting;

  Flow run(const Block& block, Scope& scope, std::string& out);
  Flow run_statement(const Statement& statement, Scope& scope, std::string& out);
  Flow run_loop(const Statement& loop, Scope& scope, std::string& out);
  void run_block_set(const Statement& set, Scope& scope);
  void generate(const Statement& generation, Scope& scope, std::string& out);
  void assign(const Target& target, Value value, Scope& scope);
  void unpack(const Target& target, const Value& value, Scope& scope);
  void append(std::string_view text, std::string& out);

  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_name(const Expression& node, Scope& scope);
  Value evaluate_dict(const Expression& node, Scope& scope);
  Value evaluate_slice(const Expression& node, Scope& scope);
  Value evaluate_concat(const Expression& node, Scope& scope);
  bool evaluate_comparison(const Expression& node, Scope& scope);
  bool compares(std::string_view symbol, const Value& left, const Value& right);
  bool evaluate_test(const Expression& node, Scope& scope);
  std::vector<Value> evaluate_parts(const Expression& node, size_t first, Scope& scope);
  Arguments evaluate_arguments(const Expression& node, Scope& scope);
  Value call(const Expression& node, Scope& scope);
  Value call_macro(const Statement& macro, Arguments& arguments);
  Value call_function(std::string_view name, Arguments& arguments);
  Value make_range(Arguments& arguments);
  Value make_namespace(Arguments& arguments, bool mutable_one);

  Budget budget_;
  const std::optional<Day>& today_;
  Scope globals_{nullptr};
  Scope top_{&globals_};
  std::list<NamespaceData> namespaces_;
  std::vector<TextSpan> generated_;
  int running_ = 0;
};

}  // namespace trafo::jinja
