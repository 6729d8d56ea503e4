#include "commands/compression/model_quality.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/text_io.h"

namespace translate_train {
namespace {

constexpr size_t kScoredAtOnce = 2000;  // pairs

}  // namespace

double megabytes(uintmax_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

Corpus load_corpus(const std::vector<std::string>& files) {
  return make<Corpus>(trafo_corpus_load, files[0].data(), files[0].size(), files[1].data(),
                      files[1].size(), nullptr);
}

Corpus open_sample(const char* flag, const std::vector<std::string>& files, bool encoder) {
  if (encoder && files.size() != 2)
    usage_error(fmt::format("{}: an encoder-decoder is measured on SRC TRG", flag));
  auto options = with_defaults<trafo_corpus_options>(trafo_corpus_options_init);
  options.monolingual = files.size() == 1;
  const std::vector<trafo_string_view> paths = views(files);
  return make<Corpus>(trafo_corpus_open, paths.data(), paths.size(), &options, nullptr);
}

std::string compared(const char* first_name, const Quality& first, const char* second_name,
                     const Quality& second) {
  return fmt::format(
      "{}: cross-entropy {:.4f}, BLEU {:.2f}\n"
      "{}: cross-entropy {:.4f} ({:+.4f}), BLEU {:.2f} ({:+.2f})",
      first_name, first.cross_entropy, first.bleu, second_name, second.cross_entropy,
      second.cross_entropy - first.cross_entropy, second.bleu, second.bleu - first.bleu);
}

ValidationPairs::ValidationPairs(const std::vector<std::string>& files,
                                 const trafo_tokenizer* tokenizer)
    : tokenizer_(tokenizer) {
  read_pair(files[0], files[1], source_, target_);
  if (source_.empty()) usage_error(files[0] + ": is empty");
}

double ValidationPairs::cross_entropy(trafo_model* model) const {
  auto options = with_defaults<trafo_translate_options>(trafo_translate_options_init);
  options.length_penalty = 0;
  options.truncate = 0;
  double total = 0;
  int64_t tokens = 0;
  for (size_t begin = 0; begin < source_.size(); begin += kScoredAtOnce) {
    const size_t count = std::min(kScoredAtOnce, source_.size() - begin);
    const auto s = views(source_), t = views(target_);
    const auto scored = make<Translations>(trafo_force_decode, model, tokenizer_, s.data() + begin,
                                           t.data() + begin, count,
                                           static_cast<const trafo_translate_options*>(&options),
                                           static_cast<const trafo_cancel*>(nullptr));
    for (size_t i = 0; i < count; ++i) {
      trafo_string_view text{};
      double log_probability = 0;
      const int32_t* ids = nullptr;
      size_t length = 0;
      check(trafo_translations_get(scored.get(), i, 0, &text, &log_probability));
      check(trafo_translations_get_tokens(scored.get(), i, 0, &ids, &length));
      total += log_probability;
      tokens += static_cast<int64_t>(length) + 1;  // the end
    }
  }
  return -total / static_cast<double>(tokens);
}

double ValidationPairs::bleu(trafo_model* model) const {
  const auto lines = views(source_);
  const auto translated =
      make<Translations>(trafo_translate, model, tokenizer_, lines.data(), lines.size(),
                         static_cast<const trafo_translate_options*>(nullptr),
                         static_cast<const trafo_cancel*>(nullptr));
  std::vector<trafo_string_view> hypotheses(lines.size());
  for (size_t i = 0; i < hypotheses.size(); ++i)
    check(trafo_translations_get(translated.get(), i, 0, &hypotheses[i], nullptr));
  double score = 0;
  check(
      trafo_bleu(hypotheses.data(), views(target_).data(), hypotheses.size(), 0, &score, nullptr));
  return score;
}

std::vector<MeasuredMatrix> measured_matrices(
    const trafo_model* model, const std::function<bool(const trafo_parameter_info&)>& wanted) {
  int64_t count = 0, elements = 0;
  check(trafo_model_get_parameter_count(model, &count, &elements));
  std::vector<MeasuredMatrix> matrices;
  for (int64_t i = 0; i < count; ++i) {
    trafo_parameter_info info{};
    check(trafo_model_get_parameter_info(model, i, &info, sizeof info));
    if (wanted(info))
      matrices.push_back({info.name, info.rows, info.columns, info.signal_to_noise});
  }
  std::stable_sort(matrices.begin(), matrices.end(),
                   [](const MeasuredMatrix& a, const MeasuredMatrix& b) {
                     return a.signal_to_noise < b.signal_to_noise;
                   });
  return matrices;
}

}  // namespace translate_train
