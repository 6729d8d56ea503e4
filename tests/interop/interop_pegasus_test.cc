// Directories of Pegasus models: norms, tokenizers, positions.
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/ops/embedding/embedding.h"
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

class PegasusImportTest : public ImportTest {
 protected:
  void SetUp() override {
    model_ = model_of(config_of(Architecture::encoder_decoder, true));
    exported(*model_, ExportFormat::hf_pegasus, "pegasus");
  }
  // As transformers saves a tokenizer: tokenizer.json in place of vocab.json and source.spm.
  void with_tokenizer_json() {
    for (const char* name : {"vocab.json", "source.spm", "target.spm"})
      fs::remove(directory_ / name);
    const auto lm = model_of(config_of(Architecture::decoder_lm, true));
    exported(*lm, ExportFormat::hf_gpt2, "lm");
    fs::copy(path("lm") / "tokenizer.json", directory_ / "tokenizer.json");
  }
  const fs::path directory_ = path("pegasus");
};

TEST_F(PegasusImportTest, AForcedFirstTokenIsRefused) {
  const auto force = [](FileJson& json) { json["forced_bos_token_id"] = 5; };
  edit_config(directory_, force);  // generation_config.json goes before
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  edit_json(directory_ / "generation_config.json", force);
  refused_import(directory_, ErrorCode::unsupported, "forced_bos_token_id is given");
}

// Files of google/pegasus name what the class always does; others leave it out.
TEST_F(PegasusImportTest, TheOrderOfTheNorms) {
  for (const char* field : {"normalize_before", "add_final_layer_norm"}) {
    edit_config(directory_, [&](FileJson& json) { json[field] = false; });
    refused_import(directory_, ErrorCode::unsupported,
                   concat(field,
                          " is false, which PegasusForConditionalGeneration does not do; "
                          "post-norm models have the model_type marian"));
    edit_config(directory_, [&](FileJson& json) { json.erase(field); });
  }
  EXPECT_EQ(imported(directory_).model->config(), model_->config());
  edit_config(directory_, [](FileJson& json) { json["normalize_embedding"] = true; });
  refused_import(directory_, ErrorCode::unsupported, "normalize_embedding is true");
}

TEST_F(PegasusImportTest, ATokenizerThatWasSavedAgain) {
  with_tokenizer_json();
  const ImportedModel result = imported(directory_);
  EXPECT_EQ(result.note, "");
  ASSERT_TRUE(result.tokenizer.has_value());
  EXPECT_EQ(result.tokenizer->bos_id(), tokenizer().bos_id());
  EXPECT_EQ(result.tokenizer->encode("der Hund sieht einen Baum."),
            tokenizer().encode("der Hund sieht einen Baum."));
  EXPECT_EQ(weight_bytes(*context_, *result.model), weight_bytes(*context_, *model_));
  // A decoder that starts from <pad>: the token is the one that starts, and no padding.
  edit_config(directory_,
              [](FileJson& json) { json["decoder_start_token_id"] = json["pad_token_id"]; });
  const ImportedModel padded = imported(directory_);
  EXPECT_EQ(padded.tokenizer->bos_id(), tokenizer().pad_id());
  edit_config(directory_, [](FileJson& json) { json.erase("decoder_start_token_id"); });
  refused_import(directory_, ErrorCode::corrupt_file, "has no decoder_start_token_id");
}

// As of google/pegasus-large: ids of the model are higher by 103 than the ids of spiece.model.
TEST_F(PegasusImportTest, AnOffsetOfTheIds) {
  const interop::SpmModel ours = interop::parse_spm(tokenizer().serialized());
  std::vector<interop::ScoredSubword> subwords(ours.subwords);
  std::rotate(subwords.begin(), subwords.begin() + 2, subwords.begin() + 4);  // </s> <pad> <unk>
  std::swap(subwords[0], subwords[1]);
  subwords.erase(subwords.begin() + 3);  // <s>
  const std::string spiece = interop::serialize_spm(ours, subwords);
  const Tokenizer plain = Tokenizer::from_bytes(spiece);
  ASSERT_EQ(plain.pad_id(), 0);
  ASSERT_EQ(plain.unk_id(), 2);
  const auto write = [&](int64_t offset, int64_t rows) {
    ModelConfig config = config_of(Architecture::encoder_decoder, true);
    model_ = model_of(config);
    fs::remove_all(directory_);
    exported(*model_, ExportFormat::hf_pegasus, "pegasus");
    for (const char* name : {"vocab.json", "source.spm", "target.spm"})
      fs::remove(directory_ / name);
    write_file_atomically(directory_ / "spiece.model", spiece);
    edit_json(directory_ / "tokenizer_config.json",
              [&](FileJson& json) { json["offset"] = offset; });
    edit_config(directory_, [&](FileJson& json) {
      json["decoder_start_token_id"] = json["pad_token_id"] = 0;
      json["eos_token_id"] = 1;
      json["vocab_size"] = json["decoder_vocab_size"] = rows;
    });
    fs::remove(directory_ / "generation_config.json");
  };
  const int64_t rows = tokenizer().vocab_size();  // one more than spiece.model has
  write(1, rows);
  const ImportedModel shifted = imported(directory_);
  EXPECT_EQ(shifted.note, "");
  std::vector<int32_t> ids = plain.encode("der Hund sieht einen Baum.");
  for (int32_t& id : ids) id += 1;
  EXPECT_EQ(shifted.tokenizer->encode("der Hund sieht einen Baum."), ids);
  EXPECT_EQ(shifted.tokenizer->bos_id(), 0);
  EXPECT_EQ(shifted.tokenizer->eos_id(), 1);
  EXPECT_EQ(shifted.tokenizer->unk_id(), 3);
  write(0, rows);
  EXPECT_TRUE(contains(imported(directory_).note, "the embeddings have"));
  write(2, rows);
  refused_import(directory_, ErrorCode::corrupt_file, "and an offset of 2, more than");
  write(1, rows);
  write_file_atomically(directory_ / "spiece.model", tokenizer().serialized());
  refused_import(directory_, ErrorCode::unsupported, "Pegasus has the ids 0, 1 and 2");
}

// transformers writes the table, in the type of the weights, and reads it.
TEST_F(PegasusImportTest, PositionsThatAreStored) {
  const ModelConfig& config = model_->config();
  const Tensor table =
      sinusoidal_positions(*context_, config.max_positions, config.width, DType::f32);
  const auto bytes =
      std::as_bytes(std::span(table.data<float>(), static_cast<size_t>(table.numel())));
  const char* name = "model.decoder.embed_positions.weight";
  edit_tensors(directory_, [&](std::vector<Stored>& all) {
    all.push_back(
        {name, "F32", {config.max_positions, config.width}, {bytes.begin(), bytes.end()}});
  });
  EXPECT_EQ(weight_bytes(*context_, *imported(directory_).model), weight_bytes(*context_, *model_));
  const auto changed = [&](ErrorCode code, const char* text, auto change) {
    edit_tensors(directory_, [&](std::vector<Stored>& all) { change(find(all, name)); });
    refused_import(directory_, code, text);
  };
  const auto element = [](Stored& stored) { return reinterpret_cast<float*>(stored.bytes.data()); };
  changed(ErrorCode::unsupported, "has not the sinusoidal positions",
          [&](Stored& stored) { element(stored)[3] += 0.02f; });
  changed(ErrorCode::unsupported, name,
          [&](Stored& stored) { element(stored)[3] = std::numeric_limits<float>::quiet_NaN(); });
  changed(ErrorCode::corrupt_file, "is no table of", [&](Stored& stored) {
    stored.shape[0] /= 2;
    stored.bytes.resize(stored.bytes.size() / 2);
  });
}

TEST_F(PegasusImportTest, OneMatrixUnderAnotherName) {
  expect_same_weights_with_other_names(directory_);
  model_ = model_of(config_of(Architecture::encoder_decoder, false));
  exported(*model_, ExportFormat::hf_marian, "marian");
  expect_same_weights_with_other_names(path("marian"));
}

TEST_F(PegasusImportTest, WithoutATokenizerTheCallerProvidesIds) {
  with_tokenizer_json();
  fs::remove(directory_ / "tokenizer.json");
  const ImportedModel result = imported(directory_);
  EXPECT_FALSE(result.tokenizer.has_value());
  EXPECT_TRUE(contains(result.note, "there is no tokenizer.model, no tokenizer.json"));
  EXPECT_EQ(result.model->config(), model_->config());
}

}  // namespace
}  // namespace trafo
