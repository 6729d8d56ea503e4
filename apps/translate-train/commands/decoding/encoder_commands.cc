// embed: a vector for each line. classify: the label of each line or of its words, from the head of
// an encoder.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "settings/generated/choices.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

constexpr size_t kLinesOfACall = 64;

using Tensor = Handle<trafo_tensor, trafo_tensor_free>;

struct TextArguments {
  ModelArguments model;
  std::string input = "-", output = "-";
  std::string pooling = "mean";
  bool normalize = false, pairs = false, json = false, quiet = false;
};

// A matrix of floats in host memory.
struct Rows {
  std::vector<float> values;
  size_t count = 0, width = 0;
  std::span<const float> row(size_t i) const { return std::span(values).subspan(i * width, width); }
};

Rows rows_of(const LoadedModel& loaded, const trafo_tensor* tensor) {
  Tensor wide;
  trafo_tensor* single = nullptr;
  check(trafo_op_cast(loaded.context.get(), tensor, TRAFO_FLOAT32, &single));
  wide.reset(single);
  int64_t shape[2] = {};
  int32_t rank = 0;
  check(trafo_tensor_get_shape(wide.get(), shape, 2, &rank));
  Rows rows{{}, static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1])};
  rows.values.resize(rows.count * rows.width);
  check(trafo_tensor_read(wide.get(), rows.values.data(), rows.values.size() * sizeof(float)));
  return rows;
}

// Calls block(lines) for some lines at a time.
template <class Block>
void for_blocks(const TextArguments& arguments, const Block& block) {
  LineReader in(arguments.input);
  std::vector<std::string> lines;
  std::string line;
  bool more = true;
  while (more) {
    more = in.next(line);
    if (more) lines.push_back(line);
    if (lines.size() < kLinesOfACall && more) continue;
    if (!lines.empty()) block(lines);
    lines.clear();
  }
}

std::string numbers(std::span<const float> row) {
  std::string text;
  for (const float value : row) text += fmt::format("{}{}", text.empty() ? "" : " ", value);
  return text;
}

int embed(const TextArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  refuse_loss({arguments.input, arguments.model.model, arguments.model.vocabulary},
              arguments.output);
  const LoadedModel loaded = load_model(arguments.model, reporter);
  LineWriter out(arguments.output);
  const int32_t pooling = arguments.pooling == "first" ? TRAFO_POOLING_FIRST : TRAFO_POOLING_MEAN;
  for_blocks(arguments, [&](const std::vector<std::string>& lines) {
    trafo_tensor* vectors = nullptr;
    check(trafo_model_embed(loaded.model.get(), loaded.tokenizer.get(), views(lines).data(),
                            lines.size(), pooling, arguments.normalize, 0, &vectors));
    const Tensor owned(vectors);
    const Rows rows = rows_of(loaded, vectors);
    for (size_t i = 0; i < rows.count; ++i) {
      const std::span<const float> row = rows.row(i);
      out.write(arguments.json ? nlohmann::json(std::vector<float>(row.begin(), row.end())).dump()
                               : numbers(row));
    }
  });
  out.finish();
  return kDone;
}

std::vector<std::string> label_names(const trafo_model* model, size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    trafo_string_view name{};
    check(trafo_model_get_label(model, static_cast<int64_t>(i), &name));
    names.emplace_back(name.data, name.length);
  }
  return names;
}

std::vector<double> softmax(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(logit - top));
  for (double& share : shares) share /= sum;
  return shares;
}

// The two texts of each line, with a tab between them.
struct TextPairs {
  std::vector<trafo_string_view> first, second;
};

TextPairs split_pairs(const std::vector<std::string>& lines, int64_t before) {
  TextPairs pairs;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || line.find('\t', tab + 1) != std::string::npos)
      usage_error(fmt::format("line {}: --pairs wants two texts with one tab between them",
                              before + static_cast<int64_t>(i) + 1));
    pairs.first.push_back({line.data(), tab});
    pairs.second.push_back({line.data() + tab + 1, line.size() - tab - 1});
  }
  return pairs;
}

struct BestLabel {
  std::string name;
  double probability;
};

BestLabel best_of(const std::vector<std::string>& names, const std::vector<double>& shares) {
  const auto best = std::max_element(shares.begin(), shares.end()) - shares.begin();
  const auto i = static_cast<size_t>(best);
  return {names[i], shares[i]};
}

// Writes the labels of texts, a row of logits for each text.
void write_text_label(const TextArguments& arguments, const std::vector<std::string>& names,
                      std::span<const float> logits, LineWriter& out) {
  const std::vector<double> shares = softmax(logits);
  const BestLabel best = best_of(names, shares);
  if (!arguments.json) {
    out.write(fmt::format("{}\t{:.6f}", best.name, best.probability));
    return;
  }
  nlohmann::ordered_json object{{"label", best.name}, {"probabilities", nullptr}};
  for (size_t k = 0; k < names.size(); ++k) object["probabilities"][names[k]] = shares[k];
  out.write(object.dump());
}

// Writes the labels of the words of a text, a row of logits for each word.
void write_word_labels(const TextArguments& arguments, const std::vector<std::string>& names,
                       const Rows& rows, size_t begin, size_t end, LineWriter& out) {
  std::string line;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t i = begin; i < end; ++i) {
    const BestLabel best = best_of(names, softmax(rows.row(i)));
    line += fmt::format("{}{}", line.empty() ? "" : " ", best.name);
    list.push_back({{"label", best.name}, {"probability", best.probability}});
  }
  out.write(arguments.json ? list.dump() : line);
}

int classify(const TextArguments& arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  refuse_loss({arguments.input, arguments.model.model, arguments.model.vocabulary},
              arguments.output);
  const LoadedModel loaded = load_model(arguments.model, reporter);
  trafo_model_config config{};
  check(trafo_model_get_config(loaded.model.get(), &config, sizeof config));
  const bool of_words = config.encoder_head == TRAFO_ENCODER_HEAD_TOKEN;
  if (!of_words && config.encoder_head != TRAFO_ENCODER_HEAD_SEQUENCE)
    usage_error("classify wants an encoder with a head for texts or tokens (import --head)");
  const std::vector<std::string> names =
      label_names(loaded.model.get(), static_cast<size_t>(config.labels));
  LineWriter out(arguments.output);
  int64_t before = 0;
  for_blocks(arguments, [&](const std::vector<std::string>& lines) {
    TextPairs pairs;
    if (arguments.pairs)
      pairs = split_pairs(lines, before);
    else
      pairs.first = views(lines);
    before += static_cast<int64_t>(lines.size());
    trafo_tensor *logits = nullptr, *bounds = nullptr;
    check(trafo_model_classify(loaded.model.get(), loaded.tokenizer.get(), pairs.first.data(),
                               arguments.pairs ? pairs.second.data() : nullptr, lines.size(), 0,
                               &logits, &bounds));
    const Tensor owned_logits(logits), owned_bounds(bounds);
    const Rows rows = rows_of(loaded, logits);
    std::vector<int32_t> ends(lines.size() + 1);
    check(trafo_tensor_read(bounds, ends.data(), ends.size() * sizeof(int32_t)));
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto begin = static_cast<size_t>(ends[i]), end = static_cast<size_t>(ends[i + 1]);
      if (of_words)
        write_word_labels(arguments, names, rows, begin, end, out);
      else
        write_text_label(arguments, names, rows.row(begin), out);
    }
  });
  out.finish();
  return kDone;
}

std::shared_ptr<TextArguments> add_texts(CLI::App& app) {
  auto arguments = std::make_shared<TextArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-i,--input", arguments->input, "lines to read (default standard input)")
      ->type_name("FILE|-");
  app.add_option("-o,--output", arguments->output, "where the results go (default standard output)")
      ->type_name("FILE|-");
  app.add_flag("--json", arguments->json, "a JSON value for each line");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  return arguments;
}

}  // namespace

Action add_embed(CLI::App& app) {
  auto arguments = add_texts(app);
  app.add_option("--pooling", arguments->pooling,
                 "mean of the states of all tokens, or the first one (default mean)")
      ->check(CLI::IsMember({"mean", "first"}))
      ->type_name("mean|first");
  app.add_flag("-n,--normalize", arguments->normalize, "divide each vector by its length");
  app.footer("A line is one text. It may have as many tokens as the model has positions.");
  return [arguments] { return embed(*arguments); };
}

Action add_classify(CLI::App& app) {
  auto arguments = add_texts(app);
  app.add_flag("--pairs", arguments->pairs, "two texts a line, with a tab between them");
  app.footer(
      "Writes the most probable label of each line and its probability or, from a head for tokens, "
      "a "
      "label for each word of the line.");
  return [arguments] { return classify(*arguments); };
}

}  // namespace translate_train
