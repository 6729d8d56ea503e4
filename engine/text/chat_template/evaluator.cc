#include "engine/text/chat_template/evaluator.h"

#include <algorithm>
#include <array>

#include "engine/core/strings/quote.h"

namespace trafo::jinja {
namespace {

constexpr auto kFunctions =
    std::to_array<std::string_view>({"range", "dict", "namespace", "raise_exception"});

constexpr const char* kToday = "strftime_now";

}  // namespace

void Scope::set(std::string_view name, Value value, Budget& budget) {
  if (Value* old = find_item(values_, name, budget)) {
    *old = std::move(value);
    return;
  }
  budget.spend_bytes(name.size());
  values_.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name, Budget& budget) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->around_)
    if (const Value* found = find_item(scope->values_, name, budget)) return found;
  return nullptr;
}

// One more node is evaluated inside of the others.
class Evaluator::Nesting {
 public:
  Nesting(Evaluator& evaluator, int line) : running_(evaluator.running_) {
    evaluator.budget_.at_line(line);
    evaluator.budget_.spend(1);
    if (++running_ > evaluator.budget_.bounds().running)
      evaluator.budget_.refuse("the template calls itself too often");
  }
  ~Nesting() { --running_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& running_;
};

Evaluator::Evaluator(const TemplateBounds& bounds, std::string_view label,
                     const std::optional<Day>& today)
    : budget_(bounds, label), today_(today) {
  const auto add = [&](std::string_view name) {
    globals_.set(name,
                 std::make_shared<const FunctionData>(FunctionData{.name = std::string(name)}),
                 budget_);
  };
  for (const std::string_view name : kFunctions) add(name);
  if (today) add(kToday);
}

RenderedTemplate Evaluator::render(const Block& body, const Json& variables) {
  if (const Json::Object* members = variables.as<Json::Object>())
    for (const Json::Member& member : *members)
      globals_.set(member.key, from_json(member.value, budget_), budget_);
  RenderedTemplate result;
  run(body, top_, result.text);
  result.generated = std::move(generated_);
  return result;
}

void Evaluator::append(std::string_view text, std::string& out) {
  budget_.spend_bytes(text.size());
  if (text.size() >
      budget_.bounds().output_bytes - std::min(out.size(), budget_.bounds().output_bytes))
    budget_.refuse("the text has more than ", budget_.bounds().output_bytes, " bytes");
  out += text;
}

// --- statements ---

Evaluator::Flow Evaluator::run(const Block& block, Scope& scope, std::string& out) {
  for (const Statement& statement : block)
    if (const Flow flow = run_statement(statement, scope, out); flow != Flow::goes_on) return flow;
  return Flow::goes_on;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement, Scope& scope,
                                         std::string& out) {
  using Kind = Statement::Kind;
  const Nesting nesting(*this, statement.line);
  switch (statement.kind) {
    case Kind::text:
      append(statement.text, out);
      break;
    case Kind::output:
      append(to_text(evaluate(*statement.expression, scope), budget_), out);
      break;
    case Kind::branch:
      for (const auto& [condition, body] : statement.branches)
        if (is_true(evaluate(*condition, scope))) return run(body, scope, out);
      return run(statement.otherwise, scope, out);
    case Kind::loop:
      return run_loop(statement, scope, out);
    case Kind::assignment:
      assign(statement.target, evaluate(*statement.expression, scope), scope);
      break;
    case Kind::block_set:
      run_block_set(statement, scope);
      break;
    case Kind::macro:
      scope.set(statement.text,
                std::make_shared<const FunctionData>(
                    FunctionData{.name = statement.text, .macro = &statement}),
                budget_);
      break;
    case Kind::generation:
      generate(statement, scope, out);
      break;
    case Kind::leave_loop:
      return Flow::leaves_loop;
    case Kind::next_element:
      return Flow::next_element;
  }
  return Flow::goes_on;
}

Evaluator::Flow Evaluator::run_loop(const Statement& loop, Scope& scope, std::string& out) {
  std::vector<Value> items = elements_of(evaluate(*loop.expression, scope), budget_);
  if (loop.condition) {
    std::vector<Value> chosen;
    for (Value& item : items) {
      Scope inner(&scope);
      unpack(loop.target, item, inner);
      if (is_true(evaluate(*loop.condition, inner))) chosen.push_back(std::move(item));
    }
    items = std::move(chosen);
  }
  const int depth = depth_around(items, budget_);
  bool completed = false;  // a turn
  const auto state = std::make_shared<LoopData>(LoopData{std::move(items), 0, depth});
  for (; state->index < state->items.size(); ++state->index) {
    budget_.spend(1);
    Scope inner(&scope);
    inner.set("loop", LoopRef(state), budget_);
    unpack(loop.target, state->items[state->index], inner);
    const Flow flow = run(loop.body, inner, out);
    if (flow == Flow::leaves_loop) break;
    completed = completed || flow == Flow::goes_on;
  }
  // As Jinja does: also after elements whose turns all ended early.
  if (completed) return Flow::goes_on;
  Scope inner(&scope);
  return run(loop.otherwise, inner, out);
}

void Evaluator::run_block_set(const Statement& set, Scope& scope) {
  std::string text;
  Scope inner(&scope);
  run(set.body, inner, text);
  Scope filtered(&scope);
  filtered.set("", std::move(text), budget_);
  assign(set.target, evaluate(*set.expression, filtered), scope);
}

void Evaluator::generate(const Statement& generation, Scope& scope, std::string& out) {
  const size_t begin = out.size();
  Scope inner(&scope);
  run(generation.body, inner, out);
  generated_.push_back({begin, out.size()});
}

void Evaluator::assign(const Target& target, Value value, Scope& scope) {
  if (target.member.empty()) return unpack(target, value, scope);
  const Value* space = scope.find(target.names[0], budget_);
  NamespaceData* const* found = space ? space->as<NamespaceData*>() : nullptr;
  if (found == nullptr) budget_.refuse(quote(target.names[0]), " is no namespace");
  if (Value* old = (*found)->find(target.member, budget_)) {
    *old = std::move(value);
    return;
  }
  budget_.spend_bytes(target.member.size());
  (*found)->items.emplace_back(target.member, std::move(value));
}

void Evaluator::unpack(const Target& target, const Value& value, Scope& scope) {
  if (!target.unpacks) return scope.set(target.names[0], value, budget_);
  const std::vector<Value> parts = elements_of(value, budget_);
  if (parts.size() != target.names.size())
    budget_.refuse(target.names.size(), " names are set to ", parts.size(), " values");
  for (size_t i = 0; i < parts.size(); ++i) scope.set(target.names[i], parts[i], budget_);
}

// --- expressions ---

Value Evaluator::evaluate(const Expression& node, Scope& scope) {
  using Kind = Expression::Kind;
  const Nesting nesting(*this, node.line);
  const auto part = [&](size_t i) { return evaluate(*node.parts[i], scope); };
  switch (node.kind) {
    case Kind::literal:
      return node.value;
    case Kind::name:
      return evaluate_name(node, scope);
    case Kind::list:
    case Kind::tuple:
      return make_list(evaluate_parts(node, 0, scope), budget_,
                       node.kind == Kind::tuple ? ListKind::tuple : ListKind::list);
    case Kind::dict:
      return evaluate_dict(node, scope);
    case Kind::attribute:
      return attribute_of(part(0), node.name, budget_);
    case Kind::item: {
      const Value object = part(0);
      return item_of(object, part(1), budget_);
    }
    case Kind::slice:
      return evaluate_slice(node, scope);
    case Kind::call:
      return call(node, scope);
    case Kind::filter: {
      const Value input = part(0);
      Arguments arguments = evaluate_arguments(node, scope);
      budget_.at_line(node.line);
      Value result = node.filter->apply(input, arguments, budget_);
      arguments.finish(node.name, budget_);
      return result;
    }
    case Kind::test:
      return evaluate_test(node, scope) != node.negated;
    case Kind::concat:
      return evaluate_concat(node, scope);
    case Kind::binary: {
      const Value left = part(0), right = part(1);
      budget_.at_line(node.line);
      return operate(node.name, left, right, budget_);
    }
    case Kind::comparison:
      return evaluate_comparison(node, scope);
    case Kind::conditional:
      if (is_true(part(1))) return part(0);
      return node.parts[2] ? part(2) : Value();
    case Kind::both: {
      Value left = part(0);
      return is_true(left) ? part(1) : left;
    }
    case Kind::either: {
      Value left = part(0);
      return is_true(left) ? left : part(1);
    }
    case Kind::negation:
      return !is_true(part(0));
    case Kind::negative:
      return negative(part(0), budget_);
  }
  budget_.refuse("an expression of an unknown kind");
}

Value Evaluator::evaluate_name(const Expression& node, Scope& scope) {
  if (const Value* found = scope.find(node.name, budget_)) return *found;
  static constexpr auto kOthers = std::to_array<std::string_view>({"varargs", "kwargs", "self"});
  if (std::ranges::find(kOthers, node.name) != kOthers.end())
    budget_.unsupported("the name ", quote(node.name), " is not supported");
  budget_.spend_bytes(node.name.size());
  return Undefined{std::make_shared<const std::string>(node.name)};
}

std::vector<Value> Evaluator::evaluate_parts(const Expression& node, size_t first, Scope& scope) {
  std::vector<Value> values;
  for (size_t i = first; i < node.parts.size(); ++i)
    values.push_back(evaluate(*node.parts[i], scope));
  return values;
}

Value Evaluator::evaluate_dict(const Expression& node, Scope& scope) {
  std::vector<std::pair<std::string, Value>> items;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    const Value key = evaluate(*node.parts[i], scope);
    if (!key.text())
      budget_.unsupported("keys of mappings are texts, not values of type ", type_name(key));
    Value value = evaluate(*node.parts[i + 1], scope);
    if (Value* old = find_item(items, *key.text(), budget_))
      *old = std::move(value);
    else
      items.emplace_back(*key.text(), std::move(value));
  }
  return make_dict(std::move(items), budget_);
}

Value Evaluator::evaluate_slice(const Expression& node, Scope& scope) {
  const auto part = [&](size_t i) {
    return node.parts[i] ? evaluate(*node.parts[i], scope) : Value(nullptr);
  };
  const Value object = part(0), start = part(1), stop = part(2), step = part(3);
  return slice_of(object, start, stop, step, budget_);
}

Value Evaluator::evaluate_concat(const Expression& node, Scope& scope) {
  std::string text;
  for (const ExpressionRef& part : node.parts)
    append(to_text(evaluate(*part, scope), budget_), text);
  return text;
}

bool Evaluator::evaluate_comparison(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1], scope);
    budget_.at_line(node.line);
    if (!compares(node.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

bool Evaluator::compares(std::string_view symbol, const Value& left, const Value& right) {
  if (symbol == "==") return equal(left, right, budget_);
  if (symbol == "!=") return !equal(left, right, budget_);
  if (symbol == "in") return contains(right, left, budget_);
  if (symbol == "not in") return !contains(right, left, budget_);
  const std::partial_ordering order = compare(left, right, budget_);
  if (symbol == "<") return order < 0;
  if (symbol == "<=") return order <= 0;
  return symbol == ">" ? order > 0 : order >= 0;
}

bool Evaluator::evaluate_test(const Expression& node, Scope& scope) {
  const Value tested = evaluate(*node.parts[0], scope);
  Arguments arguments = evaluate_arguments(node, scope);
  budget_.at_line(node.line);
  const bool holds = node.test->apply(tested, arguments, budget_);
  arguments.finish(node.name, budget_);
  return holds;
}

// --- calls ---

Arguments Evaluator::evaluate_arguments(const Expression& node, Scope& scope) {
  Arguments arguments;
  arguments.values = evaluate_parts(node, 1, scope);
  for (const auto& [name, expression] : node.named)
    arguments.named.emplace_back(name, evaluate(*expression, scope));
  budget_.spend_elements(arguments.values.size() + arguments.named.size());
  return arguments;
}

Value Evaluator::call(const Expression& node, Scope& scope) {
  const Value callee = evaluate(*node.parts[0], scope);
  Arguments arguments = evaluate_arguments(node, scope);
  budget_.at_line(node.line);
  if (const Undefined* undefined = callee.as<Undefined>()) {
    const std::string name = undefined->what ? *undefined->what : "";
    if (name == kToday)
      budget_.refuse(kToday, " needs a day: give the conversation a member \"", kToday,
                     "\": \"2026-11-29\"");
    budget_.unsupported("the function ", quote(name), " is not supported here");
  }
  if (!callee.as<FunctionRef>())
    budget_.refuse("a value of type ", type_name(callee), " cannot be called");
  const FunctionRef function = *callee.as<FunctionRef>();
  if (function->macro != nullptr) return call_macro(*function->macro, arguments);
  if (function->method) return call_method(function->self, function->name, arguments, budget_);
  return call_function(function->name, arguments);
}

Value Evaluator::call_macro(const Statement& macro, Arguments& arguments) {
  // A call takes the stack of several nodes.
  const Nesting nesting(*this, budget_.line());
  const std::vector<std::string>& names = macro.target.names;
  Scope inner(&top_);
  std::vector<size_t> missing;
  for (size_t i = 0; i < names.size(); ++i) {
    const Value* given = arguments.find(i, names[i]);
    inner.set(names[i], given ? *given : Undefined{std::make_shared<const std::string>(names[i])},
              budget_);
    if (given == nullptr) missing.push_back(i);
  }
  arguments.finish(macro.text, budget_);
  // A default may read parameters; its own and later missing ones are undefined.
  for (const size_t i : missing)
    if (macro.defaults[i]) inner.set(names[i], evaluate(*macro.defaults[i], inner), budget_);
  std::string text;
  run(macro.body, inner, text);
  return text;
}

Value Evaluator::call_function(std::string_view name, Arguments& arguments) {
  if (name == "range") return make_range(arguments);
  if (name == "dict" || name == "namespace") return make_namespace(arguments, name == "namespace");
  const std::string& text = arguments.need_text(0, {}, name, budget_);
  arguments.finish(name, budget_);
  if (name == "raise_exception") budget_.refuse("the template refuses the conversation: ", text);
  const std::optional<std::string> day = format_day(*today_, text);
  if (!day) budget_.unsupported("strftime_now writes a day; it does not know ", quote(text));
  return *day;
}

Value Evaluator::make_range(Arguments& arguments) {
  int64_t start = 0, stop = arguments.integer(0, {}, 0, "range", budget_);
  if (arguments.values.empty()) budget_.refuse("range needs 1 to 3 integers");
  if (arguments.values.size() > 1) {
    start = stop;
    stop = arguments.integer(1, {}, 0, "range", budget_);
  }
  const int64_t step = arguments.integer(2, {}, 1, "range", budget_);
  arguments.finish("range", budget_);
  if (step == 0) budget_.refuse("the step of range is 0");
  // In unsigned arithmetic, where no difference overflows.
  const auto distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t by = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const bool none = step > 0 ? start >= stop : start <= stop;
  const uint64_t count = none ? 0 : (distance - 1) / by + 1;
  if (count > static_cast<uint64_t>(budget_.bounds().range))
    budget_.refuse("range has ", count, " elements, at most ", budget_.bounds().range,
                   " are allowed");
  std::vector<Value> items;
  for (uint64_t i = 0; i < count; ++i)
    items.emplace_back(
        static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step)));
  return make_list(std::move(items), budget_, ListKind::range);
}

Value Evaluator::make_namespace(Arguments& arguments, bool mutable_one) {
  std::vector<std::pair<std::string, Value>> items;
  if (!arguments.values.empty()) {
    const DictData* first = arguments.values[0].dict();
    if (first == nullptr || arguments.values.size() > 1)
      budget_.unsupported("dict and namespace take one mapping and arguments with names");
    items = first->items;
  }
  for (auto& [name, value] : arguments.named) {
    if (Value* old = find_item(items, name, budget_))
      *old = value;
    else
      items.emplace_back(name, value);
  }
  if (!mutable_one) return make_dict(std::move(items), budget_);
  budget_.spend_elements(items.size() + 1);
  namespaces_.push_back({std::move(items)});
  return &namespaces_.back();
}

}  // namespace trafo::jinja
