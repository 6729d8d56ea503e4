#include "engine/metrics/bleu.h"

#include <charconv>
#include <cmath>
#include <unordered_map>

#include "engine/core/status.h"
#include "engine/core/utf8.h"
#include "engine/metrics/lowercase.h"
#include "engine/metrics/metric.h"

namespace trafo {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}

// ASCII punctuation other than ' , - . (mteval-v13a's list).
bool is_separate(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Replaces each pair of neighbours with matches(first, second) by `before first between second
// behind`. Pairs do not overlap and are found from left to right.
template <class Predicate>
std::string rewrite_pairs(const std::string& text, Predicate matches, std::string_view before,
                          std::string_view between, std::string_view behind) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      result.append(before).push_back(text[i]);
      result.append(between).push_back(text[i + 1]);
      result.append(behind);
      ++i;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

// The rules look at ASCII only, so they may work on UTF-8 bytes: a byte above 0x7f is neither digit
// nor punctuation.
std::string tokenize_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text + " ") {
    if (is_separate(c)) {
      spaced += {' ', c, ' '};
    } else {
      spaced += c;
    }
  }
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_point(b); }, "", " ", " ");
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_point(a) && !is_digit(b); }, " ", " ", "");
  return rewrite_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
}

std::string_view strip_right(std::string_view text) {
  size_t end = 0;
  for (size_t position = 0; position < text.size();)
    if (!is_unicode_space(next_code_point(text, position))) end = position;
  return text.substr(0, end);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> tokens;
  size_t begin = 0, position = 0;
  while (position < text.size()) {
    const size_t at = position;
    if (!is_unicode_space(next_code_point(text, position))) continue;
    if (at > begin) tokens.emplace_back(text.substr(begin, at - begin));
    begin = position;
  }
  if (begin < text.size()) tokens.emplace_back(text.substr(begin));
  return tokens;
}

// A number with a decimal point in every locale.
std::string fixed(double value, int decimals) {
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals).ptr;
  return std::string(text, end);
}

class Vocabulary {
 public:
  std::vector<int64_t> ids(const std::vector<std::string>& tokens) {
    std::vector<int64_t> result;
    result.reserve(tokens.size());
    for (const auto& token : tokens)
      result.push_back(
          ids_.try_emplace(token, static_cast<int64_t>(ids_.size()) + 1).first->second);
    return result;
  }

 private:
  std::unordered_map<std::string, int64_t> ids_;
};

void compute_score(BleuScore& bleu) {
  const auto hypothesis = static_cast<double>(bleu.hypothesis_length);
  const auto reference = static_cast<double>(bleu.reference_length);
  bleu.brevity_penalty = 1;
  if (bleu.hypothesis_length < bleu.reference_length)
    bleu.brevity_penalty = hypothesis > 0 ? std::exp(1 - reference / hypothesis) : 0;
  if (bleu.matches == std::array<int64_t, kBleuOrder>{}) return;

  double halving = 1;
  int order = kBleuOrder;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    if (bleu.totals[n] == 0) break;
    if (bleu.options.effective_order) order = static_cast<int>(n) + 1;
    const auto total = static_cast<double>(bleu.totals[n]);
    if (bleu.matches[n] > 0) {
      bleu.precisions[n] = 100.0 * static_cast<double>(bleu.matches[n]) / total;
    } else if (bleu.options.smoothing == BleuSmoothing::exp) {
      halving *= 2;
      bleu.precisions[n] = 100.0 / (halving * total);
    }
  }
  double log_sum = 0;
  for (size_t n = 0; n < static_cast<size_t>(order); ++n) {
    if (bleu.precisions[n] == 0) return;
    log_sum += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / order);
}

}  // namespace

std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options) {
  std::string text = options.lowercase ? lowercase_utf8(line) : std::string(line);
  text.resize(strip_right(text).size());
  if (options.tokenizer == BleuTokenizer::mteval_13a) text = tokenize_13a(std::move(text));
  return split(text);
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const BleuOptions& options) {
  check_segments(hypotheses, references, "corpus_bleu");
  BleuScore bleu;
  bleu.options = options;
  Vocabulary vocabulary;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const auto hypothesis = vocabulary.ids(bleu_tokens(hypotheses[i], options));
    const auto reference = vocabulary.ids(bleu_tokens(references[i], options));
    bleu.hypothesis_length += static_cast<int64_t>(hypothesis.size());
    bleu.reference_length += static_cast<int64_t>(reference.size());
    for (size_t n = 1; n <= kBleuOrder; ++n) {
      const auto ngrams = sorted_ngrams<kBleuOrder>(hypothesis, n);
      bleu.totals[n - 1] += static_cast<int64_t>(ngrams.size());
      bleu.matches[n - 1] += count_matches(ngrams, sorted_ngrams<kBleuOrder>(reference, n));
    }
  }
  compute_score(bleu);
  return bleu;
}

std::string BleuScore::signature() const {
  return concat("nrefs:1|case:", options.lowercase ? "lc" : "mixed",
                "|eff:", options.effective_order ? "yes" : "no",
                "|tok:", options.tokenizer == BleuTokenizer::mteval_13a ? "13a" : "none",
                "|smooth:", options.smoothing == BleuSmoothing::exp ? "exp" : "none", "|",
                kMetricVersion);
}

std::string BleuScore::text() const {
  const double ratio = reference_length == 0 ? 0
                                             : static_cast<double>(hypothesis_length) /
                                                   static_cast<double>(reference_length);
  return concat("BLEU = ", fixed(score, 2), " ", fixed(precisions[0], 1), "/",
                fixed(precisions[1], 1), "/", fixed(precisions[2], 1), "/", fixed(precisions[3], 1),
                " (BP = ", fixed(brevity_penalty, 3), " ratio = ", fixed(ratio, 3),
                " hyp_len = ", std::to_string(hypothesis_length),
                " ref_len = ", std::to_string(reference_length), ")");
}

}  // namespace trafo
