#include "engine/models/added_tokens.h"

#include <cstring>
#include <vector>

#include "engine/core/argument_error.h"
#include "engine/core/strings/quote.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

constexpr const char* kAddedOrigin = "added tokens";

// Of each new token, the rows whose mean it gets.
using OldRows = std::vector<std::vector<int32_t>>;

OldRows old_rows(const Tokenizer& tokenizer, std::span<const std::string> tokens,
                 std::string_view like) {
  if (!like.empty()) {
    const int32_t id = tokenizer.id(like);
    require_argument(id >= 0 && tokenizer.token(id) == like, kAddedOrigin, "like", ": ",
                     quote(like.substr(0, 64)), " is no token of the vocabulary");
    return OldRows(tokens.size(), {id});
  }
  // Without the settings of the caller's tokenizer.
  const Tokenizer plain = Tokenizer::from_bytes(tokenizer.serialized(), tokenizer.file_name(),
                                                std::vector(tokenizer.companions()));
  const int32_t begin = plain.language();  // in front of every text
  OldRows rows;
  for (const std::string& token : tokens) {
    std::vector<int32_t>& ids = rows.emplace_back(plain.encode(token));
    if (begin >= 0 && !ids.empty()) ids.erase(ids.begin());
    require_argument(!ids.empty(), kAddedOrigin, "tokens", ": ", quote(token),
                     " has no subwords in the vocabulary, name a token whose rows it begins with");
  }
  return rows;
}

// The rows of a parameter [n] or [n, columns], and after them the means.
template <class Real>
void append_means(std::vector<std::byte>& bytes, size_t columns, const OldRows& rows) {
  std::vector<Real> row(columns);
  const size_t row_bytes = columns * sizeof(Real);
  for (const std::vector<int32_t>& ids : rows) {
    std::vector<double> sum(columns);
    for (const int32_t id : ids) {
      std::memcpy(row.data(), bytes.data() + static_cast<size_t>(id) * row_bytes, row_bytes);
      for (size_t c = 0; c < columns; ++c) sum[c] += static_cast<double>(row[c]);
    }
    for (size_t c = 0; c < columns; ++c)
      row[c] = static_cast<Real>(sum[c] / static_cast<double>(ids.size()));
    const auto* const first = reinterpret_cast<const std::byte*>(row.data());
    bytes.insert(bytes.end(), first, first + row_bytes);
  }
}

// Copies every parameter. One of another shape has a row for each token of the vocabulary.
void copy_with_means(Context& context, const ParameterStore& from, ParameterStore& to,
                     const OldRows& rows) {
  const bool wide = from.master().dtype() == DType::f64;
  const size_t real = wide ? sizeof(double) : sizeof(float);
  for (size_t i = 0; i < to.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const Shape &old = from.shape(id), &shape = to.shape(id);
    const auto elements = static_cast<size_t>(element_count(old));
    std::vector<std::byte> values(elements * real);
    from.get_value(context, id, values.data(), values.size());
    if (shape != old) {
      const size_t columns = elements / static_cast<size_t>(old[0]);
      if (wide)
        append_means<double>(values, columns, rows);
      else
        append_means<float>(values, columns, rows);
    }
    to.set_value(context, id, values.data(), values.size());
  }
}

}  // namespace

ModelWithTokens add_tokens(Context& context, const Model& model, const Tokenizer& tokenizer,
                           std::span<const std::string> tokens, bool special,
                           std::string_view like) {
  require_vocabulary_size(model, tokenizer);
  require(model.config().source_vocabulary == 0, ErrorCode::unsupported, kAddedOrigin,
          "sources of the model have their own embedding matrix (source_vocabulary): tokens are "
          "added to one vocabulary of both sides only");
  require(!model.adapter() && !model.merged_adapter() && !model.parameters().has_int8(),
          ErrorCode::invalid_argument, kAddedOrigin,
          "the model has an adapter or int8 weights: merge the adapter into a model, and quantize "
          "after adding tokens");
  Tokenizer more = tokenizer.with_tokens(tokens, special);
  const OldRows rows = old_rows(tokenizer, tokens, like);
  ModelConfig config = model.config();
  config.vocabulary = more.vocab_size();
  validate(config);
  const ParameterStore& from = model.parameters();
  std::unique_ptr<Model> result = make_model(context, config, std::nullopt, from.dtype());
  result->parameters().copy_groups(context, from);
  copy_with_means(context, from, result->parameters(), rows);
  result->set_labels(model.labels());
  result->set_origin({.file = {}, .vocabulary = vocabulary_checksum(more)});
  result->set_tokens(model.tokens());
  return {std::move(result), std::move(more)};
}

}  // namespace trafo
