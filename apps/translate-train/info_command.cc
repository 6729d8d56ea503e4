#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "commands.h"
#include "run_files.h"
#include "setting_types.h"
#include "settings.h"
#include "text_io.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct InfoArguments {
  std::string path = "run";
  bool tensors = false;
};

std::string shape_of(const trafo_parameter_info& info) {
  return info.rows > 1 ? fmt::format("[{} x {}]", info.rows, info.columns)
                       : fmt::format("[{}]", info.columns);
}

// What the weights are stored in and, of int8 weights, what multiplies them.
void show_weights(const std::vector<trafo_parameter_info>& parameters, LineWriter& out) {
  int64_t matrices = 0, codes = 0, others = 0;
  for (const trafo_parameter_info& parameter : parameters) {
    const bool int8 = parameter.dtype == TRAFO_INT8;
    matrices += int8 ? 1 : 0;
    (int8 ? codes : others) += parameter.elements;
  }
  if (matrices == 0) return out.show("weights       float32");
  trafo_device_info cpu{};
  check(trafo_device_get_info(TRAFO_DEVICE_CPU, 0, &cpu, sizeof cpu));
  out.show(fmt::format("weights       int8 in {} matrices ({} elements), float32 in the rest ({})",
                       grouped(matrices), grouped(codes), grouped(others)));
  out.show(fmt::format("int8 kernel   {}", cpu.int8_kernel));
}

// `vocabulary`: the file that belongs to the model, or empty.
void show_model(const std::string& path, const std::string& vocabulary, bool tensors,
                LineWriter& out) {
  const auto context =
      make<Context>(trafo_context_new, static_cast<trafo_context_options*>(nullptr));
  const auto model = make<Model>(trafo_model_load, context.get(), path.data(), path.size());
  if (!vocabulary.empty())
    check_vocabulary(
        model.get(),
        make<Tokenizer>(trafo_tokenizer_load, vocabulary.data(), vocabulary.size()).get());
  trafo_model_config c{};
  check(trafo_model_get_config(model.get(), &c, sizeof c));
  int64_t count = 0, elements = 0;
  check(trafo_model_get_parameter_count(model.get(), &count, &elements));
  const Architecture& architecture = architectures()[static_cast<size_t>(c.architecture)];
  static constexpr const char* kActivations[] = {"relu", "gelu", "swish"};
  out.show("model         " + path);
  out.show(fmt::format("architecture  {}, {}-norm, {}", architecture.name,
                       c.pre_norm ? "pre" : "post",
                       c.activation >= 0 && c.activation < 3 ? kActivations[c.activation] : "?"));
  out.show(fmt::format("layers        {}",
                       architecture.has_encoder
                           ? fmt::format("{} + {}", c.encoder_layers, c.decoder_layers)
                           : std::to_string(c.decoder_layers)));
  std::string form;
  if (c.norm == TRAFO_NORM_RMS) form += ", RMS norm";
  if (c.positions == TRAFO_POSITIONS_ROTARY)
    form += fmt::format(", rotary positions (theta {:g})", c.rope_theta);
  if (c.ffn == TRAFO_FFN_SWIGLU) form += ", SwiGLU";
  if (c.biases == 0) form += ", no biases";
  if (!form.empty()) out.show("form          " + form.substr(2));
  out.show(fmt::format(
      "width         {}, feed-forward {}, {} heads{}", c.width, c.ffn_width, c.heads,
      c.kv_heads > 0 ? fmt::format(" over {} of keys and values", c.kv_heads) : std::string()));
  out.show(fmt::format("vocabulary    {} subwords, embeddings {}", grouped(c.vocabulary),
                       c.tied_embeddings ? "tied" : "separate"));
  out.show(fmt::format("positions     {}", grouped(c.max_positions)));
  out.show(fmt::format("parameters    {} in {} tensors", grouped(elements), grouped(count)));
  std::vector<trafo_parameter_info> parameters(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    check(trafo_model_get_parameter_info(model.get(), i, &parameters[static_cast<size_t>(i)],
                                         sizeof(trafo_parameter_info)));
  show_weights(parameters, out);
  for (const trafo_parameter_info& parameter : parameters)
    if (tensors)
      out.show(fmt::format("  {:<48} {}{}", parameter.name, shape_of(parameter),
                           parameter.dtype == TRAFO_INT8 ? " int8" : ""));
}

void show_vocabulary(const std::string& path, LineWriter& out) {
  const auto tokenizer = make<Tokenizer>(trafo_tokenizer_load, path.data(), path.size());
  int64_t subwords = 0;
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &subwords));
  out.show("vocabulary    " + path);
  std::string first;
  for (int32_t id = 0; id < std::min<int64_t>(subwords, 12); ++id) {
    char* subword = nullptr;
    size_t length = 0;
    check(trafo_tokenizer_get_token(tokenizer.get(), id, &subword, &length));
    first += (id == 0 ? "" : " ") + std::string(subword, length);
    trafo_string_free(subword);
  }
  out.show(fmt::format("subwords      {}: {} ...", grouped(subwords), first));
}

std::string first_line(const fs::path& path) {
  std::ifstream in = open_run_file(path.string());
  std::string line;
  std::getline(in, line);
  return line;
}

// state.json is the library's own: shown as far as its fields are plain.
void show_state(const fs::path& path, LineWriter& out) {
  constexpr size_t kMostBytes = size_t{1} << 20, kMostFields = 256;
  std::ifstream in = open_run_file(path.string());
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  // An ordered object looks for every field among all others: first whether there are few.
  const auto fields = nlohmann::json::parse(text, nullptr, false);
  if (text.size() > kMostBytes || !fields.is_object() || fields.size() > kMostFields)
    usage_error(path.string() + ": is not a state file");
  const auto state = nlohmann::ordered_json::parse(text, nullptr, false);
  for (const auto& [key, value] : state.items())
    if (value.is_primitive()) out.show(fmt::format("  {:<22} {}", key, value.dump()));
}

void show_checkpoint(const std::string& path, const std::string& vocabulary, bool tensors,
                     LineWriter& out) {
  out.show("checkpoint    " + path);
  show_model(path + "/" + kModelFile, vocabulary, tensors, out);
  if (fs::exists(path + "/state.json")) {
    out.show("state");
    show_state(path + "/state.json", out);
  }
}

void show_run(const std::string& path, bool tensors, LineWriter& out) {
  check_run_files(path);
  out.show("run           " + path);
  std::string list;
  for (const int64_t update : checkpoints_of(path))
    list += (list.empty() ? "" : ", ") + grouped(update);
  out.show("checkpoints   " + (list.empty() ? std::string("none") : list));
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name == "latest" || name.starts_with("best-"))
      out.show(fmt::format("{:<13} {}", name, first_line(entry.path())));
  }
  if (fs::exists(path + "/config.yml")) {
    const Settings settings = Settings::from_yaml(path + "/config.yml");
    for (const char* name : {"task", "learn-rate", "lr-decay", "mini-batch-words", "seed"})
      if (settings.has(name)) out.show(fmt::format("{:<13} {}", name, settings.text(name)));
  }
  const std::string vocabulary = fs::exists(path + "/vocab.spm") ? path + "/vocab.spm" : "";
  if (!vocabulary.empty()) show_vocabulary(vocabulary, out);
  const std::string checkpoint = usual_checkpoint(path);
  if (!checkpoint.empty()) show_checkpoint(checkpoint, vocabulary, tensors, out);
}

bool is_safetensors(const std::string& path) {
  // Eight bytes of header length, then JSON.
  char head[9] = {};
  std::ifstream in = open_run_file(path);
  in.read(head, sizeof head);
  return in.gcount() == sizeof head && head[8] == '{';
}

int info(const InfoArguments& arguments) {
  const std::string& path = arguments.path;
  LineWriter out("-");
  if (!fs::exists(path)) usage_error(path + ": no such file or directory");
  if (fs::is_directory(path)) {
    if (fs::exists(path + "/ckpt"))
      show_run(path, arguments.tensors, out);
    else if (fs::exists(path + "/" + kModelFile))
      show_checkpoint(path, "", arguments.tensors, out);
    else
      usage_error(path + ": is neither a run directory nor a checkpoint");
  } else if (is_safetensors(path) || path.ends_with(".safetensors")) {
    show_model(path, "", arguments.tensors, out);
  } else {
    show_vocabulary(path, out);
  }
  out.finish();
  return kDone;
}

}  // namespace

Action add_info(CLI::App& app) {
  auto arguments = std::make_shared<InfoArguments>();
  app.add_option("path", arguments->path,
                 "run directory, checkpoint, model.safetensors or vocab.spm (default run)")
      ->type_name("PATH");
  app.add_option("-m,--model", arguments->path, "the same")->type_name("PATH");
  app.add_flag("--tensors", arguments->tensors, "list every tensor");
  return [arguments] { return info(*arguments); };
}

}  // namespace translate_train
