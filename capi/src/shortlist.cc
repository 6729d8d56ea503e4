#include <cerrno>
#include <fstream>
#include <locale>
#include <sstream>
#include <vector>

#include "capi/src/text_handles.h"
#include "engine/core/open_error.h"
#include "engine/io/atomic_file.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

std::vector<std::vector<int32_t>> encode_lines(const Call& call, const Tokenizer& tokenizer,
                                               const trafo_string_view* lines, size_t count,
                                               const char* name, const CancelToken* cancel) {
  call.array(lines, count, name);
  std::vector<std::vector<int32_t>> ids(count);
  for (size_t i = 0; i < count; ++i) {
    stop_if_cancelled(cancel, call.function());
    try {
      tokenizer.encode(call.text(lines[i].data, lines[i].length, name), ids[i]);
    } catch (const Error& error) {
      fail(error.code(), call.function(), name, ", line ", i + 1, ": ", error.message());
    }
  }
  return ids;
}

void refuse_separate_sources(const Call& call, const Tokenizer& tokenizer) {
  require(!tokenizer.has_separate_sources(), ErrorCode::unsupported, call.function(),
          "a shortlist is for one vocabulary of both sides, and sources have their own in this "
          "tokenizer (target_vocab.json)");
}

}  // namespace

trafo_error* trafo_shortlist_learn(const trafo_tokenizer* tokenizer,
                                   const trafo_string_view* source, const trafo_string_view* target,
                                   size_t count, int64_t best, const trafo_cancel* cancel,
                                   trafo_shortlist** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    refuse_separate_sources(call, subwords);
    const CancelArgument token(call, cancel);
    if (best < 0) call.refuse_argument("best", " must be at least 0, got ", best);
    if (count == 0) call.refuse("there are no pairs to learn from");
    const auto sources = encode_lines(call, subwords, source, count, "source", token.get());
    const auto targets =
        encode_lines(call, subwords.for_targets(), target, count, "target", token.get());
    *out = new_handle<trafo_shortlist>(subwords,
                                       LexicalTable::learn(sources, targets, subwords.vocab_size(),
                                                           best > 0 ? best : 100, token.get()));
  });
}

trafo_error* trafo_shortlist_load(const trafo_tokenizer* tokenizer, const char* path,
                                  size_t path_length, trafo_shortlist** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    refuse_separate_sources(call, subwords);
    const std::filesystem::path file = path_argument(call, path, path_length, "path");
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) call.refuse(file.string(), ": is a directory");
    errno = 0;
    std::ifstream in;
    in.imbue(std::locale::classic());
    in.open(file, std::ios::binary);
    if (!in.is_open()) fail_to_open(call.function(), file.string(), errno);
    in.exceptions(std::ios::badbit);  // else no memory looks like the end
    *out = new_handle<trafo_shortlist>(subwords, LexicalTable::read(in, file.string(), subwords));
  });
}

trafo_error* trafo_shortlist_save(const trafo_shortlist* shortlist, const char* path,
                                  size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const ShortlistObject& list = call.handle(shortlist, "shortlist");
    const std::filesystem::path file = path_argument(call, path, path_length, "path");
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text.exceptions(std::ios::badbit);
    list.table.write(text, list.tokenizer);
    write_file_atomically(file, text.str());
  });
}

void trafo_shortlist_free(trafo_shortlist* shortlist) {
  free_handle(shortlist);
}
