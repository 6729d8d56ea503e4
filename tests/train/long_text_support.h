// Texts of token ids, most of them longer than a sequence of the tiny models.
#pragma once

#include "engine/train/run/training_data.h"
#include "tests/train/training_support.h"

namespace trafo::testing {

inline TextCorpus long_texts(int64_t count, uint64_t seed) {
  PhiloxStream random(seed, 7);
  std::vector<std::vector<int32_t>> sources(static_cast<size_t>(count)), texts;
  for (int64_t i = 0; i < count; ++i) {
    auto& text = texts.emplace_back(1 + random.next_u32() % 90, kTokens.eos);
    for (size_t j = 0; j + 1 < text.size(); ++j)
      text[j] = static_cast<int32_t>(4 + random.next_u32() % (kVocabulary - 4));
  }
  return TextCorpus::of_ids(sources, texts);
}

inline TrainingData long_text_data(const TrainOptions& options) {
  VocabularyTokens tokens;
  tokens.special = kTokens;
  const TextCorpus train = long_texts(30, 1), valid = long_texts(6, 2);
  return prepare_data(&train, &valid, PairEncoding(tokens, kVocabulary),
                      spec_of(tiny_config(Architecture::decoder_lm)), options, 1);
}

// Windows of 32 tokens, 20 of which are new.
inline TrainOptions window_options() {
  TrainOptions options = quick_options();
  options.long_lines = LongLines::window;
  options.window_stride = 20;
  return options;
}

}  // namespace trafo::testing
