#include "engine/data/label_encoding.h"

#include <algorithm>

#include "engine/core/status.h"
#include "engine/core/strings/quote.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"

namespace trafo {
namespace {

constexpr std::string_view kLabelsOrigin = "labels";
constexpr std::string_view kWhiteSpace = " \t\r\n\f\v";

std::vector<std::string_view> words_in(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(kWhiteSpace); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kWhiteSpace, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kWhiteSpace, end);
  }
  return words;
}

void label_words(const Tokenizer& tokenizer, const LabelNames& names, std::string_view text,
                 std::string_view labels, LabelledText& labelled) {
  std::vector<uint8_t> begins;
  encode_words(tokenizer, text, labelled.source, begins);
  const std::vector<std::string_view> of_words = words_in(labels);
  const auto words = std::count(begins.begin(), begins.end(), 1);
  require(words == std::ssize(of_words), ErrorCode::invalid_argument, kLabelsOrigin,
          "the text has ", words, " words and ", of_words.size(), " labels");
  auto label = of_words.begin();
  for (const uint8_t begin : begins) {
    labelled.target.push_back(begin != 0 ? names.number(*label++) : 0);
    labelled.learned.push_back(begin);
  }
}

}  // namespace

int32_t LabelNames::number(std::string_view name) const {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<int32_t>(found - names.begin());
  constexpr size_t kMost = 16;
  std::string known;
  for (size_t i = 0; i < std::min(kMost, names.size()); ++i)
    known.append(known.empty() ? "" : ", ").append(names[i]);
  fail(ErrorCode::invalid_argument, kLabelsOrigin, "the label ", quote(std::string(name)),
       " is not one of the model's, ", known, names.size() > kMost ? ", ..." : "");
}

void encode_words(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& ids,
                  std::vector<uint8_t>& begins) {
  // Byte-level BPE has another token for a word after a space. The other kinds look at words apart.
  const bool spaced = tokenizer.kind() == ByteBpeTokenizer::kKind;
  ids.clear();
  begins.clear();
  std::vector<int32_t> word_ids;
  std::string word;
  for (const std::string_view each : words_in(text)) {
    word.assign(spaced && !ids.empty() ? " " : "").append(each);
    tokenizer.encode(word, word_ids);
    // A word of characters that the normalizer removes has no token.
    require(!word_ids.empty(), ErrorCode::invalid_argument, kLabelsOrigin, "the word ",
            quote(std::string(each)), " has no tokens");
    ids.insert(ids.end(), word_ids.begin(), word_ids.end());
    begins.push_back(1);
    begins.resize(ids.size(), 0);
  }
}

LabelledText encode_labelled(const Tokenizer& tokenizer, const VocabularyTokens& tokens,
                             const LabelNames& names, std::string_view text,
                             std::string_view labels) {
  LabelledText labelled;
  if (names.of_tokens) {
    label_words(tokenizer, names, text, labels, labelled);
  } else {
    const std::vector<std::string_view> words = words_in(labels);
    // A name may have spaces inside.
    labelled.target.push_back(names.number(
        words.empty()
            ? std::string_view()
            : labels.substr(static_cast<size_t>(words.front().data() - labels.data()),
                            static_cast<size_t>(words.back().data() + words.back().size() -
                                                words.front().data()))));
    tokenizer.encode(text, labelled.source);
  }
  const auto add = [&](bool there, int32_t id, bool front) {
    if (!there) return;
    labelled.source.insert(front ? labelled.source.begin() : labelled.source.end(), id);
    if (!names.of_tokens) return;
    labelled.target.insert(front ? labelled.target.begin() : labelled.target.end(), 0);
    labelled.learned.insert(front ? labelled.learned.begin() : labelled.learned.end(), 0);
  };
  add(tokens.frame.begin, tokens.special.bos, true);
  add(tokens.frame.end, tokens.special.eos, false);
  return labelled;
}

}  // namespace trafo
