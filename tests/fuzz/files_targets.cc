// safetensors, checkpoints and configurations.
#include <charconv>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/strings/json.h"
#include "engine/formats/hf/directory.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/io/checksum.h"
#include "engine/io/manifest.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_header.h"
#include "engine/io/temporary_name.h"
#include "engine/models/model_config.h"
#include "engine/models/model_io.h"
#include "engine/runtime/context.h"
#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/checkpoint/state.h"
#include "engine/train/step/gemm_cache.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"
#include "tests/support/model_forms.h"

namespace trafo::fuzz {
namespace {

constexpr std::string_view kSealedStart = R"({"__metadata__":{"trafo.header_crc32":")";
constexpr int64_t kUpdate = 100;

// Length, header, payload; a header of ours gets the checksum that fits.
std::string assemble(std::string header, std::string_view payload) {
  if (header.starts_with(kSealedStart) && header.size() >= kSealedStart.size() + 8)
    seal_text(header, kSealedStart.size());
  uint64_t size = header.size();
  std::string file;
  for (int i = 0; i < 8; ++i, size >>= 8) file += static_cast<char>(size & 0xff);
  return file + header + std::string(payload);
}

void read_all(const SafetensorsReader& reader) {
  for (const TensorInfo& info : reader.tensors()) {
    std::vector<std::byte> values(info.bytes);
    attempt([&] { reader.read(info, values); });
    expect(reader.find(info.name) == &info, "a tensor is not found by its name");
  }
  const bool whole = attempt([&] { reader.verify(); });
  if (!reader.has_checksums()) expect(whole, "verify without checksums");
  expect(!reader.find("no such tensor"), "a tensor that is not there is found");
  attempt([&] { reader.at("no such tensor"); });
}

// Wrong words are refused; what is read comes out again as it was.
void read_config(const std::string& text) {
  ModelConfig config;
  if (!attempt([&] { config = model_config_from_json(text); })) return;
  expect(model_config_from_json(to_json(config)) == config, "a configuration changes when written");
}

RunState sample_state() {
  RunState state;
  state.trainer.update = kUpdate;
  state.best = {{"bleu", BestMetric{12.5, 90}}, {"ce-mean-words", std::nullopt}};
  state.stalled_by_metric["bleu"] = 1;
  return state;
}

RunIdentity sample_identity() {
  return {0x1234, "89abcdef", R"({"batch_tokens":4096,"seed":1})"};
}

Context& context() {
  static Context one(make_cpu_backend(1));
  return one;
}

std::string sample_model() {
  const auto model = make_model(context(), testing::smallest_config(8), 1);
  MemorySink sink;
  write_model(sink, context(), *model);
  return text_of(sink.take());
}

std::string header_of(const std::string& file) {
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i)
    size = size << 8 | static_cast<unsigned char>(file[static_cast<size_t>(i)]);
  return file.substr(8, size);
}

// A stream with the sums that fit, of the parts of the input.
std::string stream_of(Parts& parts) {
  std::string list, contents;
  for (const char* name : {kStateFile, kModelFile, kOptimizerFile}) {
    std::string part(name == kOptimizerFile ? parts.rest() : parts.part());
    if (name != kStateFile) {
      const size_t end = std::min(part.find('\n'), part.size());
      part = assemble(part.substr(0, end),
                      std::string_view(part).substr(std::min(end + 1, part.size())));
    }
    list += concat(list.empty() ? "" : ",", R"({"name":")", name, R"(","bytes":)", part.size(),
                   R"(,"crc32":")", crc32_text(crc32(bytes_of(part))), "\"}");
    contents += part;
  }
  return "trafo checkpoint 1\n[" + list + "]\n" + contents;
}

void read_stream(std::string_view bytes) {
  const auto content = bytes_of(bytes);
  attempt([&] {
    const CheckpointStream stream({content.begin(), content.end()});
    const CheckpointContent parts = stream.content();
    stream.kernels();
    decode_state(parts.state, parts.label);
    read_all(parts.weights);
    read_all(parts.optimizer);
    load_model(context(), parts.weights, std::nullopt);
  });
}

void read_state(const std::string& text) {
  SavedState saved;
  if (!attempt([&] { saved = decode_state(text, "state.json"); })) return;
  attempt([&] { check_identity(saved.identity, sample_identity(), "here"); });
  attempt([&] { decode_state(encode_state(saved.state, saved.identity), "again"); });
}

void read_manifest_text(std::string text) {
  constexpr std::string_view kStart = R"({"crc32":")";
  if (text.starts_with(kStart) && text.size() >= kStart.size() + 8) seal_text(text, kStart.size());
  std::vector<ManifestEntry> files;
  if (attempt([&] { files = parse_manifest(text, kUpdate, "manifest.json"); }))
    expect(encode_manifest(kUpdate, files) == text, "a manifest changes when written");
}

void read_run_directory(std::string_view pointer, std::string_view manifest,
                        std::string_view file) {
  const std::filesystem::path run = folder().path() / "run";
  std::filesystem::create_directories(run / "ckpt" / "100");
  folder().write("run/latest", pointer);
  folder().write("run/ckpt/100/manifest.json", manifest);
  folder().write("run/ckpt/100/state.json", file);
  const CheckpointDirectory checkpoints(run);
  attempt([&] { checkpoints.read_pointer("latest"); });
  attempt([&] { checkpoints.newest_valid(); });
  attempt([&] { checkpoints.verify(kUpdate); });
  attempt([&] { checkpoints.read_text(kUpdate, "state.json", limits::kConfigBytes); });
}

}  // namespace

void run_safetensors(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte();
  std::string file(parts.rest());
  if (mode % 2 == 0) {
    const std::string header(parts.part());
    file = assemble(header, parts.rest());
  }
  if (mode & 2) {
    const std::filesystem::path path = folder().write("foreign", file);
    attempt([&] {
      const SafetensorsReader reader = SafetensorsReader::open_foreign(path);
      read_all(reader);
      for (const TensorInfo& info : reader.tensors())
        attempt([&] { interop::read_floats(reader, info); });
    });
    return;
  }
  attempt([&] {
    const SafetensorsReader reader =
        (mode & 4) == 0   ? SafetensorsReader::from_memory(bytes_of(file), "input")
        : (mode & 8) == 0 ? SafetensorsReader::open(folder().write("file", file))
                          : SafetensorsReader::open_no_follow(folder().write("file", file));
    read_all(reader);
    load_model(context(), reader, std::nullopt);
  });
}

void run_checkpoint(Bytes input) {
  Parts parts(input);
  switch (parts.byte() % 6) {
    case 0:
      return read_manifest_text(std::string(parts.rest()));
    case 1:
      return read_state(std::string(parts.rest()));
    case 2:
      return read_stream(stream_of(parts));
    case 3:
      return read_stream(parts.rest());
    case 4: {
      std::string text(parts.rest());
      constexpr std::string_view kTitle = "trafo-gemm-cache 1 ";
      if (text.size() >= kTitle.size() + 8) seal_text(text, kTitle.size());
      GemmCache cache;
      if (attempt([&] { cache = decode_gemm_cache(text, "plans"); }))
        expect(encode_gemm_cache(cache).size() <= 2 * text.size() + 100, "plans grow");
      return;
    }
    default: {
      const std::string_view pointer = parts.part(), manifest = parts.part();
      attempt([&] { parse_temporary_name(pointer); });
      return read_run_directory(pointer, manifest, parts.rest());
    }
  }
}

void run_config(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte();
  const std::string text(parts.rest());
  if (mode % 2 == 0) return read_config(text);
  const std::filesystem::path file = folder().write("config.json", text);
  attempt([&] {
    const interop::ConfigReader config(file);
    attempt([&] { config.integer("integer", -5, 5); });
    attempt([&] { config.number("number", 1.0); });
    attempt([&] { config.flag("flag", true); });
    attempt([&] { config.text("text"); });
    attempt([&] { config.demand("flag", true, false); });
    attempt([&] { config.inside("inside").number("number"); });
    attempt([&] { interop::activation_from_name(config, "text"); });
  });
}

std::vector<Seed> safetensors_seeds() {
  const std::string model = sample_model();
  const std::string header = header_of(model);
  const std::string foreign =
      R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]}})";
  const std::string none(1, '\0'), raw(1, '\1'), other(1, '\2');
  return {{"model", none + header + "\xff" + model.substr(8 + header.size())},
          {"model-raw", raw + model},
          {"foreign", other + foreign + "\xff" + "12345678"},
          {"metadata", none + R"({"__metadata__":{"a":"b"}})" + "\xff"},
          {"plain",
           none + R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})" + "\xff" + "1234"}};
}

std::vector<Seed> checkpoint_seeds() {
  const std::string state = encode_state(sample_state(), sample_identity());
  const std::string model = sample_model(), header = header_of(model);
  const std::vector<ManifestEntry> files = {
      {"state.json", state.size(), crc32_text(crc32(bytes_of(state)))}};
  const std::string manifest = encode_manifest(kUpdate, files);
  const std::string body = header + "\n" + model.substr(8 + header.size());
  const GemmCache kernels{"library 1", {GemmChoice{}}};
  const auto mode = [](char number) { return std::string(1, number); };
  Parts parts(std::string_view{});
  const std::string stream_parts = state + "\xff" + header + "\n\xff" + header + "\n";
  Parts whole(stream_parts);
  return {{"manifest", mode(0) + manifest},
          {"state", mode(1) + state},
          {"stream-parts", mode(2) + state + "\xff" + body + "\xff" + body},
          {"stream", mode(3) + stream_of(whole)},
          {"plans", mode(4) + encode_gemm_cache(kernels)},
          {"directory", mode(5) + "100\n\xff" + manifest + "\xff" + state}};
}

std::vector<Seed> config_seeds() {
  ModelConfig llama = testing::smallest_config(8);
  llama.architecture = Architecture::decoder_lm;
  llama.norm = Norm::rms;
  llama.positions = Positions::rotary;
  llama.ffn = FeedForward::swiglu;
  llama.activation = Activation::silu;
  llama.biases = false;
  const std::string ours(1, '\0'), theirs(1, '\1');
  return {
      {"model", ours + to_json(testing::smallest_config(8))},
      {"llama", ours + to_json(llama)},
      {"reader",
       theirs + R"({"integer":3,"number":1.5,"flag":true,"text":"relu","inside":{"number":2}})"},
      {"deep", theirs + R"({"inside":)" + std::string(20, '[') + std::string(20, ']') + "}"}};
}

}  // namespace trafo::fuzz
