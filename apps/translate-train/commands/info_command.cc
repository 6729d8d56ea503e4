#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "settings/generated/choices.h"
#include "settings/setting_types.h"
#include "settings/settings.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct InfoArguments {
  std::string path = "run";
  bool tensors = false;
  bool json = false;
};

// The types that the weights are stored in, and the kernel that multiplies quantized ones.
Json weight_facts(const std::vector<trafo_parameter_info>& parameters) {
  int64_t int8_matrices = 0, int8_elements = 0, int4_matrices = 0, int4_elements = 0, others = 0;
  int64_t factorized = 0, least_rank = 0, most_rank = 0;
  for (const trafo_parameter_info& parameter : parameters) {
    if (is_outer_factor(parameter.name)) {
      least_rank = factorized == 0 ? parameter.columns : std::min(least_rank, parameter.columns);
      most_rank = std::max(most_rank, parameter.columns);
      ++factorized;
    }
    if (parameter.bits == 4) {
      ++int4_matrices;
      int4_elements += parameter.elements;
    } else if (parameter.dtype == TRAFO_INT8) {
      ++int8_matrices;
      int8_elements += parameter.elements;
    } else {
      others += parameter.elements;
    }
  }
  Json facts{{"int8_matrices", int8_matrices}, {"int8_elements", int8_elements},
             {"int4_matrices", int4_matrices}, {"int4_elements", int4_elements},
             {"float32_elements", others},     {"factorized_matrices", factorized},
             {"least_rank", least_rank},       {"most_rank", most_rank}};
  if (int8_matrices + int4_matrices == 0) return facts;
  trafo_device_info cpu{};
  check(trafo_device_get_info(TRAFO_DEVICE_CPU, 0, &cpu, sizeof cpu));
  facts["int8_kernel"] = cpu.int8_kernel;
  return facts;
}

Json tied_layers(const uint8_t (&layers)[TRAFO_TIED_LAYERS]) {
  Json list = Json::array();
  for (const uint8_t number : layers)
    if (number != 0) list.push_back(number);
  return list;
}

const char* choice_name(std::span<const Choice> choices, int32_t value) {
  const auto found = std::ranges::find(choices, value, &Choice::value);
  return found == choices.end() ? "?" : found->name;
}

// The object that --json writes and that the text shows. `vocabulary`: the file that belongs to the
// model, or empty.
Json model_facts(const std::string& path, const std::string& vocabulary, bool tensors) {
  const auto context =
      make<Context>(trafo_context_new, static_cast<trafo_context_options*>(nullptr));
  const auto model = make<Model>(trafo_model_load, context.get(), path.data(), path.size());
  if (!vocabulary.empty())
    check(trafo_model_check_tokenizer(
        model.get(),
        make<Tokenizer>(trafo_tokenizer_load, vocabulary.data(), vocabulary.size()).get()));
  trafo_model_config c{};
  check(trafo_model_get_config(model.get(), &c, sizeof c));
  int64_t count = 0, elements = 0;
  check(trafo_model_get_parameter_count(model.get(), &count, &elements));
  const Architecture& architecture = architectures()[static_cast<size_t>(c.architecture)];
  Json facts{{"file", path},
             {"architecture", architecture.name},
             {"pre_norm", c.pre_norm != 0},
             {"activation", choice_name(kActivationChoices, c.activation)},
             {"encoder_layers", architecture.has_encoder ? c.encoder_layers : 0},
             {"decoder_layers", c.decoder_layers},
             {"encoder_tied_layers", tied_layers(c.encoder_tied_layers)},
             {"decoder_tied_layers", tied_layers(c.decoder_tied_layers)},
             {"norm", c.norm == TRAFO_NORM_RMS ? "rms" : "layer"},
             {"positions", c.positions == TRAFO_POSITIONS_ROTARY ? "rotary" : "standard"},
             {"rope_theta", c.rope_theta},
             {"rope_factor", c.rope_factor},
             {"ffn", c.ffn == TRAFO_FFN_SWIGLU  ? "swiglu"
                     : c.ffn == TRAFO_FFN_GEGLU ? "geglu"
                                                : "standard"},
             {"biases", c.biases != 0},
             {"qkv_biases", c.biases != 0 || c.qkv_biases != 0},
             {"attention_output_bias", c.biases != 0 || c.attention_output_bias != 0},
             {"ffn_biases", c.biases != 0 || c.ffn_biases != 0},
             {"head_width", c.head_width > 0 || c.heads == 0 ? c.head_width : c.width / c.heads},
             {"width", c.width},
             {"ffn_width", c.ffn_width},
             {"heads", c.heads},
             {"kv_heads", c.kv_heads},
             {"encoder_ffn_width", c.encoder_ffn_width > 0 ? c.encoder_ffn_width : c.ffn_width},
             {"encoder_heads", c.encoder_heads > 0 ? c.encoder_heads : c.heads},
             {"vocabulary", c.vocabulary},
             {"tied_embeddings", c.tied_embeddings != 0},
             {"max_positions", c.max_positions},
             {"parameters", elements},
             {"tensor_count", count},
             {"further", Json::object()}};
  for (const auto& [name, value] : further_options(c))
    facts["further"][name] = std::visit([](const auto& given) { return Json(given); }, value);
  std::vector<trafo_parameter_info> parameters(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    check(trafo_model_get_parameter_info(model.get(), i, &parameters[static_cast<size_t>(i)],
                                         sizeof(trafo_parameter_info)));
  facts["weights"] = weight_facts(parameters);
  const ZeroCounts zeros = count_zeros(model.get());
  facts["weights"]["matrix_zeros"] = zeros.zeros;
  facts["weights"]["matrix_elements"] = zeros.elements;
  if (!tensors) return facts;
  auto zeros_of_parameter = zeros.by_parameter.begin();
  for (const trafo_parameter_info& parameter : parameters)
    facts["tensors"].push_back(Json{
        {"name", parameter.name},
        {"shape",
         parameter.rows > 1 ? Json{parameter.rows, parameter.columns} : Json{parameter.columns}},
        {"dtype", parameter.bits == 4             ? "int4"
                  : parameter.dtype == TRAFO_INT8 ? "int8"
                                                  : "float32"},
        {"zeros",
         static_cast<double>(*zeros_of_parameter++) / static_cast<double>(parameter.elements)}});
  return facts;
}

std::string number(const Json& value) {
  return grouped(value.get<int64_t>());
}

std::string joined_elements(const Json& list, const char* between,
                            std::string (*text)(const Json&)) {
  std::string line;
  for (const Json& value : list) line += (line.empty() ? "" : between) + text(value);
  return line;
}

void show_model(const Json& m, LineWriter& out) {
  out.show("model         " + m["file"].get<std::string>());
  out.show(fmt::format("architecture  {}, {}-norm, {}", m["architecture"].get<std::string>(),
                       m["pre_norm"].get<bool>() ? "pre" : "post",
                       m["activation"].get<std::string>()));
  const auto encoder = m["encoder_layers"].get<int64_t>();
  const auto decoder = m["decoder_layers"].get<int64_t>();
  out.show("layers        " +
           (encoder > 0 ? fmt::format("{} + {}", encoder, decoder) : std::to_string(decoder)));
  std::string shared;
  for (const char* side : {"encoder", "decoder"})
    if (const Json& tied = m[std::string(side) + "_tied_layers"]; !tied.empty())
      shared += fmt::format(", {} {}", side, joined_elements(tied, " ", number));
  if (!shared.empty()) out.show("shared        " + shared.substr(2));
  std::string form;
  if (m["norm"] == "rms") form += ", RMS norm";
  if (m["positions"] == "rotary")
    form += fmt::format(", rotary positions (theta {:g})", m["rope_theta"].get<double>());
  if (m["ffn"] == "swiglu") form += ", SwiGLU";
  if (m["ffn"] == "geglu") form += ", GEGLU";
  if (m["rope_factor"] != 1.0)
    form += fmt::format(", stretched {:g} times", m["rope_factor"].get<double>());
  if (!m["biases"].get<bool>()) {
    std::string biased;
    if (m["qkv_biases"].get<bool>()) biased += " of queries, keys and values";
    if (m["attention_output_bias"].get<bool>()) biased += " of attention outputs";
    if (m["ffn_biases"].get<bool>()) biased += " of feed-forwards";
    form += biased.empty() ? ", no biases" : ", biases" + biased;
  }
  if (!form.empty()) out.show("form          " + form.substr(2));
  if (!m["further"].empty()) {
    std::string further;
    for (const auto& [name, value] : m["further"].items())
      further += ", " + name +
                 (value.is_boolean()  ? std::string()
                  : value.is_string() ? " " + value.get<std::string>()
                                      : fmt::format(" {:g}", value.get<double>()));
    out.show("further       " + further.substr(2));
  }
  const auto kv_heads = m["kv_heads"].get<int64_t>();
  out.show(fmt::format(
      "width         {}, feed-forward {}, {} heads of {}{}", m["width"].get<int64_t>(),
      m["ffn_width"].get<int64_t>(), m["heads"].get<int64_t>(), m["head_width"].get<int64_t>(),
      kv_heads > 0 ? fmt::format(" over {} of keys and values", kv_heads) : std::string()));
  if (m["encoder_ffn_width"] != m["ffn_width"] || m["encoder_heads"] != m["heads"])
    out.show(fmt::format("in the encoder feed-forward {}, {} heads",
                         m["encoder_ffn_width"].get<int64_t>(), m["encoder_heads"].get<int64_t>()));
  out.show(fmt::format("vocabulary    {} subwords, embeddings {}", number(m["vocabulary"]),
                       m["tied_embeddings"].get<bool>() ? "tied" : "separate"));
  out.show("positions     " + number(m["max_positions"]));
  out.show(fmt::format("parameters    {} in {} tensors", number(m["parameters"]),
                       number(m["tensor_count"])));
  const Json& weights = m["weights"];
  if (weights.contains("int8_kernel")) {
    std::string line;
    for (const char* type : {"int8", "int4"}) {
      const Json& matrices = weights[std::string(type) + "_matrices"];
      if (matrices != 0)
        line += fmt::format("{} in {} matrices ({} elements), ", type, number(matrices),
                            number(weights[std::string(type) + "_elements"]));
    }
    out.show(fmt::format("weights       {}float32 in the rest ({})", line,
                         number(weights["float32_elements"])));
    out.show("int8 kernel   " + weights["int8_kernel"].get<std::string>() +
             (weights["int4_matrices"] != 0 ? ", int4 as int8" : ""));
  } else {
    out.show("weights       float32");
  }
  if (weights["factorized_matrices"] != 0)
    out.show(fmt::format("low rank      {} matrices are two factors, of rank {} to {}",
                         number(weights["factorized_matrices"]), number(weights["least_rank"]),
                         number(weights["most_rank"])));
  const ZeroCounts zeros{weights["matrix_zeros"].get<int64_t>(),
                         weights["matrix_elements"].get<int64_t>()};
  if (zeros.zeros > 0) out.show("zeros         " + zeros.text());
  if (!m.contains("tensors")) return;
  const auto plain = [](const Json& value) { return value.dump(); };
  for (const Json& tensor : m["tensors"]) {
    const auto share = tensor["zeros"].get<double>();
    // Codes are zero wherever a small weight was rounded.
    const bool counts = tensor["shape"].size() > 1 && tensor["dtype"] == "float32";
    out.show(fmt::format(
        "  {:<48} [{}]{}{}", tensor["name"].get<std::string>(),
        joined_elements(tensor["shape"], " x ", plain),
        tensor["dtype"] == "float32" ? std::string() : " " + tensor["dtype"].get<std::string>(),
        counts && share > 0 ? fmt::format(", {:.1f} % zeros", 100 * share) : std::string()));
  }
}

Json vocabulary_facts(const std::string& path) {
  const auto tokenizer = make<Tokenizer>(trafo_tokenizer_load, path.data(), path.size());
  int64_t subwords = 0;
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &subwords));
  const char* kind = nullptr;
  check(trafo_tokenizer_get_kind(tokenizer.get(), &kind, nullptr));
  Json facts{{"file", path}, {"kind", kind}, {"subwords", subwords}, {"first", Json::array()}};
  for (int32_t id = 0; id < std::min<int64_t>(subwords, 12); ++id) {
    char* subword = nullptr;
    size_t length = 0;
    check(trafo_tokenizer_get_token(tokenizer.get(), id, &subword, &length));
    facts["first"].push_back(std::string(subword, length));
    trafo_string_free(subword);
  }
  return facts;
}

void show_vocabulary(const Json& v, LineWriter& out) {
  out.show("vocabulary    " + v["file"].get<std::string>());
  const auto plain = [](const Json& value) { return value.get<std::string>(); };
  out.show(fmt::format("subwords      {}: {} ...", number(v["subwords"]),
                       joined_elements(v["first"], " ", plain)));
}

std::string first_line(const fs::path& path) {
  std::ifstream in = open_run_file(path.string());
  std::string line;
  std::getline(in, line);
  return line;
}

// state.json is the library's own: taken as far as its fields are plain.
Json state_facts(const fs::path& path) {
  constexpr size_t kMostBytes = size_t{1} << 20, kMostFields = 256;
  std::ifstream in = open_run_file(path.string());
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  // An ordered object looks for every field among all others: first whether there are few.
  const auto fields = nlohmann::json::parse(text, nullptr, false);
  if (text.size() > kMostBytes || !fields.is_object() || fields.size() > kMostFields)
    usage_error(path.string() + ": is not a state file");
  const auto state = Json::parse(text, nullptr, false);
  Json facts = Json::object();
  for (const auto& [key, value] : state.items())
    if (value.is_primitive()) facts[key] = value;
  return facts;
}

Json checkpoint_facts(const std::string& path, const std::string& vocabulary, bool tensors) {
  Json facts{{"path", path}, {"model", model_facts(path + "/" + kModelFile, vocabulary, tensors)}};
  if (fs::exists(trafo::os::path_of(path + "/state.json")))
    facts["state"] = state_facts(trafo::os::path_of(path + "/state.json"));
  return facts;
}

void show_checkpoint(const Json& c, LineWriter& out) {
  out.show("checkpoint    " + c["path"].get<std::string>());
  show_model(c["model"], out);
  if (!c.contains("state")) return;
  out.show("state");
  for (const auto& [key, value] : c["state"].items())
    out.show(fmt::format("  {:<22} {}", key, value.dump()));
}

Json run_facts(const std::string& path, bool tensors) {
  check_run_files(path);
  Json facts{{"path", path},
             {"checkpoints", checkpoints_of(path)},
             {"pointers", Json::object()},
             {"settings", Json::object()}};
  for (const auto& entry : fs::directory_iterator(trafo::os::path_of(path))) {
    const std::string name = entry.path().filename().string();
    if (name == "latest" || name.starts_with("best-"))
      facts["pointers"][name] = first_line(entry.path());
  }
  if (fs::exists(trafo::os::path_of(path + "/config.yml"))) {
    const Settings settings = Settings::from_yaml(path + "/config.yml");
    for (const Setting setting : {Setting::task, Setting::learn_rate, Setting::lr_decay,
                                  Setting::mini_batch_words, Setting::seed})
      if (settings.has(setting))
        facts["settings"][spec_of(setting).name] = text_of(setting, settings);
  }
  const std::string vocabulary = vocabulary_in(path);
  if (!vocabulary.empty()) facts["vocabulary"] = vocabulary_facts(vocabulary);
  if (!facts["checkpoints"].empty())
    facts["checkpoint"] = checkpoint_facts(
        trafo::os::path_of(usual_model(path)).parent_path().string(), vocabulary, tensors);
  return facts;
}

void show_run(const Json& r, LineWriter& out) {
  out.show("run           " + r["path"].get<std::string>());
  const Json& updates = r["checkpoints"];
  out.show("checkpoints   " + (updates.empty() ? "none" : joined_elements(updates, ", ", number)));
  for (const char* part : {"pointers", "settings"})
    for (const auto& [name, value] : r[part].items())
      out.show(fmt::format("{:<13} {}", name, value.get<std::string>()));
  if (r.contains("vocabulary")) show_vocabulary(r["vocabulary"], out);
  if (r.contains("checkpoint")) show_checkpoint(r["checkpoint"], out);
}

bool is_safetensors(const std::string& path) {
  // Eight bytes of header length, then JSON.
  char head[9] = {};
  std::ifstream in = open_run_file(path);
  in.read(head, sizeof head);
  return in.gcount() == sizeof head && head[8] == '{';
}

// A kind of thing that a path may be: what is known of it, and how the text shows that.
struct Kind {
  const char* name;
  Json facts;
  void (*show)(const Json& facts, LineWriter& out);
};

Kind examine(const std::string& path, bool tensors) {
  if (!fs::exists(trafo::os::path_of(path))) usage_error(path + ": no such file or directory");
  if (fs::is_directory(trafo::os::path_of(path))) {
    if (fs::exists(trafo::os::path_of(path + "/ckpt")))
      return {"run", run_facts(path, tensors), show_run};
    if (fs::exists(trafo::os::path_of(path + "/" + kModelFile)))
      return {"checkpoint", checkpoint_facts(path, "", tensors), show_checkpoint};
    usage_error(path + (fs::exists(trafo::os::path_of(path + "/metrics.jsonl"))
                            ? ": has no checkpoint yet"
                            : ": is neither a run directory nor a checkpoint"));
  }
  if (is_safetensors(path) || path.ends_with(".safetensors"))
    return {"model", model_facts(path, "", tensors), show_model};
  return {"vocabulary", vocabulary_facts(path), show_vocabulary};
}

int info(const InfoArguments& arguments) {
  LineWriter out("-");
  const Kind kind = examine(arguments.path, arguments.tensors);
  if (arguments.json)
    // Names in files of others need not be UTF-8.
    out.write(Json{{"kind", kind.name}, {kind.name, kind.facts}}.dump(
        -1, ' ', false, Json::error_handler_t::replace));
  else
    kind.show(kind.facts, out);
  out.finish();
  return kDone;
}

}  // namespace

Action add_info(CLI::App& app) {
  auto arguments = std::make_shared<InfoArguments>();
  app.add_option("path", arguments->path,
                 "run directory, checkpoint, model.safetensors or vocabulary (default run)")
      ->type_name("PATH");
  app.add_option("-m,--model", arguments->path, "the same")->type_name("PATH");
  app.add_flag("--tensors", arguments->tensors, "list every tensor");
  app.add_flag("--json", arguments->json, "one JSON object");
  return [arguments] { return info(*arguments); };
}

}  // namespace translate_train
