// Another project's program in C++17: trains a tokenizer, which needs SentencePiece beside the
// library, and cuts a sentence.
#include <cstdio>
#include <memory>
#include <string_view>

#include <trafo.h>

namespace {

struct Free {
  void operator()(trafo_tokenizer* tokenizer) const { trafo_tokenizer_free(tokenizer); }
  void operator()(trafo_error* error) const { trafo_error_free(error); }
  void operator()(int32_t* ids) const { trafo_ids_free(ids); }
};

bool fails(trafo_error* raw) {
  const std::unique_ptr<trafo_error, Free> error(raw);
  if (error) std::fprintf(stderr, "%s\n", trafo_error_message(error.get()));
  return error != nullptr;
}

}  // namespace

int main() {
  constexpr std::string_view line = "alpha beta gamma";
  const trafo_string_view view{line.data(), line.size()};
  trafo_tokenizer_options options;
  if (fails(trafo_tokenizer_options_init(&options, sizeof options))) return 1;
  options.vocabulary = 30;
  options.soft_limit = 1;
  trafo_tokenizer* raw = nullptr;
  if (fails(trafo_tokenizer_train(&view, 1, &options, nullptr, &raw))) return 1;
  const std::unique_ptr<trafo_tokenizer, Free> tokenizer(raw);
  int32_t* raw_ids = nullptr;
  size_t count = 0;
  if (fails(trafo_tokenizer_encode(raw, line.data(), line.size(), &raw_ids, &count))) return 1;
  const std::unique_ptr<int32_t, Free> ids(raw_ids);
  if (count == 0) return 1;
  std::printf("trafo %s\n", trafo_version());
  return 0;
}
