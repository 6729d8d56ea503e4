// Directories of other programs in all the forms they come in, places that cannot be written to,
// and what the parts of the export refuse by themselves.
#include <cmath>
#include <map>
#include <set>

#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/tensor_map.h"
#include "engine/models/generated/model_config_fields.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

class InteropFormsTest : public InteropTest {
 protected:
  // A decoder without an output bias: GPT-2's form has the same tensors.
  std::unique_ptr<Model> unbiased_lm(bool tied) {
    ModelConfig config = config_of(Architecture::decoder_lm, true);
    config.tied_embeddings = tied;
    config.output_bias = false;
    return model_of(config);
  }
};

TEST_F(InteropFormsTest, FormatsHaveNames) {
  EXPECT_STREQ(enum_name(ExportFormat::hf_marian), "hf-marian");
  EXPECT_STREQ(enum_name(ExportFormat::hf_gpt2), "hf-gpt2");
  EXPECT_STREQ(enum_name(ExportFormat::hf_llama), "hf-llama");
  EXPECT_STREQ(enum_name(ExportFormat::ctranslate2), "ctranslate2");
  EXPECT_STREQ(enum_name(ExportFormat::gguf), "gguf");
  EXPECT_STREQ(enum_name(ExportFormat::hf_compressed), "hf-compressed");
  EXPECT_STREQ(enum_name(ExportFormat::hf_pegasus), "hf-pegasus");
  EXPECT_STREQ(enum_name(ExportFormat::hf_m2m100), "hf-m2m100");
  EXPECT_STREQ(enum_name(ExportFormat::hf_mbart), "hf-mbart");
  EXPECT_STREQ(enum_name(ExportFormat::hf_bart), "hf-bart");
  EXPECT_STREQ(enum_name(ExportFormat::hf_t5), "hf-t5");
  EXPECT_STREQ(enum_name(ExportWeights::bfloat16), "bfloat16");
  EXPECT_STREQ(enum_name(ExportWeights::q4_0), "q4_0");
  EXPECT_STREQ(enum_name(ExportWeights::int4), "int4");
  EXPECT_STREQ(enum_name(static_cast<ExportWeights>(9)), "unknown");
  EXPECT_FALSE(is_known(static_cast<ExportWeights>(-1)));
  EXPECT_STREQ(enum_name(ExportFormat::onnx), "onnx");
  const auto unknown = static_cast<ExportFormat>(77);
  EXPECT_STREQ(enum_name(unknown), "unknown");
  const auto model = make_model(*context_, config_of(Architecture::decoder_lm, true), 1);
  expect_error(ErrorCode::invalid_argument, "unknown format 77",
               [&] { exported(*model, unknown, "x"); });
  expect_error(ErrorCode::invalid_argument, "unknown type of weights 9", [&] {
    export_model(*context_, *model, tokenizer(), ExportFormat::ctranslate2, path("x"),
                 static_cast<ExportWeights>(9));
  });
  expect_error(ErrorCode::unsupported,
               "hf-gpt2 cannot express weights of the type int8 (--weights), it has float32", [&] {
                 export_model(*context_, *model, tokenizer(), ExportFormat::hf_gpt2, path("x"),
                              ExportWeights::int8);
               });
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(InteropFormsTest, PlacesThatNoDirectoryCanBeMadeAt) {
  const auto model = make_model(*context_, config_of(Architecture::decoder_lm, true), 1);
  const auto refused = [&](const fs::path& place, const char* text) {
    expect_error(ErrorCode::invalid_argument, text, [&] {
      export_model(*context_, *model, tokenizer(), ExportFormat::hf_gpt2, place);
    });
  };
  fs::create_directory(path("here"));
  refused(path("here") / ".", "is not the name of a new directory");
  refused(path("here") / "..", "is not the name of a new directory");
  refused("/", "is not the name of a new directory");
  write_file_atomically(path("file"), std::string_view("mine"));
  refused(path("file"), "exists and is not an empty directory");
  fs::create_symlink(path("here"), path("link"));
  refused(path("link"), "exists and is not an empty directory");
  EXPECT_EQ(read_text_file(path("file"), 10), "mine");
  EXPECT_TRUE(fs::is_empty(path("here")));
}

TEST_F(InteropFormsTest, PartsOfTheLlamaFormAreNamed) {
  ModelConfig rotary = config_of(Architecture::decoder_lm, true);
  rotary.encoder_layers = ModelConfig{}.encoder_layers;
  rotary.positions = Positions::rotary;
  refused(rotary, ExportFormat::hf_gpt2, "rotary positions");
  ModelConfig gated = config_of(Architecture::decoder_lm, true);
  gated.ffn = FeedForward::swiglu;
  gated.activation = Activation::silu;
  refused(gated, ExportFormat::ctranslate2, "SwiGLU");
  ModelConfig bare = config_of(Architecture::decoder_lm, true);
  bare.biases = false;
  refused(bare, ExportFormat::hf_gpt2, "without biases");
  ModelConfig learned = llama_config(0, true);
  learned.positions = Positions::standard;
  refused(learned, ExportFormat::hf_llama, "positions");
  for (const auto change : {+[](ModelConfig& c) { c.norm = Norm::rms; },
                            +[](ModelConfig& c) { c.positions = Positions::rotary; },
                            +[](ModelConfig& c) { c.ffn = FeedForward::swiglu; },
                            +[](ModelConfig& c) { c.biases = false; }}) {
    ModelConfig config = config_of(Architecture::encoder_decoder, true);
    change(config);
    expect_error(ErrorCode::invalid_argument, "are for decoder-lm", [&] { validate(config); });
  }
}

TEST_F(InteropFormsTest, Ctranslate2TakesEveryActivation) {
  for (const Activation activation :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    ModelConfig config = config_of(Architecture::decoder_lm, true);
    config.activation = activation;
    const std::string name = enum_name(activation);
    EXPECT_EQ(exported(*model_of(config), ExportFormat::ctranslate2, name), 0);
    // The number is in the file: another activation is another model.
    config.activation = activation == Activation::relu ? Activation::silu : Activation::relu;
    const interop::HostModel other = interop::copy_to_host(*context_, *model_of(config));
    expect_error(ErrorCode::corrupt_file, "decoder/activation is ", [&] {
      interop::read_back_ctranslate2(other, ExportWeights::float32, path(name));
    });
  }
}

TEST_F(InteropFormsTest, ACtranslate2FileCutShortIsCorrupt) {
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  const interop::HostModel host = interop::copy_to_host(*context_, *model);
  for (const ExportWeights weights : {ExportWeights::float32, ExportWeights::int8}) {
    const fs::path directory = path(enum_name(weights));
    export_model(*context_, *model, tokenizer(), ExportFormat::ctranslate2, directory, weights);
    const fs::path file = directory / "model.bin";
    const std::string whole = read_text_file(file, 1 << 24);
    for (size_t size = whole.size() - 1; size > 16; size = size * 9 / 10) {
      write_file_atomically(file, whole.substr(0, size));
      EXPECT_EQ(code_of([&] { interop::read_back_ctranslate2(host, weights, directory); }),
                ErrorCode::corrupt_file)
          << size;
    }
  }
}

TEST_F(InteropFormsTest, Gpt2OfTheHubHasShorterNames) {
  for (const bool tied : {true, false}) {
    const auto model = unbiased_lm(tied);
    const std::string name = concat("hub", tied);
    exported(*model, ExportFormat::hf_gpt2, name);
    edit_tensors(path(name), [](std::vector<Stored>& all) {
      for (Stored& tensor : all)
        if (tensor.name.starts_with("transformer.")) tensor.name.erase(0, 12);
      all.push_back({"h.0.attn.bias", "U8", {1, 1, 2, 2}, std::vector<std::byte>(4)});
      all.push_back({"h.0.attn.masked_bias", "F32", {}, std::vector<std::byte>(4)});
    });
    EXPECT_EQ(weight_bytes(*context_, *import_model(*context_, path(name)).model),
              weight_bytes(*context_, *model));
    broken(*model, ExportFormat::hf_gpt2, ErrorCode::corrupt_file, "has the tensor strange",
           [](const fs::path& directory) {
             edit_tensors(directory, [](std::vector<Stored>& all) {
               all.push_back({"strange", "F32", {0}, {}});
             });
           });
  }
}

TEST_F(InteropFormsTest, ATensorTooManyIsNamedWhateverIsTied) {
  for (const bool tied : {true, false})
    broken(*model_of(llama_config(1, tied)), ExportFormat::hf_llama, ErrorCode::corrupt_file,
           "has the tensor strange", [](const fs::path& directory) {
             edit_tensors(directory, [](std::vector<Stored>& all) {
               all.push_back({"strange", "F32", {0}, {}});
             });
           });
}

// The same numbers in another type are no copy: which one would count?
TEST_F(InteropFormsTest, CopiesAreOfTheTypeOfTheOriginal) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  for (const char* dtype : {"BF16", "F16", "F32"})
    broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file,
           "lm_head.weight and model.shared.weight differ", [&](const fs::path& directory) {
             edit_tensors(directory, [&](std::vector<Stored>& all) {
               Stored copy = find(all, "model.shared.weight");
               copy.name = "lm_head.weight";
               copy.dtype = dtype;
               if (copy.dtype == "F32")
                 std::swap(copy.shape[0], copy.shape[1]);
               else
                 copy.bytes.resize(copy.bytes.size() / 2);
               all.push_back(copy);
             });
           });
}

TEST_F(InteropFormsTest, WhereTheWeightsAreMissing) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  const auto weights = [](const fs::path& directory) { return directory / "model.safetensors"; };
  broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file, "no object weight_map",
         [&](const fs::path& directory) {
           fs::remove(weights(directory));
           write_file_atomically(directory / "model.safetensors.index.json",
                                 std::string_view("{}"));
         });
  broken(*model, ExportFormat::hf_marian, ErrorCode::not_found, "model.safetensors",
         [&](const fs::path& directory) { fs::remove(weights(directory)); });
}

TEST_F(InteropFormsTest, NumbersAreNumbersAndFinite) {
  const auto model = unbiased_lm(true);
  const auto epsilon = [&](const char* value, const char* text) {
    broken(*model, ExportFormat::hf_gpt2, ErrorCode::corrupt_file, text,
           [&](const fs::path& directory) {
             edit_json(directory / "config.json",
                       [](FileJson& json) { json["layer_norm_epsilon"] = "EPSILON"; });
             std::string json = read_text_file(directory / "config.json", 1 << 20);
             json.replace(json.find("\"EPSILON\""), 9, value);
             write_file_atomically(directory / "config.json", json);
           });
  };
  epsilon("\"1e-5\"", "layer_norm_epsilon must be a number");
  for (const char* value : {"1e999", "-1e999", "nan", "Infinity"}) epsilon(value, "config.json");
}

TEST_F(InteropFormsTest, ActivationsByTheirOtherNames) {
  const auto imported_as = [&](const char* name, Activation ours) {
    ModelConfig config = config_of(Architecture::encoder_decoder, false);
    config.activation = ours;
    fs::remove_all(path("named"));
    exported(*model_of(config), ExportFormat::hf_marian, "named");
    edit_json(path("named") / "config.json", [&](FileJson& json) {
      EXPECT_NE(json["activation_function"], name);
      json["activation_function"] = name;
    });
    return import_model(*context_, path("named")).model->config().activation;
  };
  EXPECT_EQ(imported_as("gelu_pytorch_tanh", Activation::gelu), Activation::gelu);
  EXPECT_EQ(imported_as("gelu_fast", Activation::gelu), Activation::gelu);
  EXPECT_EQ(imported_as("gelu_python", Activation::gelu_erf), Activation::gelu_erf);
  EXPECT_EQ(imported_as("silu", Activation::silu), Activation::silu);
}

TEST_F(InteropFormsTest, DoublePrecisionBecomesFloat32) {
  const ModelConfig config = config_of(Architecture::encoder_decoder, false);
  const auto wide = make_model(*context_, config, 5, DType::f64);
  exported(*wide, ExportFormat::hf_marian, "wide");
  const ImportedModel imported = import_model(*context_, path("wide"));
  const ParameterStore &from = wide->parameters(), &to = imported.model->parameters();
  ASSERT_EQ(from.count(), to.count());
  for (size_t i = 0; i < from.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const Tensor &precise = from.value(id), &rounded = to.value(id);
    for (int64_t k = 0; k < precise.numel(); ++k)
      ASSERT_EQ(rounded.data<float>()[k], static_cast<float>(precise.data<double>()[k])) << k;
  }
}

// ---- settings ----

// Another value of a setting that a model of `base` may have; false if it may have no other.
template <class Change>
bool changes_to_another(const ModelConfig& base, ModelConfig& changed, Change&& change) {
  for (int candidate = 0; candidate < 8; ++candidate) {
    changed = base;
    change(changed, candidate);
    try {
      validate(changed);
    } catch (const Error&) {
      continue;
    }
    if (changed != base) return true;
  }
  return false;
}

template <class T>
void set_candidate(T& value, int candidate) {
  if constexpr (std::is_same_v<T, bool>) {
    value = !value;
  } else if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(candidate % 4);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    value = int64_t{64} >> candidate;
  } else if constexpr (std::is_same_v<T, double>) {
    value = candidate % 2 == 0 ? 0.03 : 500.0;
  }
}

// Every setting of a model, also one that will come: a format writes it, so that what is read back
// computes the same, or refuses it by name. The comparison of logits is the last resort, which no
// setting may need.
TEST_F(InteropFormsTest, EverySettingIsWrittenOrRefusedByName) {
  using enum ExportWeights;
  ModelConfig translation = config_of(Architecture::encoder_decoder, true);
  translation.width = 32;
  ModelConfig post = translation, lm = config_of(Architecture::decoder_lm, true);
  post.pre_norm = false;
  lm.output_bias = false;
  ModelConfig llama = llama_config(0, true);
  llama.width = 32;
  llama.ffn_width = 64;
  ModelConfig stretched = llama;
  stretched.qk_norm = QkNorm::head;
  stretched.rope_factor = 4;
  stretched.rope_original_positions = 20;
  stretched.rope_high_turns = 32;
  ModelConfig yarn = stretched;
  yarn.rope_scaling = RopeScaling::yarn;
  const struct {
    ExportFormat format;
    ModelConfig config;
    std::vector<ExportWeights> weights;
    std::set<std::string> written;  // among others
  } kForms[] = {
      {ExportFormat::hf_marian, post, {float32}, {"activation", "encoder_layers"}},
      {ExportFormat::hf_pegasus, translation, {float32}, {"activation", "ffn_width"}},
      {ExportFormat::hf_gpt2, lm, {float32}, {"activation", "norm_epsilon", "tied_embeddings"}},
      {ExportFormat::ctranslate2,
       translation,
       {float32, int8},
       {"activation", "norm_epsilon", "pre_norm", "tied_embeddings", "heads", "encoder_ffn_width"}},
      {ExportFormat::ctranslate2,
       llama,
       {int16},
       {"norm_epsilon", "rope_theta", "kv_heads", "tied_embeddings"}},
      {ExportFormat::hf_llama,
       llama,
       {float32},
       {"norm_epsilon", "rope_theta", "kv_heads", "head_width", "qkv_biases", "rope_factor",
        "qk_norm"}},
      {ExportFormat::hf_llama, stretched, {float32}, {"rope_scaling", "rope_low_turns"}},
      {ExportFormat::hf_llama,
       yarn,
       {float32},
       {"rope_scaling", "rope_magnitude", "rope_low_turns", "rope_high_turns", "rope_factor",
        "rope_original_positions", "head_width"}},
      {ExportFormat::hf_compressed,
       llama,
       {int4},
       {"norm_epsilon", "rope_theta", "kv_heads", "head_width", "qkv_biases", "rope_factor"}},
      {ExportFormat::onnx,
       translation,
       {float32, int8},
       {"activation", "norm_epsilon", "pre_norm", "tied_embeddings", "heads"}},
      {ExportFormat::onnx, llama, {int8}, {"norm_epsilon", "rope_theta", "kv_heads", "qk_norm"}},
  };
  for (const auto& form : kForms) {
    std::set<std::string> written;
    const auto export_as = [&](const ModelConfig& config, const std::string& setting) {
      for (const ExportWeights weights : form.weights) {
        SCOPED_TRACE(concat(enum_name(form.format), " ", setting, " ", enum_name(weights)));
        const fs::path directory = path("setting");
        fs::remove_all(directory);
        try {
          export_model(*context_, *model_of(config), tokenizer(), form.format, directory, weights);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
          EXPECT_TRUE(mentions(error, "cannot express")) << error.what();
          continue;
        }
        written.insert(setting);
      }
    };
    ModelConfig of_fields = form.config;
    for_each_field_of_model(of_fields, [&](const OptionField& field, auto& member) {
      // The tokenizer decides two; a base in few bits is exported as the floats it stands for.
      if (field.name == std::string_view("vocabulary") ||
          field.name == std::string_view("source_vocabulary") ||
          field.name == std::string_view("base_precision"))
        return;
      const auto offset =
          reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(&of_fields);
      using Member = std::remove_reference_t<decltype(member)>;
      ModelConfig changed;
      const auto change = [&](ModelConfig& config, int candidate) {
        set_candidate(*reinterpret_cast<Member*>(reinterpret_cast<char*>(&config) + offset),
                      candidate);
      };
      if (changes_to_another(form.config, changed, change)) export_as(changed, field.name);
    });
    for (const std::string& setting : form.written)
      EXPECT_TRUE(written.contains(setting))
          << enum_name(form.format) << " does not write " << setting;
  }
}

// ---- what the parts refuse ----

TEST_F(InteropFormsTest, LogitsAreComparedWithCare) {
  const ModelConfig config = config_of(Architecture::decoder_lm, true);
  const interop::HostModel a = interop::make_host_model(config);
  interop::HostModel b = interop::make_host_model(config);
  EXPECT_EQ(interop::logit_difference(a, b), 0);
  b.values("decoder.norm.weight")[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(interop::logit_difference(a, b), std::numeric_limits<double>::infinity());
  ModelConfig larger = config;
  larger.vocabulary += 4;
  expect_error(ErrorCode::internal, "different vocabularies",
               [&] { interop::logit_difference(a, interop::make_host_model(larger)); });
  expect_error(ErrorCode::internal, "has no parameter nothing", [&] { a.values("nothing"); });
}

TEST_F(InteropFormsTest, TheOutputBiasMovesOnlyWhereItCan) {
  for (const ModelConfig& config :
       {config_of(Architecture::decoder_lm, false), config_of(Architecture::encoder_decoder, true)})
    expect_error(ErrorCode::internal, "pre-norm decoder",
                 [&] { interop::fold_output_bias(interop::make_host_model(config)); });
  for (const size_t column : {size_t{0}, size_t{5}, size_t{15}}) {
    const auto model = model_of(config_of(Architecture::decoder_lm, true));
    const ParameterStore& parameters = model->parameters();
    parameters.value(parameters.find("decoder.norm.weight")).data<float>()[column] = 0;
    expect_error(ErrorCode::unsupported, concat("decoder.norm.weight[", column, "] is 0"),
                 [&] { exported(*model, ExportFormat::hf_gpt2, "folded"); });
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
}

// For every setting a model in which it is not as usual.
const std::map<std::string_view, void (*)(ModelSpec&)> kUnusual = {
    {"architecture", [](ModelSpec& s) { s.architecture = Architecture::decoder_lm; }},
    {"norm", [](ModelSpec& s) { s.decoder.norm.kind = Norm::rms; }},
    {"positions", [](ModelSpec& s) { s.embedding.positions = PositionTable::learned; }},
    {"feed-forward", [](ModelSpec& s) { s.decoder.feed_forward.gated = true; }},
    {"norm placement", [](ModelSpec& s) { s.decoder.norm.placement = NormPlacement::after; }},
    {"head_width", [](ModelSpec& s) { s.decoder.attention.head_dim = 3; }},
    {"kv_heads", [](ModelSpec& s) { s.decoder.attention.heads = 2; }},
    {"biases", [](ModelSpec& s) { s.decoder.attention.output_bias = false; }},
    {"qk_norm", [](ModelSpec& s) { s.decoder.attention.qk_norm = QkNorm::head; }},
    {"rope_scaling", [](ModelSpec& s) { s.decoder.attention.rotary.emplace().factor = 2; }},
    {"rope_theta", [](ModelSpec& s) { s.decoder.attention.rotary.emplace(); }},
    {"rope_query_growth",
     [](ModelSpec& s) { s.decoder.attention.rotary.emplace().query_growth = 0.1; }},
    {"activation", [](ModelSpec& s) { s.decoder.feed_forward.activation = Activation::silu; }},
    {"norm_epsilon", [](ModelSpec& s) { s.decoder.norm.epsilon = 0.5; }},
    {"no_rope_interval", [](ModelSpec& s) { s.decoder.attention.no_rope_interval = 4; }},
    {"sliding_window", [](ModelSpec& s) { s.decoder.attention.window = 4; }},
    {"rope_local_theta", [](ModelSpec& s) { s.decoder.attention.window_rotary.emplace(); }},
    {"attention_scale", [](ModelSpec& s) { s.decoder.attention.scale = 0.5; }},
    {"attention_soft_cap", [](ModelSpec& s) { s.decoder.attention.soft_cap = 50; }},
    {"logits_soft_cap", [](ModelSpec& s) { s.output.soft_cap = 30; }},
    {"residual_scale", [](ModelSpec& s) { s.decoder.residual_scale = 0.5; }},
    {"logits_divisor", [](ModelSpec& s) { s.output.divisor = 2; }},
    {"embeddings", [](ModelSpec& s) { s.output.tied = false; }},
    {"source_vocabulary", [](ModelSpec& s) { s.embedding.own_sources = 5; }},
    {"embedding_scale", [](ModelSpec& s) { s.embedding.scale = 2; }},
    {"embedding_norm", [](ModelSpec& s) { s.embedding.norm = true; }},
    {"output_bias", [](ModelSpec& s) { s.output.bias = false; }},
    {"token_types", [](ModelSpec& s) { s.embedding.token_types = 2; }},
    {"head", [](ModelSpec& s) { s.head.kind = EncoderHead::token; }},
    {"pooler", [](ModelSpec& s) { s.head.pooler = true; }},
    {"class", [](ModelSpec& s) { s.head.of_class = EncoderClass::roberta; }},
    {"classifier_pooling", [](ModelSpec& s) { s.head.pooling = Pooling::mean; }},
    {"norm_bias", [](ModelSpec& s) { s.decoder.norm.bias = false; }},
    {"first_norm", [](ModelSpec& s) { s.decoder.norm.first = false; }}};

TEST_F(InteropFormsTest, ASettingThatAFormatDoesNotListIsRefused) {
  const std::vector<interop::Setting> settings = interop::settings_of(ModelSpec{});
  interop::Form all;
  for (const interop::Setting& setting : settings) all.push_back({setting.name, "*"});
  for (const interop::Setting& setting : settings) {
    if (setting.every_format) continue;
    SCOPED_TRACE(setting.name);
    ASSERT_TRUE(kUnusual.contains(setting.name));
    ModelSpec spec;
    kUnusual.at(setting.name)(spec);
    EXPECT_EQ(interop::match(spec, {"X", {all}}).form, 0);
    interop::Form others = all;
    std::erase_if(others, [&](const auto& allowed) { return allowed.setting == setting.name; });
    EXPECT_EQ(interop::match(ModelSpec{}, {"X", {others}}).form, 0);
    const interop::Match match = interop::match(spec, {"X", {others}});
    EXPECT_EQ(match.form, -1);
    EXPECT_FALSE(match.refused.empty());
    EXPECT_EQ(interop::match(spec, {"X", {others, all}}).form, 1);
  }
  ModelSpec pruned;  // 16 / 3 is 5, but 3 heads of 5 are not 16 columns
  pruned.decoder.width = 16;
  pruned.decoder.attention = {.heads = 3, .key_heads = 3, .head_dim = 5};
  EXPECT_TRUE(interop::match(pruned, {"X", {{}}}).refused.starts_with("pruned attention heads"));
  ModelSpec epsilon;
  epsilon.decoder.norm.epsilon = 0.5;
  EXPECT_EQ(interop::match(epsilon, {"X", {{{"norm_epsilon", "0.25 0.125"}}}}).refused,
            "norm_epsilon 0.5, it has 0.25 0.125");
}

// Formats have one value for both stacks, but for the sizes.
TEST_F(InteropFormsTest, AnEncoderThatIsAnotherKindOfStackIsRefused) {
  const ModelSpec usual = spec_of(config_of(Architecture::encoder_decoder, true));
  EXPECT_EQ(interop::match(usual, interop::onnx_expressible()).form, 0);
  const auto refused = [&](auto&& change) {
    ModelSpec spec = usual;
    change(*spec.encoder);
    return interop::match(spec, interop::onnx_expressible()).refused;
  };
  EXPECT_EQ(refused([](StackSpec& s) { s.feed_forward.width += 1; }), "");
  EXPECT_EQ(refused([](StackSpec& s) { s.norm.kind = Norm::rms; }),
            "an encoder with another norm than the decoder");
  EXPECT_EQ(refused([](StackSpec& s) {
              s.attention.heads *= 2;
              s.attention.key_heads *= 2;
              s.attention.head_dim /= 2;
            }),
            "an encoder with another heads than the decoder");
}

// Rounded weights hide nothing: the model with the same weights must give the same logits.
TEST_F(InteropFormsTest, ReadingBackHasTheConfigurationOfTheFiles) {
  ModelConfig config = llama_config(0, true);
  config.width = 32;
  config.ffn_width = 64;
  config.norm_epsilon = 0.03;
  config.rope_theta = 500;
  const auto model = model_of(config);
  const interop::HostModel host = interop::copy_to_host(*context_, *model);
  export_model(*context_, *model, tokenizer(), ExportFormat::hf_compressed, path("int4"),
               ExportWeights::int4);
  edit_json(path("int4") / "config.json", [](FileJson& json) { json["rms_norm_eps"] = 0.3; });
  const auto compressed =
      interop::read_back_compressed_tensors(host, ExportWeights::int4, path("int4"));
  EXPECT_EQ(compressed.config().norm_epsilon, 0.3);
  EXPECT_GT(interop::logit_difference(interop::with_weights_of(config, compressed), compressed),
            1e-3);
  export_model(*context_, *model, tokenizer(), ExportFormat::ctranslate2, path("int8"),
               ExportWeights::int8);
  edit_json(path("int8") / "config.json", [](FileJson& json) { json["layer_norm_epsilon"] = 0.3; });
  const auto ct2 = interop::read_back_ctranslate2(host, ExportWeights::int8, path("int8"));
  EXPECT_EQ(ct2.config().rope_theta, 500);
  EXPECT_GT(interop::logit_difference(interop::with_weights_of(config, ct2), ct2), 1e-3);
}

TEST_F(InteropFormsTest, TensorsAreRowsThatAreThere) {
  const interop::HostModel host =
      interop::make_host_model(config_of(Architecture::decoder_lm, true));
  const interop::MappedTensor fine{"t", {4, 16}, "embedding.weight", 2, 4};
  const std::vector<float> values = interop::gather(host.parameters(), fine);
  EXPECT_EQ(values.size(), 64u);
  interop::scatter(host.parameters(), fine, values);
  expect_error(ErrorCode::internal, "t has 3 elements", [&] {
    interop::scatter(host.parameters(), fine, {1, 2, 3});
  });
  interop::MappedTensor wrong = fine;
  wrong.parameter = "nothing";
  expect_error(ErrorCode::internal, "has no parameter nothing",
               [&] { interop::gather(host.parameters(), wrong); });
  wrong = fine;
  wrong.first_row = host.config().vocabulary - 3;
  expect_error(ErrorCode::internal, "does not fit into embedding.weight",
               [&] { interop::gather(host.parameters(), wrong); });
  wrong = fine;
  wrong.shape = {4, 15};
  expect_error(ErrorCode::internal, "does not fit into embedding.weight",
               [&] { interop::gather(host.parameters(), wrong); });
}

}  // namespace
}  // namespace trafo
