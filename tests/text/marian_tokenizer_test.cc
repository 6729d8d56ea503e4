// Two SentencePiece models over the ids of one vocab.json, as MarianTokenizer of transformers reads
// them. tests/parity/marian_parity.py compares the ids with its.
#include "engine/text/tokenizer/marian/marian_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/core/strings/json.h"
#include "engine/data/encode_pairs.h"
#include "engine/data/text_pairs.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace testing;

std::string trained_model(const std::vector<std::string>& lines, TokenizerModel model) {
  TokenizerTrainOptions options;
  options.vocab_size = 50;
  options.hard_vocab_limit = false;
  options.model = model;
  return Tokenizer::train(std::span<const std::string>(lines), options).serialized();
}

class MarianTokenizerTest : public ::testing::Test {
 protected:
  MarianTokenizerTest() {
    for (const SentencePieceModel* model : {&source_, &target_})
      for (int32_t id = 0; id < model->vocab_size(); ++id)
        if (model->type(id) == SubwordType::normal &&
            std::find(names_.begin(), names_.end(), model->token(id)) == names_.end())
          names_.push_back(model->token(id));
    std::reverse(names_.begin(), names_.end());
    std::erase(names_, "h");  // a subword without an id
    for (const char* name : {"</s>", "<unk>", "ΩΩ", ">>de<<", ">>pt br<<", "<pad>"})
      names_.push_back(name);
  }
  std::string ids_json() const {
    Json ids;
    for (size_t i = 0; i < names_.size(); ++i) ids[names_[i]] = i;
    return ids.dump();
  }
  int32_t id_of(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return id_of("<unk>");
    return static_cast<int32_t>(found - names_.begin());
  }
  std::string file(const std::string& ids, const std::string& config = "") const {
    MarianParts parts{static_cast<int32_t>(names_.size()), id_of("<pad>"), {id_of("</s>")}, {}};
    parts.files = {ids, source_file_, target_file_, config};
    return serialize_marian(parts);
  }
  std::string file() const { return file(ids_json()); }
  Tokenizer tokenizer() const { return Tokenizer::from_bytes(file()); }
  std::vector<int32_t> expected(const SentencePieceModel& model, std::string_view text) const {
    std::vector<int32_t> ids;
    for (const std::string& piece : model.encode_as_text(text)) ids.push_back(id_of(piece));
    return ids;
  }
  void refused(const std::string& bytes, const std::string& text,
               ErrorCode code = ErrorCode::corrupt_file) const {
    expect_error(code, text, [&] { Tokenizer::from_bytes(bytes, "v"); });
  }

  const std::string source_file_ =
      trained_model({"der hund sieht das haus", "ein haus und ein hund"}, TokenizerModel::unigram);
  const std::string target_file_ =
      trained_model({"the dog sees the house", "a house and a dog"}, TokenizerModel::bpe);
  const SentencePieceModel source_{source_file_, "source"}, target_{target_file_, "target"};
  std::vector<std::string> names_;
};

TEST_F(MarianTokenizerTest, SubwordsOfEachSideHaveTheIdsOfTheVocabulary) {
  const Tokenizer sources = tokenizer(), targets = sources.for_targets();
  EXPECT_EQ(sources.kind(), "marian");
  EXPECT_EQ(sources.file_name(), "vocab.marian");
  EXPECT_EQ(sources.serialized(), file());
  EXPECT_EQ(targets.serialized(), file());
  EXPECT_EQ(sources.vocab_size(), static_cast<int32_t>(names_.size()));
  EXPECT_EQ(sources.special_tokens(),
            (SpecialTokens{id_of("<pad>"), id_of("</s>"), -1, id_of("<unk>")}));
  EXPECT_EQ(targets.tokens(), sources.tokens());
  bool differ = false;
  for (const char* text : {"der hund", "the dog", "das haus  and a house ", "", " ", "h", "ΩΩ dog",
                           "Ω dog", "hund ΩΩ", "</s>", "<pad>"}) {
    EXPECT_EQ(sources.encode(text), expected(source_, text)) << text;
    EXPECT_EQ(targets.encode(text), expected(target_, text)) << text;
    differ = differ || sources.encode(text) != targets.encode(text);
  }
  EXPECT_TRUE(differ);
  // Of several unknown characters together vocab.json may have the id.
  EXPECT_EQ(sources.encode("hundΩΩ").back(), id_of("ΩΩ"));
  for (int32_t id = 0; id < sources.vocab_size(); ++id) {
    EXPECT_EQ(sources.token(id), names_[static_cast<size_t>(id)]);
    EXPECT_EQ(sources.id(sources.token(id)), id);
  }
}

TEST_F(MarianTokenizerTest, ALanguageTagInFrontIsOneToken) {
  const Tokenizer sources = tokenizer();
  for (const Tokenizer& side : {sources, sources.for_targets()}) {
    const auto tagged = [&](std::string_view tag, std::string_view rest) {
      std::vector<int32_t> ids = side.encode(rest);
      ids.insert(ids.begin(), id_of(tag));
      return ids;
    };
    EXPECT_EQ(side.encode(">>de<< a hund"), tagged(">>de<<", " a hund"));
    EXPECT_EQ(side.encode(">>de<<a hund"), side.encode(">>de<<  a hund"));
    EXPECT_EQ(side.encode(">>pt br<< a"), tagged(">>pt br<<", "a"));
    EXPECT_EQ(side.encode(">>xx<< a hund"), tagged("<unk>", "a hund"));
    EXPECT_EQ(side.encode(">><<a"), tagged("<unk>", "a"));
    EXPECT_EQ(side.encode(">>de<<"), std::vector<int32_t>{id_of(">>de<<")});
  }
  for (const char* text : {"a >>de<< hund", " >>de<< a", ">>de a hund", ">> a", "<<de>>"})
    EXPECT_EQ(sources.encode(text), expected(source_, text)) << text;
}

TEST_F(MarianTokenizerTest, TextOfTokens) {
  const Tokenizer sources = tokenizer();
  for (const char* text : {"the dog", "a house and a dog"}) {
    std::vector<int32_t> ids = sources.for_targets().encode(text);
    EXPECT_EQ(sources.decode(ids), text);
    ids.insert(ids.begin(), id_of("<pad>"));
    ids.push_back(id_of("</s>"));
    EXPECT_EQ(sources.decode(ids), text);
  }
  // Subwords that only the source model has.
  EXPECT_EQ(sources.decode(sources.encode("der und")), "der und");
  EXPECT_EQ(sources.decode(std::vector<int32_t>{id_of("<unk>")}), "\u2047");
  EXPECT_EQ(sources.decode({}), "");
  const std::vector<int32_t> tagged = sources.encode(">>de<< das");
  EXPECT_EQ(sources.decode(tagged), ">>de<< das");
}

TEST_F(MarianTokenizerTest, SpecialTokensInATextByChoice) {
  const Tokenizer parsing = tokenizer().parsing_special();
  std::vector<int32_t> wanted = expected(source_, "der hund");
  wanted.push_back(id_of("</s>"));
  wanted.push_back(id_of(">>de<<"));
  for (const int32_t id : expected(source_, "haus")) wanted.push_back(id);
  wanted.push_back(id_of("<pad>"));
  EXPECT_EQ(parsing.encode("der hund</s>>>de<< haus<pad>"), wanted);
  EXPECT_TRUE(parsing.for_targets().parses_special());
  EXPECT_EQ(parsing.for_targets().encode("<unk>"), std::vector<int32_t>{id_of("<unk>")});
}

// The tokenizer of M2M100 is of this kind. Its class has no tags in texts.
TEST_F(MarianTokenizerTest, LanguagesFollowAfterTheSubwords) {
  const std::string ids = ids_json();
  const auto count = static_cast<int32_t>(names_.size());
  MarianParts parts{count + 2, id_of("</s>"), {id_of("</s>")}, {}};
  parts.files = {ids, source_file_, source_file_, ""};
  parts.languages = "de pt";
  const std::string bytes = serialize_marian(parts);
  const Tokenizer m2m = Tokenizer::from_bytes(bytes);
  EXPECT_EQ(m2m.serialized(), bytes);
  EXPECT_EQ(m2m.vocab_size(), count + 2);
  EXPECT_EQ(m2m.languages(), (std::vector<std::string>{"__de__", "__pt__"}));
  EXPECT_EQ(m2m.special_tokens(),
            (SpecialTokens{id_of("</s>"), id_of("</s>"), id_of("<pad>"), id_of("<unk>")}));
  for (const char* text : {">>de<< das haus", "__de__", "h \u03a9\u03a9"})
    EXPECT_EQ(m2m.encode(text), expected(source_, text)) << text;
  EXPECT_EQ(m2m.parsing_special().encode("__pt__"), std::vector<int32_t>{count + 1});
  const Tokenizer chosen = m2m.with_languages("de", "pt");
  std::vector<int32_t> wanted = expected(source_, "das haus");
  wanted.insert(wanted.begin(), count);
  EXPECT_EQ(chosen.encode("das haus"), wanted);
  wanted.front() = count + 1;
  EXPECT_EQ(chosen.for_targets().encode("das haus"), wanted);
  wanted.push_back(id_of("<pad>"));
  EXPECT_EQ(chosen.decode(wanted), "das haus");
  std::vector<int32_t> sampled;
  ShuffleRng random(1, 2);
  chosen.for_targets().sampler()->sample(">>de<<", 0.5, random, sampled);
  EXPECT_EQ(sampled.front(), count + 1);
  EXPECT_EQ(std::find(sampled.begin(), sampled.end(), id_of(">>de<<")), sampled.end());
  --parts.tokens;
  refused(serialize_marian(parts), "vocab.json: '<pad>' has the id of __de__");
  parts.languages.clear();
  EXPECT_EQ(Tokenizer::from_bytes(serialize_marian(parts)).pad_id(), -1);
}

// A run resumes with the corpus that it began with, which these are not for one another.
TEST_F(MarianTokenizerTest, OtherLanguagesMakeAnotherCorpus) {
  const std::string ids = ids_json();
  MarianParts parts{static_cast<int32_t>(names_.size()) + 2, id_of("</s>"), {id_of("</s>")}, {}};
  parts.files = {ids, source_file_, source_file_, ""};
  parts.languages = "de pt";
  const Tokenizer m2m = Tokenizer::from_bytes(serialize_marian(parts));
  const TextCorpus corpus = make_parallel({"das haus"}, {"ein hund"});
  std::set<uint64_t> corpora;
  const auto add = [&](const Tokenizer& tokenizer) {
    corpora.insert(TextPairs(corpus, tokenizer, {}, SubwordSampling(), 1).fingerprint());
  };
  add(m2m);
  for (const char* source : {"de", "pt"})
    for (const char* target : {"de", "pt"}) add(m2m.with_languages(source, target));
  add(m2m.with_languages("de", "pt").parsing_special());
  EXPECT_EQ(corpora.size(), 6u);
  add(m2m.parsing_special().with_languages("de", "pt"));
  EXPECT_EQ(corpora.size(), 6u);
}

TEST_F(MarianTokenizerTest, BothSidesOfACorpus) {
  const Tokenizer sources = tokenizer();
  const std::vector<std::pair<std::string, std::string>> lines = {
      {">>de<< das haus und der hund", "the house and the dog"}, {"hund", "a dog sees a house"}};
  std::vector<std::string> left, right;
  for (const auto& [a, b] : lines) left.push_back(a), right.push_back(b);
  const TextCorpus corpus = make_parallel(left, right);
  const auto same = [](int64_t i) { return i; };
  const std::vector<EncodedPair> pairs = encode_pairs(corpus, sources, 2, same, {}, 1).value();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pairs[i].source, sources.encode(left[i]));
    EXPECT_EQ(pairs[i].target, expected(target_, right[i]));
  }
  EXPECT_NE(expected(target_, right[0]), expected(source_, right[0]));
  // Sampled, each side with its model: what comes is other subwords of the same text.
  SubwordSampling sampling;
  sampling.source_alpha = 0.1;
  sampling.target_alpha = 0.7;
  const TextPairs sampled(corpus, sources, {}, sampling, 1);
  EXPECT_TRUE(sampled.varies());
  bool other[2] = {false, false};
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    PairBlock block;
    const uint32_t draws[] = {0, 1};
    sampled.read(draws, epoch, block, nullptr);
    ASSERT_EQ(block.tokens.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const auto pair = static_cast<size_t>(block.ids[i]);
      const std::vector<int32_t> source(block.tokens[i].source.begin(),
                                        block.tokens[i].source.end() - 1),
          target(block.tokens[i].target.begin(), block.tokens[i].target.end() - 1);
      if (std::find(source.begin(), source.end(), id_of("<unk>")) == source.end()) {
        EXPECT_EQ(sources.decode(source), left[pair]);
      }
      if (std::find(target.begin(), target.end(), id_of("<unk>")) == target.end()) {
        EXPECT_EQ(sources.decode(target), right[pair]);
      }
      other[0] = other[0] || source != pairs[pair].source;
      other[1] = other[1] || target != pairs[pair].target;
    }
  }
  EXPECT_TRUE(other[0] && other[1]);
}

// Ids of sources are those of vocab.json, ids of targets those of target_vocab.json.
class SeparateVocabulariesTest : public MarianTokenizerTest {
 protected:
  SeparateVocabulariesTest() {
    source_names_ = target_names_ = {"</s>", "<unk>"};
    for (const auto& [model, names] :
         {std::pair{&source_, &source_names_}, {&target_, &target_names_}})
      for (int32_t id = 0; id < model->vocab_size(); ++id)
        if (model->type(id) == SubwordType::normal) names->push_back(model->token(id));
    std::reverse(target_names_.begin() + 2, target_names_.end());
    source_names_.emplace_back(">>de<<");
    source_names_.emplace_back("<pad>");
    target_names_.insert(target_names_.begin() + 1, "\u03a9");  // <unk> has other ids, too
    target_names_.emplace_back("<pad>");
  }
  static std::string json_of(const std::vector<std::string>& names) {
    Json ids;
    for (size_t i = 0; i < names.size(); ++i) ids[names[i]] = i;
    return ids.dump();
  }
  static int32_t id_in(const std::vector<std::string>& names, std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? id_in(names, "<unk>")
                                : static_cast<int32_t>(found - names.begin());
  }
  static std::vector<int32_t> ids_in(const std::vector<std::string>& names,
                                     const SentencePieceModel& model, std::string_view text) {
    std::vector<int32_t> ids;
    for (const std::string& piece : model.encode_as_text(text)) ids.push_back(id_in(names, piece));
    return ids;
  }
  std::string separate(const std::string& sources, const std::string& targets,
                       const std::string& config = R"({"separate_vocabs": true})") const {
    MarianParts parts{static_cast<int32_t>(target_names_.size()),
                      id_in(target_names_, "<pad>"),
                      {id_in(target_names_, "</s>")},
                      {}};
    parts.source_tokens = static_cast<int32_t>(source_names_.size());
    parts.files = {sources, source_file_, target_file_, config, targets};
    return serialize_marian(parts);
  }
  std::string separate() const { return separate(json_of(source_names_), json_of(target_names_)); }

  std::vector<std::string> source_names_, target_names_;
};

TEST_F(SeparateVocabulariesTest, EachSideHasItsIds) {
  const Tokenizer both = Tokenizer::from_bytes(separate()), targets = both.for_targets(),
                  sources = both.for_sources();
  EXPECT_EQ(both.serialized(), separate());
  EXPECT_TRUE(both.has_separate_sources());
  EXPECT_NE(source_names_.size(), target_names_.size());
  EXPECT_EQ(both.source_vocab_size(), static_cast<int32_t>(source_names_.size()));
  EXPECT_EQ(sources.vocab_size(), both.source_vocab_size());
  for (const Tokenizer& side : {both, targets}) {
    EXPECT_EQ(side.vocab_size(), static_cast<int32_t>(target_names_.size()));
    EXPECT_EQ(side.special_tokens(), (SpecialTokens{id_in(target_names_, "<pad>"), 0, -1, 2}));
  }
  EXPECT_EQ(sources.special_tokens(), (SpecialTokens{-1, 0, -1, 1}));
  for (const char* text :
       {"der hund", "the dog", "das haus  and a house ", "", "\u03a9 dog", "x"}) {
    EXPECT_EQ(both.encode(text), ids_in(source_names_, source_, text)) << text;
    EXPECT_EQ(sources.encode(text), both.encode(text)) << text;
    EXPECT_EQ(targets.encode(text), ids_in(target_names_, target_, text)) << text;
  }
  EXPECT_EQ(both.encode(">>de<< hund").front(), id_in(source_names_, ">>de<<"));
  EXPECT_EQ(targets.encode(">>de<< dog").front(), 2);
  EXPECT_EQ(both.decode(targets.encode("the dog")), "the dog");
  EXPECT_EQ(sources.decode(both.encode("der hund")), "der hund");
  for (int32_t id = 0; id < sources.vocab_size(); ++id)
    EXPECT_EQ(sources.token(id), source_names_[static_cast<size_t>(id)]);
  for (int32_t id = 0; id < both.vocab_size(); ++id)
    EXPECT_EQ(both.token(id), target_names_[static_cast<size_t>(id)]);
  const Tokenizer parsing = both.parsing_special();
  EXPECT_EQ(parsing.encode("<unk></s><pad>"),
            (std::vector<int32_t>{1, 0, id_in(source_names_, "<pad>")}));
  EXPECT_EQ(parsing.for_targets().encode("<unk></s><pad>"),
            (std::vector<int32_t>{2, 0, id_in(target_names_, "<pad>")}));
  std::vector<int32_t> sampled;
  ShuffleRng random(1, 2);
  both.for_targets().sampler()->sample("the dog", 0.9, random, sampled);
  EXPECT_EQ(both.decode(sampled), "the dog");
  both.sampler()->sample("der hund", 0.1, random, sampled);
  EXPECT_EQ(sources.decode(sampled), "der hund");
  const Tokenizer shared = tokenizer();
  EXPECT_FALSE(shared.has_separate_sources());
  EXPECT_EQ(shared.source_vocab_size(), shared.vocab_size());
  EXPECT_EQ(shared.for_sources().encode("der hund"), shared.encode("der hund"));
}

TEST_F(SeparateVocabulariesTest, IdsOfACorpusAreCheckedOnTheirSide) {
  const PairEncoding encoding(Tokenizer::from_bytes(separate()));
  const auto last = static_cast<int32_t>(source_names_.size()) - 1,
             last_target = static_cast<int32_t>(target_names_.size()) - 1;
  const auto encoded = [&](int32_t source, int32_t target) {
    const std::vector<std::vector<int32_t>> sources{{source, 0}}, targets{{target, 0}};
    const TextCorpus corpus = TextCorpus::of_ids(sources, targets);
    encode_pairs(
        corpus, encoding, 1, [](int64_t i) { return i; }, {}, 1);
  };
  encoded(last, last_target);
  expect_error(ErrorCode::invalid_argument, concat("has 0 to ", last),
               [&] { encoded(last + 1, last_target); });
  expect_error(ErrorCode::invalid_argument, concat("has 0 to ", last_target),
               [&] { encoded(last, last_target + 1); });
}

TEST_F(SeparateVocabulariesTest, DamagedFilesAreErrors) {
  const std::string sources = json_of(source_names_), targets = json_of(target_names_);
  refused(separate(sources, targets, ""), "separate_vocabs is not true, and target_vocab.json is");
  refused(separate(sources, "{\"a\": 1}"), "v: target_vocab.json has no <unk>");
  refused(separate("{\"<unk>\": 1}", targets), "v: vocab.json has no </s>");
  std::vector<std::string> turned = source_names_;
  std::swap(turned[0], turned[1]);
  refused(separate(json_of(turned), targets), "</s> is 1 in vocab.json and 0 in target_vocab.json",
          ErrorCode::unsupported);
  const std::string good = separate();
  const size_t line = good.find('\n');
  const auto header = [&](const std::string& from, const std::string& to, const char* text) {
    std::string changed = good.substr(0, line);
    changed.replace(changed.find(from), from.size(), to);
    refused(changed + good.substr(line), text);
  };
  header("\"source_tokens\":", "\"source_tokens\":-", "its numbers are no vocabulary's");
  header("\"source_tokens\":", "\"sauce_tokens\":", "it has not 4 files");
  header("\"bytes\":[", "\"bytes\":[0,", "it has not 5 files");
  refused(good.substr(0, good.size() - 1), "v: target_vocab.json would have");
}

TEST_F(MarianTokenizerTest, DamagedFilesAreErrors) {
  const std::string good = file();
  const size_t line = good.find('\n');
  refused(good.substr(0, line), "v: it does not begin as a marian vocabulary");
  refused(good.substr(0, good.size() - 1), "v: target.spm would have");
  refused(good + "x", "v: 1 bytes follow its files");
  const auto header = [&](const std::string& from, const std::string& to, const char* text) {
    std::string changed = good.substr(0, line);
    changed.replace(changed.find(from), from.size(), to);
    refused(changed + good.substr(line), text);
  };
  header("\"tokens\"", "\"tokenz\"", "tokens");
  header("\"tokens\":", "\"tokens\":30000", "is too short for the");
  header("\"tokens\":", "\"tokens\":-", "its numbers are no vocabulary's");
  header("\"start\":", "\"start\":9", "its numbers are no vocabulary's");
  header("\"ends\":[", "\"ends\":[-1,", "its end -1 is no id");
  header("\"ends\":[", "\"ends\":[0,", "its first end is not </s>");
  header("\"bytes\":[", "\"bytes\":[0,", "it has not 4 files");
  refused(file("[]"), "v: vocab.json is not a JSON object");
  refused(file("{"), "v: vocab.json is not a JSON object");
  refused(file("{\"a\": 1, \"b\": 1}"), "id 1 has two subwords");
  refused(file("{\"a\": 1, \"a\": 2}"), "the subword 'a' has two ids");
  refused(file("{\"a\": -1}"), "the id of 'a' is not one of");
  refused(file("{\"a\": 1}"), "vocab.json has no <unk>");
  std::string broken = good;
  broken.replace(broken.find(source_file_), 4, "xxxx");
  refused(broken, "v: source.spm");
}

TEST_F(MarianTokenizerTest, SettingsThatReadTextsOtherwiseAreRefusedByKey) {
  const auto config = [&](const std::string& json, const char* text,
                          ErrorCode code = ErrorCode::unsupported) {
    refused(file(ids_json(), json), concat("tokenizer_config.json: ", text), code);
  };
  config(R"({"separate_vocabs": true})",
         "separate_vocabs is true, and target_vocab.json is missing", ErrorCode::corrupt_file);
  config(R"({"separate_vocabs": 1})", "separate_vocabs is neither true nor false",
         ErrorCode::corrupt_file);
  config(R"({"sp_model_kwargs": {"enable_sampling": true}})", "sp_model_kwargs is given");
  config(R"({"unk_token": "<UNK>"})", "unk_token is not <unk>");
  config(R"({"eos_token": {"content": "<eos>"}})", "eos_token is not </s>");
  const std::string fine =
      R"({"separate_vocabs": false, "sp_model_kwargs": {}, "unk_token": {"content": "<unk>"},
          "eos_token": "</s>", "source_lang": "de"})";
  EXPECT_EQ(Tokenizer::from_bytes(file(ids_json(), fine)).encode("hund"),
            tokenizer().encode("hund"));
  TokenizerTrainOptions options;
  options.kind = "marian";
  expect_error(ErrorCode::invalid_argument, "comes with an imported model",
               [&] { Tokenizer::train(std::vector<std::string>{"a"}, options); });
}

}  // namespace
}  // namespace trafo
