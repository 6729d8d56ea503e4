// Files that are read beside the weights of a run: its state, its GEMM cache, the models of a mean.
#include "engine/train/checkpoint/state.h"

#include <nlohmann/json.hpp>

#include "engine/io/checksum.h"
#include "engine/models/model_io.h"
#include "engine/train/checkpoint/average.h"
#include "engine/train/step/gemm_cache.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

TEST(RunStateText, NumbersAreHexadecimalToTheirEnd) {
  const std::string good = encode_state({}, {0xabc, "", "{}"});
  EXPECT_EQ(decode_state(good, "s").identity.corpus, 0xabcu);
  const auto with = [&](const std::string& field, const std::string& value) {
    auto json = nlohmann::json::parse(good);
    EXPECT_TRUE(json.contains(field));
    json[field] = value;
    return json.dump();
  };
  EXPECT_EQ(decode_state(with("data_seed", "ffffffffffffffff"), "s").state.position.seed,
            ~uint64_t{0});
  for (const char* wrong : {"", "xyz", "12zz", "-1", " 1", "fffffffffffffffff", "0x12"})
    expect_error(ErrorCode::corrupt_file, "is not a hexadecimal number",
                 [&] { decode_state(with("data_seed", wrong), "s"); });
}

TEST(RunStateText, PositionsAreReadBackWhole) {
  RunState state;
  state.position.seed = 0x0123456789abcdefu;
  state.position.epoch = 3;
  state.position.next_batch = 17;
  state.position.window = 40;
  state.position.next_in_window = 5;
  state.position.drops = {11, 12, 13, 14, 15, 16};
  const RunState read = decode_state(encode_state(state, {1, "", "{}"}), "s").state;
  EXPECT_EQ(read.position, state.position);
  EXPECT_EQ(read.position.drops.empty, state.position.drops.empty);
  EXPECT_EQ(read.position.drops.too_long, state.position.drops.too_long);
  EXPECT_EQ(read.position.drops.ratio, state.position.drops.ratio);
  EXPECT_EQ(read.position.drops.identical, state.position.drops.identical);
  EXPECT_EQ(read.position.drops.cut, 15);
  EXPECT_EQ(read.position.drops.windows, 16);
  // Where no text was cut, a checkpoint says no more than it always has.
  state.position.drops = {11, 12, 13, 14};
  const std::string text = encode_state(state, {1, "", "{}"});
  EXPECT_EQ(text.find("epoch_cut"), std::string::npos);
  EXPECT_EQ(decode_state(text, "s").state.position, state.position);
}

TEST(RunStateText, SumsOfTheLogAreReadBackWhole) {
  RunState state;
  state.log = {
      .loss = 1.5, .nll = 2.5, .units = 3, .labels = 40, .metrics = {{"b", 0.1}, {"a", 7}}};
  EXPECT_EQ(decode_state(encode_state(state, {1, "", "{}"}), "s").state.log, state.log);
  // Checkpoints of objectives whose units are labels say no more than they always have.
  state.log = {.loss = 1.5, .nll = 2.5, .units = 40, .labels = 40};
  const std::string text = encode_state(state, {1, "", "{}"});
  EXPECT_EQ(text.find("display_units"), std::string::npos);
  EXPECT_EQ(text.find("display_metrics"), std::string::npos);
  EXPECT_EQ(decode_state(text, "s").state.log, state.log);
}

TEST(RunStateText, OptionsThatDifferOrAreMissingAreNamed) {
  const std::string text =
      R"({"optimizer_states":"fp32","exponential_smoothing":0.0,"maxi_batch":0,)"
      R"("drop_identical":false,"max_length_ratio":0.0,"source_alpha":0.0,"target_alpha":0.0,)"
      R"("batch_tokens":100})";
  const RunIdentity before{1, "", text};
  check_identity(before, before, "a run");
  const auto refused = [&](ErrorCode code, const std::string& name, const std::string& value,
                           const std::string& said) {
    auto options = nlohmann::ordered_json::parse(text);
    options[name] = nlohmann::ordered_json::parse(value);
    expect_error(code, said, [&] { check_identity(before, {1, "", options.dump()}, "a run"); });
  };
  constexpr ErrorCode kOther = ErrorCode::invalid_argument;
  refused(kOther, "maxi_batch", "100", "maxi_batch was 0 and is 100 now");
  refused(kOther, "drop_identical", "true", "drop_identical was false and is true now");
  for (const char* share : {"max_length_ratio", "source_alpha", "target_alpha"})
    refused(kOther, share, "0.5", concat(share, " was 0.0 and is 0.5 now"));
  refused(kOther, "batch_tokens", "50", "batch_tokens was 100 and is 50 now");
  refused(ErrorCode::corrupt_file, "of_tomorrow", "1", "a run: there is no of_tomorrow");
}

TEST(RunStateText, AnOptionThatACheckpointDoesNotNameHasItsDefault) {
  const auto with = [](const std::string& objective) {
    return RunIdentity{1, "", R"({"batch_tokens":100)" + objective + "}"};
  };
  const RunIdentity older = with("");
  check_identity(older, with(R"(,"objective":"cross-entropy","dpo_beta":0.1)"), "a run");
  expect_error(ErrorCode::invalid_argument, R"(objective was "cross-entropy" and is "dpo" now)",
               [&] { check_identity(older, with(R"(,"objective":"dpo")"), "a run"); });
  expect_error(ErrorCode::invalid_argument, "dpo_beta was 0.1 and is 0.5 now",
               [&] { check_identity(older, with(R"(,"dpo_beta":0.5)"), "a run"); });
}

TEST(RunStateText, AReferenceBelongsToARun) {
  const auto with = [](const std::string& reference) {
    RunIdentity identity{1, "", "{}"};
    identity.reference = reference;
    return identity;
  };
  EXPECT_EQ(decode_state(encode_state({}, with("0badc0de")), "s").identity.reference, "0badc0de");
  EXPECT_EQ(encode_state({}, with("")).find("reference"), std::string::npos);
  const auto refused = [&](const std::string& saved, const std::string& given,
                           const std::string& said) {
    expect_error(ErrorCode::invalid_argument, said,
                 [&] { check_identity(with(saved), with(given), "a run"); });
  };
  check_identity(with("1"), with("1"), "a run");
  refused("", "1", "a run cannot be continued with a reference: the run has none");
  refused("1", "", "a run cannot be continued without the reference of the run");
  refused("1", "2", "with another reference: the checksum of its weights was 1 and is 2 now");
}

// ---- the mean of models ----

class MeanTest : public ::testing::Test {
 protected:
  fs::path save(const std::string& name, const ModelConfig& config, uint64_t seed, DType dtype,
                const SafetensorsMetadata& metadata = {}) {
    const auto model = make_model(*context_, config, seed, dtype);
    save_model(directory_ / name, *context_, *model, metadata);
    return directory_ / name;
  }
  // The same file with one tensor more, of another type.
  fs::path with_tensor(const fs::path& file, const std::string& name, DType dtype) {
    const auto reader = SafetensorsReader::open(file);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorEntry> entries;
    for (const TensorInfo& info : reader.tensors()) {
      reader.read(info, bytes.emplace_back(info.bytes));
      entries.push_back({info.name, info.dtype, info.shape, {}});
    }
    bytes.emplace_back(dtype_size(dtype));
    entries.push_back({name, dtype, {1}, {}});
    for (size_t i = 0; i < entries.size(); ++i) entries[i].data = bytes[i];
    const fs::path to = file.string() + "-and-" + name;
    save_safetensors(to, entries, reader.metadata());
    return to;
  }
  void refused(const std::vector<fs::path>& files, ErrorCode code, const char* text) {
    expect_error(code, text, [&] { average_models(files, directory_ / "mean"); });
    EXPECT_FALSE(fs::exists(directory_ / "mean"));
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  TemporaryDirectory directory_;
};

TEST_F(MeanTest, OfDoublesIsExact) {
  const ModelConfig config = tiny_config();
  const std::vector<fs::path> files{save("a", config, 1, DType::f64),
                                    save("b", config, 2, DType::f64)};
  average_models(files, directory_ / "mean");
  const auto values = [&](const fs::path& file) {
    const auto model = load_model(*context_, file);
    EXPECT_EQ(model->parameters().dtype(), DType::f64);
    return context_->values<double>(model->parameters().flat().detach());
  };
  const auto a = values(files[0]), b = values(files[1]), mean = values(directory_ / "mean");
  for (size_t i = 0; i < mean.size(); ++i) ASSERT_EQ(mean[i], (a[i] + b[i]) / 2) << i;
  EXPECT_NE(mean, a);
}

// The first file is compared with its model, the others with the first.
TEST_F(MeanTest, TensorsThatTheModelDoesNotKnowAreRefused) {
  const fs::path plain = save("a", tiny_config(), 1, DType::f32);
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    const std::string name = dtype_name(dtype);
    const fs::path more = with_tensor(plain, name, dtype);
    refused({plain, more}, ErrorCode::invalid_argument,
            ("it has the tensor " + name + " besides").c_str());
    refused({more, plain}, ErrorCode::corrupt_file,
            (more.string() + " has the tensor " + name).c_str());
  }
}

TEST_F(MeanTest, AModelWithoutAVocabularyMayBePartOfIt) {
  const ModelConfig config = tiny_config();
  const fs::path with = save("with", config, 1, DType::f32, {{kTokenizerKey, "01234567"}}),
                 without = save("without", config, 2, DType::f32);
  const std::vector<std::vector<fs::path>> orders{{with, without}, {without, with}, {with, with}};
  for (const auto& files : orders) {
    average_models(files, directory_ / "mean");
    EXPECT_EQ(SafetensorsReader::open(directory_ / "mean").metadata().contains(kTokenizerKey),
              files[0] == with);
    fs::remove(directory_ / "mean");
  }
}

// ---- GEMM cache ----

TEST(GemmCacheLines, HoldTheNumbersOfOneKernel) {
  GemmCache cache{"card, library 1", {GemmChoice{}}};
  cache.choices[0].kernel[7] = 0xbeef;
  const std::string good = encode_gemm_cache(cache);
  const size_t seal = good.find('\n') - 8;  // the end of the first line
  const GemmCache other = decode_gemm_cache(good, "plans");
  ASSERT_EQ(other.choices.size(), 1u);
  EXPECT_EQ(other.choices[0].kernel[7], 0xbeefu);
  for (const char* wrong : {"zzzz", "", "beef 1", "11111111111111111"}) {
    std::string text = good;
    text.replace(text.rfind("beef"), 4, wrong);
    seal_text(text, seal);
    expect_error(ErrorCode::corrupt_file, "has a line that names no kernel",
                 [&] { decode_gemm_cache(text, "plans"); });
  }
}

TEST(GemmCacheLines, AFileOfOtherPlansIsReplaced) {
  const TemporaryDirectory folder;
  const fs::path path = folder / kGemmCacheFile;
  write_gemm_cache({"card", std::vector<GemmChoice>(1)}, path);
  write_gemm_cache({"card", std::vector<GemmChoice>(2)}, path);
  EXPECT_EQ(read_gemm_cache(path)->choices.size(), 2u);
}

}  // namespace
}  // namespace trafo
