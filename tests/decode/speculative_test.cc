// Speculative decoding: whatever the draft model proposes, the pieces are those without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/decode/generator.h"
#include "engine/decode/packing.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;

struct Drafted {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<double> scores;  // log-probabilities, and those of alternatives
  FinishReason finish = FinishReason::end;
  int64_t cached = 0, drafted = 0, accepted = 0;
  bool operator==(const Drafted& other) const {
    return tokens == other.tokens && text == other.text && scores == other.scores &&
           finish == other.finish && cached == other.cached;
  }
};
using AllDrafted = std::map<int64_t, Drafted>;

void add_piece(AllDrafted& all, const GenerationPiece& piece) {
  Drafted& one = all[piece.sequence];
  one.tokens.push_back(piece.token);
  one.text += piece.text;
  if (!std::isnan(piece.log_probability)) one.scores.push_back(piece.log_probability);
  one.scores.insert(one.scores.end(), piece.alternative_log_probabilities.begin(),
                    piece.alternative_log_probabilities.end());
  one.finish = piece.finish;
  one.cached = piece.cached_tokens;
  EXPECT_LE(piece.accepted_tokens, piece.drafted_tokens);
  one.drafted = piece.drafted_tokens;
  one.accepted = piece.accepted_tokens;
}

AllDrafted take_all(Generator& generator) {
  AllDrafted all;
  for (GenerationPiece piece; (piece = generator.next()).sequence >= 0;) add_piece(all, piece);
  return all;
}

// Adds noise to each matrix of a model.
void add_noise(Context& context, Model& model, double noise) {
  ParameterStore& parameters = model.parameters();
  for (ParamId id = 0; id < static_cast<ParamId>(parameters.count()); ++id) {
    if (parameters.shape(id).rank() != 2) continue;
    std::vector<double> values = to_doubles(context, parameters.value(id));
    PhiloxStream random(11, static_cast<uint64_t>(id));
    for (double& value : values) value += noise * random.normal();
    set_values(context, model, id, values);
  }
}

class SpeculativeTest : public ::testing::Test {
 protected:
  static constexpr int64_t kVocabulary = 29;

  void SetUp() override {
    const ModelConfig config = decode_config(Architecture::decoder_lm, kVocabulary);
    ModelConfig small = config;
    small.decoder_layers = 1;
    small.max_positions = 20;
    model_ = random_model(*context_, config, 7, DType::f32);
    near_ = random_model(*context_, config, 7, DType::f32);
    add_noise(*context_, *near_, 0.03);
    other_ = random_model(*context_, small, 8, DType::f32);
    for (Model* model : {model_.get(), near_.get(), other_.get()}) {
      set_output_bias(*context_, *model, kEos, -1);
      model->set_tokens(VocabularyTokens{});
    }
    packed_ = pack_for_decoding(*context_, *model_);
    options_.translate.decode.max_length = 30;
    PhiloxStream random(5, 1);
    for (int i = 0; i < 12; ++i) {
      prompts_.emplace_back();
      for (int n = 0; n <= i; ++n)
        prompts_.back().push_back(4 + static_cast<int32_t>(random.next_u32() % (kVocabulary - 4)));
    }
  }
  std::unique_ptr<Generator> generator(const Model* draft, int64_t kept = 0) const {
    auto made = std::make_unique<Generator>(*context_, *model_, std::nullopt, packed_, kept);
    if (draft != nullptr) made->set_draft(*draft, pack_for_decoding(*context_, *draft));
    return made;
  }
  AllDrafted generated(const Model* draft, int64_t draft_tokens) const {
    const auto one = generator(draft);
    GenerationOptions options = options_;
    options.draft_tokens = draft_tokens;
    one->start_ids(prompts_, options);
    return take_all(*one);
  }
  // The share of the drafted tokens that is accepted, with each draft model.
  std::vector<double> expect_same() const {
    const AllDrafted expected = generated(nullptr, 0);
    std::vector<double> shares;
    for (const Model* draft : {model_.get(), near_.get(), other_.get()}) {
      double drafted = 0, accepted = 0;
      for (const int64_t draft_tokens : {1, 4, 9}) {
        const AllDrafted found = generated(draft, draft_tokens);
        EXPECT_EQ(found.size(), expected.size());
        for (const auto& [number, one] : found) {
          EXPECT_EQ(one, expected.at(number)) << number << ", " << draft_tokens;
          drafted += static_cast<double>(one.drafted);
          accepted += static_cast<double>(one.accepted);
        }
      }
      EXPECT_GT(drafted, 0);
      shares.push_back(accepted / drafted);
    }
    return shares;
  }
  DecodeOptions& decode() { return options_.translate.decode; }
  DrawOptions& sampling() {
    decode().sampling.on = true;
    return decode().sampling;
  }

  std::unique_ptr<Context> context_ = cpu_context();
  // The draft models agree with the model always, often and seldom.
  std::unique_ptr<Model> model_, near_, other_;
  std::shared_ptr<const PackedWeights> packed_;
  GenerationOptions options_;
  Prompts prompts_;
};

TEST_F(SpeculativeTest, GreedyTextsAreTheSame) {
  const std::vector<double> shares = expect_same();
  EXPECT_EQ(shares[0], 1);
  EXPECT_GT(shares[1], 0.3);
  EXPECT_LT(shares[1], 1);
  EXPECT_LT(shares[2], 0.3);
}

TEST_F(SpeculativeTest, DrawnTextsAreTheSame) {
  decode().n_best = 3;
  for (int form = 0; form < 4; ++form) {
    sampling() = {};
    sampling().temperature = form == 0 ? 1.5 : 0.7;
    if (form == 1) sampling().top_k = 4;
    if (form == 2) sampling().top_p = 0.8;
    if (form == 3) sampling().min_p = 0.1;
    const std::vector<double> shares = expect_same();
    EXPECT_EQ(shares[0], 1) << form;
    EXPECT_GT(shares[1], shares[2]) << form;
  }
}

TEST_F(SpeculativeTest, RulesHoldAsWithoutADraft) {
  decode().word_scores = true;
  options_.alternatives = 3;
  decode().repetition_penalty = 1.3;
  decode().presence_penalty = 0.5;
  decode().frequency_penalty = 0.3;
  decode().no_repeat_ngram_size = 2;
  decode().logit_bias = {{6, 0.5}, {9, -1}};
  decode().banned_tokens = {5};
  decode().min_length = 7;
  options_.stop_tokens = {8, 12};
  EXPECT_EQ(expect_same()[0], 1);
  sampling().temperature = 0.9;
  decode().n_best = 2;
  EXPECT_EQ(expect_same()[0], 1);
}

// Others are in flight, with a draft and without, and some end early.
TEST_F(SpeculativeTest, RequestsMayDiffer) {
  GenerationOptions plain = options_, drafting = options_;
  drafting.draft_tokens = 3;
  drafting.translate.decode.presence_penalty = 0.4;
  for (const Model* draft : {model_.get(), near_.get(), other_.get()}) {
    AllDrafted found[2];
    for (const bool drafts : {false, true}) {
      const auto generates = generator(drafts ? draft : nullptr, 3);
      Generator& one = *generates;
      GenerationOptions other = drafting;
      if (!drafts) other.draft_tokens = 0;
      one.start_ids({prompts_[4], prompts_[5]}, plain);
      one.start_ids({prompts_[6]}, other);
      // The numbers of pieces between two calls depend on the draft, the sequences do not.
      for (int i = 0; i < 7; ++i) add_piece(found[drafts], one.next());
      one.start_ids({prompts_[7], prompts_[8]}, other);
      for (int i = 0; i < 5; ++i) add_piece(found[drafts], one.next());
      one.end(0);
      found[drafts].erase(0);
      one.start_ids({prompts_[3]}, plain);
      for (GenerationPiece piece; (piece = one.next()).sequence >= 0;)
        add_piece(found[drafts], piece);
      for (auto& [number, each] : found[drafts]) each.cached = 0;
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

// Turns of a conversation continue from both caches.
TEST_F(SpeculativeTest, SessionsContinue) {
  options_.translate.decode.max_length = 6;
  for (const Model* draft : {model_.get(), near_.get(), other_.get()}) {
    const auto with = generator(draft, 2), without = generator(nullptr, 2);
    GenerationOptions drafting = options_;
    drafting.draft_tokens = 4;
    std::vector<int32_t> text = {4, 5, 6};
    for (int turn = 0; turn < 4; ++turn) {
      with->start_ids({text}, drafting);
      without->start_ids({text}, options_);
      const Drafted found = take_all(*with).begin()->second,
                    expected = take_all(*without).begin()->second;
      EXPECT_EQ(found.tokens, expected.tokens);
      // A sequence that ends with an accepted token has read it, too.
      EXPECT_GE(found.cached, expected.cached);
      EXPECT_LE(found.cached, expected.cached + 1);
      text.insert(text.end(), expected.tokens.begin(), expected.tokens.end());
      text.insert(text.end(), {7, 8});
    }
  }
}

TEST_F(SpeculativeTest, SaysWhatIsWrong) {
  Generator one(*context_, *model_, std::nullopt, packed_, 0);
  options_.draft_tokens = 2;
  EXPECT_EQ(error_text([&] { one.start_ids({{4}}, options_); }),
            "INVALID_ARGUMENT: draft_tokens is 2, and the generator has no draft model");
  one.set_draft(*other_, nullptr);
  options_.draft_tokens = 65;
  EXPECT_EQ(error_text([&] { one.start_ids({{4}}, options_); }),
            "INVALID_ARGUMENT: draft_tokens must be 0 to 64, got 65");
  const auto larger = random_model(*context_, decode_config(Architecture::decoder_lm, 30), 7);
  EXPECT_EQ(error_text([&] { one.set_draft(*larger, nullptr); }),
            "INVALID_ARGUMENT: draft has a vocabulary of 30 tokens, the model one of 29");
  const auto encoder = random_model(*context_, decode_config(Architecture::encoder_decoder), 7);
  EXPECT_EQ(error_text([&] { one.set_draft(*encoder, nullptr); }),
            "UNSUPPORTED: a draft model is a decoder-lm; this one has an encoder");
  model_->set_origin({.file = "m", .vocabulary = "0000000a"});
  near_->set_origin({.file = "d", .vocabulary = "0000000b"});
  EXPECT_EQ(error_text([&] { one.set_draft(*near_, nullptr); }),
            "INVALID_ARGUMENT: draft was trained with another vocabulary (checksum 0000000b) than "
            "the model's (checksum 0000000a)");
}

TEST_F(SpeculativeTest, ADraftOfNoNumbersIsAnError) {
  const auto generates = generator(near_.get(), 2);
  Generator& one = *generates;
  options_.draft_tokens = 2;
  one.start_ids({prompts_[0]}, options_);
  one.next();
  set_output_bias(*context_, *near_, 5, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(error_text([&] { one.next(); }),
            "NON_FINITE: the draft model: the model answers prompt 1 with NaN or infinity after 1 "
            "tokens");
  EXPECT_EQ(one.next().sequence, -1);
  options_.draft_tokens = 0;
  one.start_ids({prompts_[0]}, options_);
  EXPECT_EQ(take_all(one).at(1).tokens, generated(nullptr, 0).at(0).tokens);
}

// Texts: a grammar, and stop strings over the border of tokens.
TEST(SpeculativeText, FollowsSchemasAndStops) {
  const Tokenizer tokenizer = byte_vocabulary(false);
  const auto context = cpu_context();
  const ModelConfig config = decode_config(Architecture::decoder_lm, tokenizer.vocab_size());
  const auto model = random_model(*context, config, 5, DType::f32);
  const auto near = random_model(*context, config, 5, DType::f32);
  add_noise(*context, *near, 0.05);
  const std::vector<std::string_view> prompts = {"hi", "", "a"};
  for (const bool grammar : {true, false}) {
    GenerationOptions options;
    options.translate.decode.max_length = 40;
    options.translate.decode.sampling.on = true;
    options.translate.decode.n_best = 10;
    if (grammar) {
      options.json_schema = R"({"type": "array", "items": {"enum": [1, "red", true]}})";
    } else {
      for (int32_t byte = 'a'; byte <= 'd'; ++byte)
        options.translate.decode.logit_bias.emplace_back(
            tokenizer.encode(std::string(1, static_cast<char>(byte))).back(), 8);
      options.stop = {"ab", "cdd"};
    }
    AllDrafted expected;
    for (const Model* draft : {static_cast<Model*>(nullptr), near.get(), model.get()}) {
      Generator one(*context, *model, tokenizer, pack_for_decoding(*context, *model), 0);
      if (draft != nullptr) one.set_draft(*draft, pack_for_decoding(*context, *draft));
      options.draft_tokens = draft != nullptr ? 5 : 0;
      one.start(prompts, options);
      const AllDrafted found = take_all(one);
      int64_t accepted = 0, stopped = 0;
      for (const auto& [number, each] : found) {
        accepted += each.accepted;
        stopped += each.finish == (grammar ? FinishReason::end : FinishReason::stop) ? 1 : 0;
      }
      EXPECT_GT(stopped, 5);
      if (draft == nullptr)
        expected = found;
      else
        EXPECT_GT(accepted, 50);
      EXPECT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace trafo::testing
