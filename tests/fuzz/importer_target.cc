// Model and adapter directories of other programs: one file of a good directory is the input; none
// at all: it is missing.
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/interop.h"
#include "engine/formats/peft/peft.h"
#include "engine/models/adapter.h"
#include "engine/runtime/context.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"
#include "tests/support/model_forms.h"

namespace trafo::fuzz {
namespace {

namespace fs = std::filesystem;

struct Good {
  const char* format;
  fs::path directory;
  std::vector<std::string> names;  // of its files, in order
  std::vector<std::string> contents;
  std::shared_ptr<const interop::HostModel> host;
  std::shared_ptr<Model> model;
  Tokenizer tokenizer;
};

ModelConfig config_of(const char* format, int64_t vocabulary) {
  ModelConfig config = testing::smallest_config(vocabulary);
  const std::string_view name = format;
  if (name == "marian" || name == "ctranslate2" || name == "pegasus") {
    config.pre_norm = name == "pegasus";
    config.activation = Activation::relu;
    return config;
  }
  if (name == "modernbert") return testing::modernbert_of(config, EncoderHead::masked_lm);
  config.architecture = Architecture::decoder_lm;
  config.pre_norm = true;
  config.activation = Activation::gelu;
  if (name == "llama" || name == "gguf" || name == "resaved" || name == "peft")
    return testing::llama_of(config);
  return config;
}

Context& context() {
  static Context one(make_cpu_backend(1));
  return one;
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// As transformers saves a large model: two files, a list of them, and no tokenizer.model.
void save_again(const fs::path& directory) {
  std::vector<TensorEntry> parts[2];
  std::vector<std::vector<std::byte>> bytes;
  Json map;
  const fs::path whole = directory / "model.safetensors";
  {
    const auto reader = SafetensorsReader::open(whole);
    bytes.reserve(reader.tensors().size());
    for (const TensorInfo& info : reader.tensors()) {
      reader.read(info, bytes.emplace_back(info.bytes));
      const size_t part = bytes.size() % 2;
      parts[part].push_back({info.name, info.dtype, info.shape, bytes.back()});
      map[info.name] = part == 0 ? "a.safetensors" : "b.safetensors";
    }
  }
  save_safetensors(directory / "a.safetensors", parts[0]);
  save_safetensors(directory / "b.safetensors", parts[1]);
  Json list;
  list["weight_map"] = std::move(map);
  interop::write_json(directory / "model.safetensors.index.json", list);
  fs::remove(whole);
  fs::remove(directory / "tokenizer.model");
  // Without the character map, which is most of the file and fuzzed as a part of tokenizer.model.
  Json tokenizer = parse_json(content(directory / "tokenizer.json"), "fuzz", "tokenizer.json",
                              {.bytes = 1u << 22});
  tokenizer["normalizer"] = nullptr;
  interop::write_json(directory / "tokenizer.json", tokenizer);
}

// Leaves the model without an adapter, like the base that an adapter is loaded into.
void write_adapter(Model& model, const fs::path& directory) {
  add_adapter(context(), model, {.rank = 2}, 1);
  save_adapter(context(), model, directory);
  remove_adapter(context(), model);
}

Good make_good(const char* format) {
  TokenizerTrainOptions options;
  options.vocab_size = 24;
  options.hard_vocab_limit = false;
  if (std::string_view(format) == "gguf" || std::string_view(format) == "resaved") {
    options.vocab_size = 280;
    options.model = TokenizerModel::bpe;
    options.byte_fallback = true;
  }
  const std::vector<std::string> lines = {"ab cd ab", "cd ab cd", "b d b d"};
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(lines), options);
  const std::shared_ptr<Model> model =
      make_model(context(), config_of(format, tokenizer.vocab_size()), 1);
  auto copy = std::make_shared<interop::HostModel>(interop::copy_to_host(context(), *model));
  const interop::HostModel& host = *copy;
  Good good{format, folder().path() / format, {}, {}, std::move(copy), model, tokenizer};
  fs::create_directories(good.directory);
  const std::string_view name = format;
  if (name == "marian") interop::write_marian(host, tokenizer, good.directory);
  if (name == "pegasus") interop::write_pegasus(host, tokenizer, good.directory);
  if (name == "peft") write_adapter(*model, good.directory);
  if (name == "gpt2") interop::write_gpt2(host, tokenizer, good.directory);
  if (name == "llama" || name == "resaved") interop::write_llama(host, tokenizer, good.directory);
  if (name == "resaved") save_again(good.directory);
  if (name == "modernbert") interop::write_bert(host, tokenizer, good.directory);
  if (name == "ctranslate2")
    interop::write_ctranslate2(host, tokenizer, ExportWeights::float32, good.directory);
  if (name == "gguf") interop::write_gguf(host, tokenizer, ExportWeights::float16, good.directory);
  for (const auto& entry : fs::directory_iterator(good.directory))
    good.names.push_back(entry.path().filename().string());
  std::sort(good.names.begin(), good.names.end());
  for (const std::string& file : good.names)
    good.contents.push_back(content(good.directory / file));
  return good;
}

std::vector<Good>& directories() {
  // Inputs of the corpus name them by their place.
  static std::vector<Good> all = {
      make_good("marian"),      make_good("gpt2"), make_good("llama"),
      make_good("ctranslate2"), make_good("gguf"), make_good("resaved"),
      make_good("pegasus"),     make_good("peft"), make_good("modernbert")};
  return all;
}

}  // namespace

void run_importer(Bytes input) {
  Parts parts(input);
  Good& good = directories()[parts.byte() % directories().size()];
  const size_t place = parts.byte() % good.names.size();
  const std::string name = std::string(good.format) + "/" + good.names[place];
  if (parts.empty())
    fs::remove(folder().path() / name);
  else
    folder().write(name, parts.rest());
  const bool taken = attempt([&] {
    const std::string_view format = good.format;
    if (format == "ctranslate2")
      interop::read_back_ctranslate2(*good.host, ExportWeights::float32, good.directory);
    else if (format == "gguf")
      interop::read_back_gguf(*good.host, good.tokenizer, ExportWeights::float16, good.directory);
    else if (format == "peft")
      load_adapter(context(), *good.model, good.directory);
    else
      import_model(context(), good.directory);
  });
  if (good.model->adapter().has_value()) {
    expect(taken, "an adapter that was refused is in the model");
    remove_adapter(context(), *good.model);
  }
  folder().write(name, good.contents[place]);
}

std::vector<Seed> importer_seeds() {
  std::vector<Seed> seeds;
  for (size_t format = 0; format < directories().size(); ++format) {
    const Good& good = directories()[format];
    for (size_t place = 0; place < good.names.size(); ++place) {
      const std::string head{static_cast<char>(format), static_cast<char>(place)};
      if (good.contents[place].size() <= 16384)
        seeds.push_back(
            {std::string(good.format) + "-" + good.names[place], head + good.contents[place]});
    }
  }
  return seeds;
}

}  // namespace trafo::fuzz
