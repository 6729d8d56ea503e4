#include "engine/train/state.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/core/library_memory.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kOrigin = "checkpoint";
constexpr const char* kFormat = "trafo-training-state";

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
          kOrigin, label, ": '", text, "' is not a hexadecimal number");
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
  visit("display_loss", s.display.loss);
  visit("display_nll", s.display.nll);
  visit("display_labels", s.display.labels);
  visit("grad_norm", s.grad_norm);
  visit("stalled", s.stalled);
  visit("validated_update", s.validated_update);
  visit("validation_due", s.validation_due);
  visit("train_seconds", s.train_seconds);
}

// Fields of the position that are younger than the others.
template <class Position, class Visit>
void for_each_place(Position& p, Visit visit) {
  visit("window", p.window);
  visit("next_in_window", p.next_in_window);
  visit("epoch_dropped_empty", p.drops.empty);
  visit("epoch_dropped_long", p.drops.too_long);
  visit("epoch_dropped_ratio", p.drops.ratio);
  visit("epoch_dropped_identical", p.drops.identical);
}

void check_counts(const RunState& s, const std::string& label) {
  require(s.trainer.update >= 0 && s.trainer.skipped >= 0 && s.trainer.skipped_in_a_row >= 0 &&
              s.position.epoch >= 0 && s.position.next_batch >= 0 && s.position.window >= -1 &&
              s.position.next_in_window >= 0 && s.target_tokens >= 0 && s.source_tokens >= 0 &&
              s.stalled >= 0 && s.validated_update >= -1 && s.train_seconds >= 0,
          ErrorCode::corrupt_file, kOrigin, label, " has a negative count");
  for (const auto& [metric, count] : s.stalled_by_metric)
    require(count >= 0, ErrorCode::corrupt_file, kOrigin, label, " has a negative count");
}

// What a checkpoint that lacks an option was trained with: options that are younger than it.
Json before_there_was(const std::string& option) {
  if (option == "optimizer_states") return "fp32";
  if (option == "exponential_smoothing") return 0.0;
  if (option == "maxi_batch") return 0;
  if (option == "drop_identical") return false;
  if (option == "max_length_ratio" || option == "source_alpha" || option == "target_alpha")
    return 0.0;
  return {};
}

}  // namespace

std::string encode_state(const RunState& state, const RunIdentity& identity) {
  const LibraryMemory memory(LibraryMemory::json(identity.options.size()));
  Json out;
  out["format"] = kFormat;
  out["version"] = kStateVersion;
  for_each_field(state, [&](const char* name, const auto& value) { out[name] = value; });
  out["data_seed"] = to_hex(state.position.seed);
  for_each_place(state.position, [&](const char* name, const auto& value) { out[name] = value; });
  out["best"] = Json::array();
  for (const auto& [name, best] : state.best) {
    Json entry{{"metric", name}};
    if (best) entry["value"] = best->value, entry["update"] = best->update;
    out["best"].push_back(entry);
  }
  out["stalled_by_metric"] = state.stalled_by_metric;
  out["corpus"] = to_hex(identity.corpus);
  out["tokenizer"] = identity.tokenizer;
  out["options"] = Json::parse(identity.options);
  return out.dump(2) + "\n";
}

SavedState decode_state(const std::string& text, const std::string& label) {
  SavedState saved;
  RunState& state = saved.state;
  const LibraryMemory memory(LibraryMemory::json(text.size()));
  try {
    const Json in = Json::parse(text);
    require(in.at("format") == kFormat, ErrorCode::corrupt_file, kOrigin, label,
            " is not a training state");
    const int64_t version = in.at("version");
    require(version <= kStateVersion, ErrorCode::version, kOrigin, label,
            " was written by a newer release: version ", version, ", this one reads up to ",
            kStateVersion);
    require(version >= 1, ErrorCode::corrupt_file, kOrigin, label, " has the version ", version);
    for_each_field(state, [&](const char* name, auto& value) { in.at(name).get_to(value); });
    state.position.seed = from_hex(in.at("data_seed"), label);
    state.position.window = -1;  // where an older release does not say
    for_each_place(state.position, [&](const char* name, auto& value) {
      if (in.contains(name)) in.at(name).get_to(value);
    });
    for (const Json& entry : in.at("best")) {
      std::optional<BestMetric> best;
      if (entry.contains("value")) best = BestMetric{entry.at("value"), entry.at("update")};
      state.best.emplace_back(entry.at("metric"), best);
    }
    if (in.contains("stalled_by_metric"))
      in.at("stalled_by_metric").get_to(state.stalled_by_metric);
    else if (!state.best.empty())  // an older release counted the first metric alone
      state.stalled_by_metric[state.best.front().first] = state.stalled;
    saved.identity.corpus = from_hex(in.at("corpus"), label);
    in.at("tokenizer").get_to(saved.identity.tokenizer);
    saved.identity.options = in.at("options").dump();
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::corrupt_file, kOrigin, label, ": ", error.what());
  }
  check_counts(state, label);
  return saved;
}

void check_identity(const RunIdentity& saved, const RunIdentity& given, const std::string& label) {
  const LibraryMemory memory(LibraryMemory::json(saved.options.size() + given.options.size()));
  const Json before = Json::parse(saved.options), now = Json::parse(given.options);
  std::string differences;
  const auto add = [&](const std::string& text) {
    differences += (differences.empty() ? "" : "; ") + text;
  };
  for (const auto& [name, value] : now.items()) {
    const Json old = before.contains(name) ? before.at(name) : before_there_was(name);
    if (old != value) add(concat(name, " was ", old.dump(), " and is ", value.dump(), " now"));
  }
  require(differences.empty(), ErrorCode::invalid_argument, kOrigin, label,
          " cannot be continued with other options: ", differences);
  require(saved.tokenizer == given.tokenizer, ErrorCode::invalid_argument, kOrigin, label,
          " cannot be continued: the vocabulary has changed");
  require(
      saved.corpus == given.corpus, ErrorCode::invalid_argument, kOrigin, label,
      " cannot be continued: the training corpus has changed since: edited lines, or other files, "
      "another order or other weights of them");
}

}  // namespace trafo
