// Writes the token ids that a decoder-lm is trained on, for tests/parity/preference_parity.py:
//
//   corpus_rows TOKENIZER TEMPLATE FILE
//
// FILE has JSON lines or CSV. TEMPLATE is a file with a chat template, or a name that is built in.
// Each line of the output is a row, {"source": [id, ..], "target": [..], "rejected": [..]}.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>

#include "engine/core/strings/json.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/text/chat_template/chat_template.h"

namespace trafo::testing {
namespace {

Json ids_of(std::span<const int32_t> ids) {
  return Json(std::vector<int32_t>(ids.begin(), ids.end()));
}

std::string template_of(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) return name;
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_rows(const std::string& tokenizer, const std::string& chat_template,
                const std::string& file) {
  const PairEncoding encoding(
      with_chat_template(Tokenizer::load(tokenizer), template_of(chat_template), chat_template));
  const TokenizedCorpus rows(
      load_tsv(file), encoding,
      {.form = SequenceForm::decoder_only, .max_length = 1 << 20, .batch_tokens = 1 << 22});
  for (int64_t i = 0; i < rows.size(); ++i) {
    Json row;
    row["source"] = ids_of(rows.source(i));
    row["target"] = ids_of(rows.target(i));
    row["rejected"] = ids_of(rows.rejected(i));
    std::puts(row.dump().c_str());
  }
}

}  // namespace
}  // namespace trafo::testing

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fputs("corpus_rows TOKENIZER TEMPLATE FILE\n", stderr);
    return 2;
  }
  trafo::testing::write_rows(argv[1], argv[2], argv[3]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "corpus_rows: %s\n", error.what());
  return 1;
}
