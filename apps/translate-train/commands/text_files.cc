#include "commands/text_files.h"

#include <algorithm>

#include "settings/settings.h"

namespace translate_train {
namespace {

constexpr int64_t kInMemory = int64_t{256} << 20;  // of the text of all files

// In the order of TRAFO_CORPUS_*; the formats after them are token ids.
std::span<const char* const> text_formats() {
  return std::span(spec_of(Setting::data_format).words).first(TRAFO_CORPUS_LLM_C);
}

}  // namespace

int32_t index_of_word(std::span<const char* const> words, const std::string& word) {
  return static_cast<int32_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

void add_data_format(CLI::App& app, std::string& format) {
  const std::span<const char* const> words = text_formats();
  app.add_option("--data-format", format,
                 "auto, text, jsonl (JSON lines) or csv (with a header); auto: jsonl or csv by the "
                 "name of the file, jsonl if its first line is a JSON object")
      ->type_name("NAME")
      ->check(CLI::IsMember(std::vector<std::string>(words.begin(), words.end())));
}

Corpus read_texts(const std::vector<std::string>& files, const std::string& data_format) {
  auto options = with_defaults<trafo_corpus_options>(trafo_corpus_options_init);
  options.monolingual = 1;
  options.format = index_of_word(text_formats(), data_format);
  options.memory_bytes = kInMemory / static_cast<int64_t>(files.size());
  std::vector<Corpus> corpora;
  for (const std::string& file : files) {
    const trafo_string_view path = view(file);
    corpora.push_back(make<Corpus>(trafo_corpus_open, &path, size_t{1}, &options, nullptr));
  }
  if (corpora.size() == 1) return std::move(corpora.front());
  std::vector<const trafo_corpus*> parts;
  for (const Corpus& corpus : corpora) parts.push_back(corpus.get());
  const std::vector<double> weights(parts.size(), 1);
  return make<Corpus>(trafo_corpus_mix, parts.data(), weights.data(), parts.size());
}

}  // namespace translate_train
