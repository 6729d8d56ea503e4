// Writes small random models of every form as ONNX, with what the engine computes for a batch:
//
//   onnx_cases FOLDER
//
// FOLDER gets, for every case, the exported directory NAME and the file NAME.f32, and cases.json:
//   [{"name", "sources": [[id, ..], ..] (encoder-decoder), "inputs": [[id, ..], ..] of the decoder,
//     "vocabulary", "heads", "kv_heads", "head_dim", "layers", "encoder": bool}, ..]
// NAME.f32 has the logits of all inputs, one row of `vocabulary` after the other.
#include <cstdio>

#include "engine/decode/packing.h"
#include "engine/decode/search.h"
#include "tests/interop/interop_support.h"

namespace trafo::testing {
namespace {

struct Case {
  std::string name;
  ModelConfig config;
};

ModelConfig base(Architecture architecture) {
  ModelConfig config = config_of(architecture, true);
  config.width = 32;
  config.ffn_width = 48;
  config.heads = 4;
  config.max_positions = 40;
  return config;
}

std::vector<Case> translation_cases() {
  std::vector<Case> cases;
  for (const bool pre_norm : {true, false})
    for (const Activation activation :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf})
      for (const bool tied : {true, false}) {
        ModelConfig config = base(Architecture::encoder_decoder);
        config.pre_norm = pre_norm;
        config.activation = activation;
        config.tied_embeddings = tied;
        config.output_bias = tied != pre_norm;
        config.encoder_layers = tied ? 3 : 1;
        config.heads = activation == Activation::relu ? 1 : 4;
        config.norm_epsilon = pre_norm ? 1e-5 : 1e-2;
        cases.push_back({concat("translation-", pre_norm ? "pre-" : "post-", enum_name(activation),
                                tied ? "-tied" : "-untied"),
                         config});
      }
  return cases;
}

// GPT-2's form, Llama's, and forms that no class of transformers has.
std::vector<Case> lm_cases() {
  std::vector<Case> cases;
  for (const Positions positions : {Positions::standard, Positions::rotary})
    for (const bool pre_norm : {true, false})
      for (const int form : {0, 1, 2, 3}) {
        ModelConfig config = base(Architecture::decoder_lm);
        config.pre_norm = pre_norm;
        config.positions = positions;
        config.norm = form == 1 || form == 2 ? Norm::rms : Norm::layer;
        config.biases = form == 0;
        config.ffn = form < 2 ? FeedForward::plain : FeedForward::swiglu;
        config.activation = form == 0 ? Activation::gelu : Activation::silu;
        config.tied_embeddings = form % 2 == 0;
        config.output_bias = pre_norm;
        config.norm_epsilon = pre_norm ? 1e-6 : 1e-2;
        if (positions == Positions::rotary) {
          config.kv_heads = std::array{0, 1, 2, 4}[static_cast<size_t>(form)];
          config.rope_theta = pre_norm ? 1e4 : 5e5;
        }
        cases.push_back(
            {concat("lm-", enum_name(positions), pre_norm ? "-pre-" : "-post-",
                    enum_name(config.norm), "-", enum_name(config.ffn), "-",
                    config.biases ? "biases-" : "", spec_of(config).decoder.attention.key_heads),
             config});
        if (form == 0 || form == 2) {
          cases.push_back(cases.back());
          cases.back().name += "-qk-norm";
          cases.back().config.qk_norm = QkNorm::head;
        }
      }
  return cases;
}

// Sentences of 1 to `longest` tokens.
std::vector<SentencePair> sentences(const ModelConfig& config, int64_t longest) {
  PhiloxStream random(7, 11);
  std::vector<SentencePair> pairs;
  const auto sentence = [&](int64_t length) {
    std::vector<int32_t> ids;
    for (int64_t i = 1; i < length; ++i)
      ids.push_back(
          static_cast<int32_t>(random.next_u32() % static_cast<uint32_t>(config.vocabulary)));
    ids.push_back(tokenizer().eos_id());
    return ids;
  };
  for (const auto& [source, target] :
       {std::pair{longest, int64_t{6}}, {int64_t{1}, longest}, {longest / 2, longest / 2}})
    pairs.push_back({sentence(source), sentence(target)});
  return pairs;
}

FileJson sequences(Context& context, const Tensor& ids, const Tensor& ends) {
  const auto values = context.values<int32_t>(ids), offsets = context.values<int32_t>(ends);
  FileJson lists = FileJson::array();
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    lists.push_back(std::vector(values.begin() + offsets[i], values.begin() + offsets[i + 1]));
  return lists;
}

FileJson write_case(Context& context, const Case& each, const fs::path& folder) {
  const auto model = random_model(context, each.config);
  export_model(context, *model, tokenizer(), ExportFormat::onnx, folder / each.name);
  export_model(context, *model, tokenizer(), ExportFormat::onnx, folder / (each.name + "-int8"),
               ExportWeights::int8);
  const std::vector<SentencePair> pairs =
      sentences(each.config, longest_source(spec_of(each.config), each.config.max_positions));
  std::vector<const SentencePair*> pointers;
  for (const SentencePair& pair : pairs) pointers.push_back(&pair);
  const NoGrad no_grad(context);
  const SpecialTokens tokens{.bos = tokenizer().bos_id(),
                             .eos = tokenizer().eos_id(),
                             .pad = tokenizer().pad_id(),
                             .unk = tokenizer().unk_id()};
  const Batch batch = pack_pairs(context, spec_of(each.config), tokens, pointers);
  const auto logits = context.values<float>(model->logits(context, batch));
  write_file_atomically(folder / (each.name + ".f32"), std::as_bytes(std::span(logits)));
  const ModelConfig& config = each.config;
  const ModelSpec spec = spec_of(config);
  FileJson json{{"name", each.name},
                {"encoder", spec.has_encoder()},
                {"vocabulary", config.vocabulary},
                {"layers", config.decoder_layers},
                {"heads", config.heads},
                {"kv_heads", spec.decoder.attention.key_heads},
                {"head_dim", spec.decoder.attention.head_dim},
                {"inputs", sequences(context, batch.target_in, batch.target_cu_seqlens)}};
  if (spec.has_encoder())
    json["sources"] = sequences(context, batch.source_ids, batch.source_cu_seqlens);
  return json;
}

void write_cases(const fs::path& folder) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  FileJson all = FileJson::array();
  for (const auto& cases : {translation_cases(), lm_cases()})
    for (const Case& each : cases) all.push_back(write_case(*context, each, folder));
  write_file_atomically(folder / "cases.json", all.dump());
}

}  // namespace
}  // namespace trafo::testing

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: onnx_cases FOLDER\n");
    return 2;
  }
  try {
    trafo::testing::write_cases(arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onnx_cases: %s\n", error.what());
    return 1;
  }
  return 0;
}
