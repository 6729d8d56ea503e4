#include "engine/train/checkpoint/state.h"

#include <algorithm>
#include <charconv>

#include "engine/core/argument_error.h"
#include "engine/core/strings/json.h"
#include "engine/train/run/generated/train_options_fields.h"

namespace trafo {
namespace {

constexpr const char* kStateOrigin = "checkpoint";
constexpr const char* kStateFormat = "trafo-training-state";

// Hexadecimal text: 64-bit numbers do not survive every JSON reader.
std::string to_hex(uint64_t value) {
  char digits[17] = {};
  const auto end = std::to_chars(digits, digits + 16, value, 16).ptr;
  return {digits, end};
}

uint64_t from_hex(const std::string& text, const std::string& label) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(error == std::errc{} && end == text.data() + text.size(), ErrorCode::corrupt_file,
          kStateOrigin, label, ": ", text.size() > 16 ? "a long text" : text,
          " is not a hexadecimal number");
  return value;
}

// The plain fields, for writing and reading.
template <class State, class Visit>
void for_each_field(State& s, Visit visit) {
  visit("update", s.trainer.update);
  visit("forward_passes", s.trainer.forward_passes);
  visit("skipped", s.trainer.skipped);
  visit("skipped_in_a_row", s.trainer.skipped_in_a_row);
  visit("epoch", s.position.epoch);
  visit("next_batch", s.position.next_batch);
  visit("target_tokens", s.target_tokens);
  visit("source_tokens", s.source_tokens);
  visit("display_loss", s.log.loss);
  visit("display_nll", s.log.nll);
  visit("display_labels", s.log.labels);
  visit("grad_norm", s.grad_norm);
  visit("stalled", s.stalled);
  visit("validated_update", s.validated_update);
  visit("validation_due", s.validation_due);
  visit("train_seconds", s.train_seconds);
}

// The place in the epoch.
template <class Position, class Visit>
void for_each_place(Position& p, Visit visit) {
  visit("window", p.window);
  visit("next_in_window", p.next_in_window);
  visit("epoch_dropped_empty", p.drops.empty);
  visit("epoch_dropped_long", p.drops.too_long);
  visit("epoch_dropped_ratio", p.drops.ratio);
  visit("epoch_dropped_identical", p.drops.identical);
}

// Left out where no text was cut.
template <class Position, class Visit>
void for_each_cut(Position& p, Visit visit) {
  visit("epoch_cut", p.drops.cut);
  visit("epoch_windows", p.drops.windows);
}

void check_counts(const RunState& s, const std::string& label) {
  const auto check = [&](const char* name, auto value, auto low, auto high) {
    require(value >= low && value <= high, ErrorCode::corrupt_file, kStateOrigin, label, ": ", name,
            " is ", value, ", it must lie between ", low, " and ", high);
  };
  constexpr int64_t kMost = limits::kCount;
  check("far_off_in_a_row", s.trainer.far_off_in_a_row, int64_t{0}, kMost);
  for_each_field(s, [&](const char* name, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    const std::string_view field = name;
    if constexpr (std::is_same_v<Value, int64_t>)
      check(name, value, int64_t{field == "validated_update" ? -1 : 0},
            field == "epoch" ? limits::kEpochs : kMost);
    else if constexpr (std::is_same_v<Value, uint64_t>)
      check(name, value, uint64_t{0}, static_cast<uint64_t>(kMost));
  });
  const auto check_count = [&](const char* name, int64_t value) {
    check(name, value, int64_t{0}, kMost);
  };
  for_each_place(s.position, check_count);
  for_each_cut(s.position, check_count);
  check("train_seconds", s.train_seconds, 0.0, 1e15);
  check("phase_update", s.phase_update, int64_t{0}, s.trainer.update);
  check("phase_tokens", s.phase_tokens, int64_t{0}, s.target_tokens);
  for (const int64_t update : s.kept) check("kept", update, int64_t{0}, s.trainer.update);
  for (const auto& [metric, best] : s.best)
    if (best) check("the update of a best metric", best->update, int64_t{0}, kMost);
  for (const auto& [metric, count] : s.stalled_by_metric)
    check("stalled_by_metric", count, int64_t{0}, kMost);
}

using NamedNumbers = std::vector<std::pair<std::string, double>>;

Json numbers_json(const NamedNumbers& numbers) {
  Json::Object out;
  for (const auto& [name, value] : numbers) out.push_back({name, value});
  return out;
}

NamedNumbers numbers_of(const Json& json, const std::string& label) {
  NamedNumbers numbers;
  const JsonFields fields(json, kStateOrigin, label);
  for (const auto& [name, value] : fields.members())
    fields.convert(value, name, numbers.emplace_back(name, 0.0).second);
  return numbers;
}

// An option by its key in the JSON of a checkpoint.
struct SavedOption {
  std::string name;    // in messages
  bool phase = false;  // may change with a phase
  bool known = false;
  Json by_default = {};
};
SavedOption saved_option(const std::string& key) {
  SavedOption found{.name = key};
  const TrainOptions defaults;
  for_each_field_of_training(defaults, [&]<class T>(const OptionField& field, const T& value) {
    if constexpr (!std::is_same_v<T, Period>) {  // none of them is fixed
      if (key != field.json_key()) return;
      found.name = field.name;
      found.phase = field.phase;
      found.known = true;
      Json all;
      write_option(all, field, value);
      found.by_default = *all.find(key);
    }
  });
  return found;
}

// Both are checksums of a frozen model.
void check_frozen(const char* role, const std::string& saved, const std::string& given,
                  const std::string& label) {
  if (saved == given) return;
  fail(ErrorCode::invalid_argument, kStateOrigin, label, " cannot be continued with",
       saved.empty()   ? concat(" a ", role, ": the run has none")
       : given.empty() ? concat("out the ", role, " of the run")
                       : concat(" another ", role, ": the checksum of its weights was ", saved,
                                " and is ", given, " now"));
}

// Both as parameter_groups_json gives them.
void check_groups(const std::string& saved, const std::string& given, const std::string& label) {
  const auto parse = [&](const std::string& text) {
    return text.empty() ? Json(Json::Object()) : parse_json(text, kStateOrigin, label);
  };
  const Json before = parse(saved), now = parse(given);
  if (before == now) return;
  // The first parameter that differs is enough to find the others.
  std::string which;
  const auto compare = [&](const std::string& name, const Json* old, const Json* current) {
    const auto state = [](const Json* group) { return group ? group->dump() : "default"; };
    if (which.empty() && (old && current ? *old != *current : old != current))
      which = concat(name, " was ", state(old), " and is ", state(current), " now");
  };
  for (const auto& [name, group] : JsonFields(before, kStateOrigin, label).members())
    compare(name, &group, now.find(name));
  for (const auto& [name, group] : JsonFields(now, kStateOrigin, label).members())
    compare(name, before.find(name), &group);
  fail(ErrorCode::invalid_argument, kStateOrigin, label,
       " cannot be continued with other parameters frozen or with other factors: ", which);
}

}  // namespace

std::string parameter_groups_json(const ParameterStore& parameters) {
  Json::Object out;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const ParameterGroup& group = parameters.group(id);
    if (!group.trainable)
      out.push_back({parameters.name(id), Json::Object{{"frozen", true}}});
    else if (group.lr_factor != 1 || group.weight_decay != 1)
      out.push_back({parameters.name(id), Json::Object{{"lr_factor", group.lr_factor},
                                                       {"weight_decay", group.weight_decay}}});
  }
  return out.empty() ? std::string() : Json(out).dump();
}

std::string encode_state(const RunState& state, const RunIdentity& identity) {
  Json out;
  out["format"] = kStateFormat;
  out["version"] = kStateVersion;
  for_each_field(state, [&](const char* name, const auto& value) { out[name] = value; });
  out["data_seed"] = to_hex(state.position.seed);
  for_each_place(state.position, [&](const char* name, const auto& value) { out[name] = value; });
  if (state.position.drops.cut > 0)
    for_each_cut(state.position, [&](const char* name, const auto& value) { out[name] = value; });
  Json::List all;
  for (const auto& [name, best] : state.best) {
    Json::Object entry{{"metric", name}};
    if (best) entry.push_back({"value", best->value}), entry.push_back({"update", best->update});
    all.emplace_back(entry);
  }
  out["best"] = all;
  if (state.trainer.far_off_in_a_row > 0) out["far_off_in_a_row"] = state.trainer.far_off_in_a_row;
  Json::Object stalled;
  for (const auto& [name, count] : state.stalled_by_metric) stalled.push_back({name, count});
  out["stalled_by_metric"] = stalled;
  out["corpus"] = to_hex(identity.corpus);
  out["tokenizer"] = identity.tokenizer;
  out["options"] = parse_json(identity.options, kStateOrigin, "options");
  if (!identity.groups.empty())
    out["parameter_groups"] = parse_json(identity.groups, kStateOrigin, "parameter_groups");
  if (!identity.teacher.empty()) out["teacher"] = identity.teacher;
  if (!identity.reference.empty()) out["reference"] = identity.reference;
  if (!state.validation.empty())
    out["validation"] = parse_json(state.validation, kStateOrigin, "validation");
  if (identity.phase > 1) {
    out["phase"] = identity.phase;
    out["phase_update"] = state.phase_update;
    out["phase_tokens"] = state.phase_tokens;
  }
  if (!state.start.empty()) out["start"] = numbers_json(state.start);
  if (!state.kept.empty()) out["kept"] = state.kept;
  if (state.log.units != state.log.labels) out["display_units"] = state.log.units;
  if (!state.log.metrics.empty()) out["display_metrics"] = numbers_json(state.log.metrics);
  return out.dump(2) + "\n";
}

SavedState decode_state(const std::string& text, const std::string& label) {
  SavedState saved;
  RunState& state = saved.state;
  const Json json = parse_json(text, kStateOrigin, label);
  const JsonFields in(json, kStateOrigin, label);
  const auto text_of = [&](const char* name) {
    std::string value;
    in.take(name, value);
    return value;
  };
  require(text_of("format") == kStateFormat, ErrorCode::corrupt_file, kStateOrigin, label,
          " is not a training state");
  int64_t version = 0;
  in.take("version", version);
  require(version <= kStateVersion, ErrorCode::version, kStateOrigin, label,
          " was written by a newer release: version ", version, ", this one reads up to ",
          kStateVersion);
  require(version >= 1, ErrorCode::corrupt_file, kStateOrigin, label, " has the version ", version);
  for_each_field(state, [&](const char* name, auto& value) { in.take(name, value); });
  state.position.seed = from_hex(text_of("data_seed"), label);
  for_each_place(state.position, [&](const char* name, auto& value) { in.take(name, value); });
  if (in.has("epoch_cut"))
    for_each_cut(state.position, [&](const char* name, auto& value) { in.take(name, value); });
  if (in.has("far_off_in_a_row")) in.take("far_off_in_a_row", state.trainer.far_off_in_a_row);
  const auto* best = in.at("best").as<Json::List>();
  require(best != nullptr, ErrorCode::corrupt_file, kStateOrigin, label, ": best is not a list");
  for (const Json& each : *best) {
    const JsonFields entry(each, kStateOrigin, label);
    auto& [name, value] = state.best.emplace_back();
    entry.take("metric", name);
    if (!entry.has("value")) continue;
    entry.take("value", value.emplace().value);
    entry.take("update", value->update);
  }
  const JsonFields counts(in.at("stalled_by_metric"), kStateOrigin, label);
  for (const auto& [name, count] : counts.members())
    counts.convert(count, name, state.stalled_by_metric[name]);
  saved.identity.corpus = from_hex(text_of("corpus"), label);
  saved.identity.tokenizer = text_of("tokenizer");
  require(in.at("options").as<Json::Object>(), ErrorCode::corrupt_file, kStateOrigin, label,
          ": options is not an object");
  saved.identity.options = in.at("options").dump();
  if (in.has("parameter_groups")) saved.identity.groups = in.at("parameter_groups").dump();
  if (in.has("teacher")) saved.identity.teacher = text_of("teacher");
  if (in.has("reference")) saved.identity.reference = text_of("reference");
  if (in.has("validation")) {
    require(in.at("validation").as<Json::Object>(), ErrorCode::corrupt_file, kStateOrigin, label,
            ": validation is not an object");
    state.validation = in.at("validation").dump();
  }
  if (in.has("phase")) {
    in.take("phase", saved.identity.phase);
    in.take("phase_update", state.phase_update);
    in.take("phase_tokens", state.phase_tokens);
    require(saved.identity.phase >= 1 && saved.identity.phase <= limits::kCount,
            ErrorCode::corrupt_file, kStateOrigin, label, ": phase is ", saved.identity.phase);
  }
  if (in.has("start")) state.start = numbers_of(in.at("start"), label);
  if (in.has("kept")) in.take("kept", state.kept);
  state.log.units = state.log.labels;
  if (in.has("display_units")) in.take("display_units", state.log.units);
  if (in.has("display_metrics")) state.log.metrics = numbers_of(in.at("display_metrics"), label);
  check_counts(state, label);
  return saved;
}

void check_identity(const RunIdentity& saved, const RunIdentity& given, const std::string& label) {
  const Json saved_options = parse_json(saved.options, kStateOrigin, label);
  const JsonFields before(saved_options, kStateOrigin, label);
  const Json now = parse_json(given.options, kStateOrigin, label);
  const bool next_phase = given.phase == saved.phase + 1;
  require_argument(next_phase || given.phase == saved.phase, kStateOrigin, "phase", " is ",
                   given.phase, ", but ", label, " is of phase ", saved.phase,
                   ": a run resumes its phase or begins the next one");
  std::string differences, field;
  bool only_of_phase = true;
  const auto add = [&](const std::string& text) {
    differences += (differences.empty() ? "" : "; ") + text;
  };
  for (const auto& [key, value] : JsonFields(now, kStateOrigin, label).members()) {
    const SavedOption option = saved_option(key);
    // A checkpoint that was written before there was this option has its default.
    const Json& old = option.known && !before.has(key) ? option.by_default : before.at(key);
    if (old == value || (next_phase && option.phase)) continue;
    if (field.empty()) field = option.name;
    only_of_phase = only_of_phase && option.phase;
    add(concat(option.name, " was ", old.dump(), " and is ", value.dump(), " now"));
  }
  if (!differences.empty() && only_of_phase)
    differences += concat("; phase ", saved.phase + 1, " may have other values");
  require_argument(differences.empty(), kStateOrigin, field,
                   differences.substr(std::min(field.size(), differences.size())), ": ", label,
                   " cannot be continued with other options");
  check_groups(saved.groups, given.groups, label);
  require(saved.tokenizer == given.tokenizer, ErrorCode::invalid_argument, kStateOrigin, label,
          " cannot be continued: the vocabulary has changed");
  if (next_phase) return;  // which may have another frozen model and another corpus
  check_frozen("teacher", saved.teacher, given.teacher, label);
  check_frozen("reference", saved.reference, given.reference, label);
  require(
      saved.corpus == given.corpus, ErrorCode::invalid_argument, kStateOrigin, label,
      " cannot be continued: the training corpus has changed since: edited lines, or other files, "
      "another order or other weights of them; phase ",
      saved.phase + 1, " may have another corpus");
}

namespace {

// Best scores and patience start anew. The best checkpoints so far are kept.
void forget_scores(RunState& state) {
  for (const auto& [metric, best] : state.best)
    if (best && std::ranges::find(state.kept, best->update) == state.kept.end())
      state.kept.push_back(best->update);
  state.best.clear();
  state.stalled_by_metric.clear();
  state.stalled = 0;
  state.start.clear();
  state.validated_update = -1;
}

void begin_phase(RunState& state) {
  forget_scores(state);
  state.validation_due = false;
  state.phase_update = state.trainer.update;
  state.phase_tokens = state.target_tokens;
  state.log = {};
  state.begins_phase = true;
}

bool has_scores(const RunState& state) {
  return !state.start.empty() || std::ranges::any_of(state.best, [](const auto& metric) {
    return metric.second.has_value();
  });
}

// The differences between two validation identities.
std::string describe_validation(const std::string& saved, const std::string& given,
                                const std::string& label) {
  const Json before = parse_json(saved, kStateOrigin, label);
  const Json now = parse_json(given, kStateOrigin, label);
  std::string text;
  for (const auto& [key, value] : JsonFields(now, kStateOrigin, label).members()) {
    const Json* const old = before.find(key);
    if (old != nullptr && *old == value) continue;
    text += concat(text.empty() ? "" : "; ",
                   key == "text" ? "the checksum of the validation text" : key, " was ",
                   old != nullptr ? old->dump() : "unknown", " and is ", value.dump(), " now");
  }
  return text;
}

}  // namespace

void adopt_state(SavedState& saved, const RunIdentity& given, const std::string& label) {
  check_identity(saved.identity, given, label);
  const std::string& before = saved.state.validation;
  const bool same = before.empty() || given.validation.empty() || before == given.validation ||
                    !has_scores(saved.state);
  if (given.phase > saved.identity.phase)
    begin_phase(saved.state);
  else if (!same && given.restart_validation)
    forget_scores(saved.state);
  else
    require_argument(
        same, kStateOrigin, "restart_validation",
        " would start best scores and patience anew: ", label,
        " cannot be continued with another validation, whose scores cannot be compared "
        "with the best ones so far: ",
        same ? std::string() : describe_validation(before, given.validation, label));
}

}  // namespace trafo
