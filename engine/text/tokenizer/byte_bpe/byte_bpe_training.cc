// Training of byte-level BPE (Sennrich et al., arXiv 1508.07909): the most frequent pair of
// neighbours becomes a token, again and again.
#include <algorithm>
#include <unordered_map>

#include "engine/core/argument_error.h"
#include "engine/core/cancel.h"
#include "engine/core/limits.h"
#include "engine/core/progress.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"

namespace trafo {
namespace {

constexpr const char* kSpecialNames[] = {"<unk>", "<s>", "</s>", "<pad>"};  // ids 0 to 3
constexpr size_t kEnd = 2;
constexpr int32_t kFirstByteToken = 4;
constexpr int32_t kSmallest = kFirstByteToken + 256;

using TokenPair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const TokenPair& pair) const {
    return std::hash<uint64_t>()(uint64_t{static_cast<uint32_t>(pair.first)} << 32 |
                                 static_cast<uint32_t>(pair.second));
  }
};

struct CountedWord {
  std::vector<int32_t> tokens;
  int64_t count;
};

// The words of the text with their counts, in the order of their bytes.
std::vector<CountedWord> count_words(std::span<const std::string_view> sentences,
                                     const CancelToken* cancel) {
  const Json step = Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const PreTokenizer pre_tokenizer(JsonPart("pre_tokenizer", step));
  std::unordered_map<std::string, int64_t> counts;
  PreTokenizer::Words words;
  WorkProgress progress(Work::gather_text, std::ssize(sentences));
  for (size_t i = 0; i < sentences.size(); ++i) {
    stop_if_cancelled(cancel, kTokenizerOrigin);
    check_text(sentences[i], concat("sentence ", i + 1));
    pre_tokenizer.split(sentences[i], words);
    for (const Pattern::Match& span : words.spans)
      ++counts[words.text.substr(span.begin, span.end - span.begin)];
    progress.add(1);
  }
  progress.finish();
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  // Bytes have ids in the order of their letters, as the library numbers its alphabet.
  std::vector<size_t> order(256);
  for (size_t byte = 0; byte < order.size(); ++byte) order[byte] = byte;
  std::sort(order.begin(), order.end(),
            [](size_t a, size_t b) { return byte_letters()[a] < byte_letters()[b]; });
  std::vector<int32_t> ids(256);
  for (size_t i = 0; i < order.size(); ++i)
    ids[order[i]] = kFirstByteToken + static_cast<int32_t>(i);
  std::vector<CountedWord> result;
  for (const auto& [bytes, count] : sorted) {
    CountedWord& word = result.emplace_back(CountedWord{{}, count});
    for (const char byte : bytes) word.tokens.push_back(ids[static_cast<unsigned char>(byte)]);
  }
  return result;
}

class PairMerger {
 public:
  explicit PairMerger(std::vector<CountedWord> words) : words_(std::move(words)) {
    std::vector<char32_t> letters(byte_letters().begin(), byte_letters().end());
    std::sort(letters.begin(), letters.end());
    for (const char* name : kSpecialNames) tokens_.emplace_back(name);
    for (const char32_t letter : letters) append_utf8(letter, tokens_.emplace_back());
    for (size_t i = 0; i < words_.size(); ++i) {
      const std::vector<int32_t>& tokens = words_[i].tokens;
      for (size_t k = 0; k + 1 < tokens.size(); ++k) count({tokens[k], tokens[k + 1]}, i, 1);
    }
    for (const auto& [pair, info] : pairs_) heap_.push_back({info.count, pair});
    std::make_heap(heap_.begin(), heap_.end());
  }

  // Up to `size` tokens; a pair must occur twice.
  void run(size_t size, const CancelToken* cancel) {
    WorkProgress progress(Work::learn_vocabulary, static_cast<int64_t>(size));
    progress.add(std::ssize(tokens_));
    while (tokens_.size() < size && !heap_.empty()) {
      stop_if_cancelled(cancel, kTokenizerOrigin);
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = heap_.back();
      heap_.pop_back();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end() || found->second.count != best.count) {
        if (found != pairs_.end() && found->second.count > 0) push(best.pair);
        continue;
      }
      if (best.count < 2) break;
      merge(best.pair, std::move(found->second.words));
      progress.add(1);
    }
    progress.finish();
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<TokenPair>& merges() const { return merges_; }

 private:
  struct PairInfo {
    int64_t count = 0;
    std::vector<size_t> words;  // rising; some may have lost the pair since
  };
  // The highest count first; of equal ones the lowest ids, whose tokens are the most frequent.
  struct Candidate {
    int64_t count;
    TokenPair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void push(const TokenPair& pair) {
    heap_.push_back({pairs_[pair].count, pair});
    std::push_heap(heap_.begin(), heap_.end());
  }
  void count(const TokenPair& pair, size_t word, int64_t sign) {
    PairInfo& info = pairs_[pair];
    info.count += sign * words_[word].count;
    if (sign > 0 && (info.words.empty() || info.words.back() != word)) info.words.push_back(word);
  }

  // Two pairs may make the same text.
  int32_t token_of(const std::string& text) {
    const auto [found, is_new] = ids_.emplace(text, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(text);
    return found->second;
  }

  void merge(const TokenPair& pair, std::vector<size_t> places) {
    merges_.push_back(pair);
    const int32_t made = token_of(tokens_[static_cast<size_t>(pair.first)] +
                                  tokens_[static_cast<size_t>(pair.second)]);
    std::vector<TokenPair> changed;
    for (const size_t place : places) {
      std::vector<int32_t>& tokens = words_[place].tokens;
      const auto is_pair = [&](size_t k) {
        return k + 1 < tokens.size() && tokens[k] == pair.first && tokens[k + 1] == pair.second;
      };
      for (size_t k = 0; k + 1 < tokens.size(); ++k) {
        if (!is_pair(k)) continue;
        const auto change = [&](const TokenPair& neighbours, int64_t sign) {
          count(neighbours, place, sign);
          if (sign > 0) changed.push_back(neighbours);
        };
        if (k > 0) change({tokens[k - 1], pair.first}, -1);
        if (k + 2 < tokens.size()) change({pair.second, tokens[k + 2]}, -1);
        tokens[k] = made;
        tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(k) + 1);
        if (k > 0) change({tokens[k - 1], made}, 1);
        if (k + 1 < tokens.size()) change({made, tokens[k + 1]}, 1);
      }
    }
    pairs_.erase(pair);
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    for (const TokenPair& each : changed)
      if (each != pair) push(each);
  }

  std::vector<CountedWord> words_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;  // of learned tokens
  std::vector<TokenPair> merges_;
  std::unordered_map<TokenPair, PairInfo, PairHash> pairs_;
  std::vector<Candidate> heap_;
};

Json added_token(const char* name, size_t id) {
  return Json::Object{{"id", id},        {"content", name}, {"single_word", false},
                      {"lstrip", false}, {"rstrip", false}, {"normalized", false},
                      {"special", true}};
}

// "</s>" after a text, as the source of a decoder-lm has it.
Json end_processor() {
  const auto text = [](const char* id, int type) {
    return Json(Json::Object{{"Sequence", Json::Object{{"id", id}, {"type_id", type}}}});
  };
  const auto end = [](int type) {
    return Json(Json::Object{
        {"SpecialToken", Json::Object{{"id", kSpecialNames[kEnd]}, {"type_id", type}}}});
  };
  const Json listed = Json::Object{{"id", kSpecialNames[kEnd]},
                                   {"ids", Json::List{kEnd}},
                                   {"tokens", Json::List{kSpecialNames[kEnd]}}};
  return Json::Object{{"type", "TemplateProcessing"},
                      {"single", Json::List{text("A", 0), end(0)}},
                      {"pair", Json::List{text("A", 0), end(0), text("B", 1), end(1)}},
                      {"special_tokens", Json::Object{{kSpecialNames[kEnd], listed}}}};
}

std::string to_file(const PairMerger& merger) {
  Json::List added, merges;
  for (size_t id = 0; id < std::size(kSpecialNames); ++id)
    added.push_back(added_token(kSpecialNames[id], id));
  Json::Object vocabulary;
  for (size_t id = 0; id < merger.tokens().size(); ++id)
    vocabulary.push_back({merger.tokens()[id], id});
  const auto name = [&](int32_t id) { return merger.tokens()[static_cast<size_t>(id)]; };
  for (const auto& [left, right] : merger.merges())
    merges.push_back(Json::List{name(left), name(right)});
  const Json byte_level = Json::Object{{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", true}};
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = std::move(added);
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = end_processor();
  json["decoder"] = byte_level;
  json["model"] = Json::Object{{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", kSpecialNames[0]},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", false},
                               {"vocab", std::move(vocabulary)},
                               {"merges", std::move(merges)}};
  return json.dump(2) + "\n";
}

}  // namespace

void validate_byte_bpe(const TokenizerTrainOptions& options) {
  const TokenizerTrainOptions usual;
  require_argument(options.vocab_size > kSmallest && options.vocab_size <= limits::kVocabulary,
                   kTokenizerOrigin, "vocabulary", " must be ", kSmallest + 1, " to ",
                   limits::kVocabulary, " for a byte-bpe vocabulary, got ", options.vocab_size);
  require_argument(options.max_sentences >= 1, kTokenizerOrigin, "max_sentences",
                   " must be 1 or more, got ", options.max_sentences);
  const auto refuse_unless = [](bool is_usual, const char* field) {
    require_argument(is_usual, kTokenizerOrigin, field, " is not for a byte-bpe vocabulary");
  };
  refuse_unless(options.model == usual.model, "bpe");
  refuse_unless(options.character_coverage == usual.character_coverage, "character_coverage");
  refuse_unless(!options.byte_fallback, "byte_fallback");
  refuse_unless(options.normalization == usual.normalization, "normalization");
  refuse_unless(options.user_symbols.empty(), "user_symbols");
}

Tokenizer train_byte_bpe(std::span<const std::string_view> sentences,
                         const TokenizerTrainOptions& options) {
  std::vector<CountedWord> words = count_words(sentences, options.cancel);
  require(!words.empty(), ErrorCode::invalid_argument, kTokenizerOrigin,
          "there is no text to train a vocabulary on");
  PairMerger merger(std::move(words));
  const auto size = static_cast<size_t>(options.vocab_size);
  merger.run(size, options.cancel);
  require_argument(merger.tokens().size() == size || !options.hard_vocab_limit, kTokenizerOrigin,
                   "vocabulary", " is ", size, ", the text gives at most ", merger.tokens().size(),
                   " tokens");
  return load_byte_bpe(to_file(merger), "the trained vocabulary", {});
}

}  // namespace trafo
