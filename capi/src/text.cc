#include <filesystem>
#include <limits>
#include <system_error>

#include "capi/src/text_handles.h"
#include "engine/core/cancel_scope.h"
#include "engine/core/parallel_chunks.h"
#include "engine/data/token_files/token_writer.h"
#include "engine/data/train_tokenizer.h"
#include "engine/io/atomic_file.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

TokenizerTrainOptions to_options(const Call& call, const trafo_tokenizer_options* options,
                                 const CancelToken* cancel) {
  const trafo_tokenizer_options o = read_options(call, options);
  if (o.vocabulary < 1 || o.vocabulary > std::numeric_limits<int32_t>::max())
    call.refuse_argument("vocabulary", " must be 1 to ", std::numeric_limits<int32_t>::max(),
                         ", got ", o.vocabulary);
  TokenizerTrainOptions result;
  result.cancel = cancel;
  result.kind = call.text(o.kind.data, o.kind.length, "kind");
  result.vocab_size = static_cast<int32_t>(o.vocabulary);
  result.model = call.flag(o.bpe, "bpe") ? TokenizerModel::bpe : TokenizerModel::unigram;
  result.character_coverage = o.character_coverage;
  result.byte_fallback = call.flag(o.byte_fallback, "byte_fallback");
  result.hard_vocab_limit = !call.flag(o.soft_limit, "soft_limit");
  if (o.normalization < 0 || o.normalization >= std::ssize(kNormalizationNames))
    call.refuse_argument("normalization", " must be 0 to ", std::ssize(kNormalizationNames) - 1,
                         ", got ", o.normalization);
  result.normalization = static_cast<Normalization>(o.normalization);
  for (const std::string_view symbol :
       views_argument(call, o.user_symbols, o.user_symbol_count, "user_symbols"))
    result.user_symbols.emplace_back(symbol);
  return result;
}

// Writes the companions of a vocabulary beside its file, if that has the name of its kind. Other
// files with their names would be read as its own.
void save_companions(const Call& call, const Tokenizer& tokenizer,
                     const std::filesystem::path& file) {
  if (file.filename() != tokenizer.file_name()) return;
  std::error_code error;
  const bool replaces = std::filesystem::exists(file, error);
  const auto& companions = tokenizer.companions();
  for (const std::string_view name : tokenizer_kind(tokenizer.kind()).companions) {
    const std::filesystem::path path = file.parent_path() / name;
    const auto own = std::find_if(companions.begin(), companions.end(),
                                  [&](const CompanionFile& each) { return each.name == name; });
    if (own != companions.end()) {
      write_file_atomically(path, own->content);
    } else if (std::filesystem::exists(path, error)) {
      if (!replaces)
        call.refuse_argument("path", ": ", path.string(), " is beside it and belongs to another ",
                             "vocabulary: move it away");
      std::filesystem::remove(path);
    }
  }
}

std::string utf8_path(const Call& call, const char* data, size_t length, const char* name) {
  return path_argument(call, data, length, name).string();
}

void encode_text(const Call& call, const trafo_tokenizer* tokenizer, bool target, const char* text,
                 size_t text_length, int32_t** out_ids, size_t* out_count) {
  call.out(out_ids, "out_ids");
  call.out(out_count, "out_count");
  const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
  const std::string_view line = call.text(text, text_length, "text");
  const std::vector<int32_t> ids =
      target ? subwords.for_targets().encode(line) : subwords.encode(line);
  *out_ids = copy_ids(ids);
  *out_count = ids.size();
}

PairView pair_argument(const Call& call, const trafo_corpus* corpus, int64_t index,
                       PairBuffers& buffers) {
  const TextCorpus& pairs = call.handle(corpus, "corpus").corpus;
  if (pairs.has_ids()) call.refuse_argument("corpus", " has token ids and no text");
  if (index < 0 || index >= pairs.size())
    call.refuse_argument("index", " must be 0 to ", pairs.size() - 1, ", got ", index);
  return pairs.view(index, buffers);
}

}  // namespace

trafo_error* trafo_tokenizer_train(const trafo_string_view* lines, size_t count,
                                   const trafo_tokenizer_options* options,
                                   const trafo_cancel* cancel, trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const CancelArgument token(call, cancel);
    *out = new_handle<trafo_tokenizer>(Tokenizer::train(views_argument(call, lines, count, "lines"),
                                                        to_options(call, options, token.get())));
  });
}

trafo_error* trafo_tokenizer_load(const char* path, size_t path_length, trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const std::filesystem::path file = path_argument(call, path, path_length, "path");
    *out = new_handle<trafo_tokenizer>(Tokenizer::load(file), file.string());
  });
}

trafo_error* trafo_tokenizer_load_buffer(const uint8_t* data, size_t bytes, trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const auto* text = reinterpret_cast<const char*>(data);
    *out = new_handle<trafo_tokenizer>(Tokenizer::from_bytes(call.text(text, bytes, "data")));
  });
}

trafo_error* trafo_tokenizer_save(const trafo_tokenizer* tokenizer, const char* path,
                                  size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    std::filesystem::path file = path_argument(call, path, path_length, "path");
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) file /= subwords.file_name();
    save_companions(call, subwords, file);
    write_file_atomically(file, subwords.serialized());
  });
}

trafo_error* trafo_find_vocabulary(const char* directory, size_t directory_length,
                                   char** out_path) {
  return api(__func__, [&](const Call& call) {
    call.out(out_path, "out_path");
    const std::filesystem::path file =
        vocabulary_file(path_argument(call, directory, directory_length, "directory"));
    *out_path = copy_string(file.string());
  });
}

trafo_error* trafo_tokenizer_get_kind(const trafo_tokenizer* tokenizer, const char** out_kind,
                                      const char** out_file) {
  return api(__func__, [&](const Call& call) {
    if (out_file) *out_file = nullptr;
    call.out(out_kind, "out_kind");
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    *out_kind = subwords.kind().data();
    if (out_file) *out_file = subwords.file_name().data();
  });
}

trafo_error* trafo_tokenizer_get_vocabulary(const trafo_tokenizer* tokenizer, int64_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = call.handle(tokenizer, "tokenizer").tokenizer.vocab_size();
  });
}

trafo_error* trafo_tokenizer_get_source_vocabulary(const trafo_tokenizer* tokenizer, int64_t* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const Tokenizer& subwords = call.handle(tokenizer, "tokenizer").tokenizer;
    *out = subwords.has_separate_sources() ? subwords.source_vocab_size() : 0;
  });
}

trafo_error* trafo_tokenizer_get_special(const trafo_tokenizer* tokenizer,
                                         trafo_special_tokens* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const SpecialTokens special = call.handle(tokenizer, "tokenizer").tokenizer.special_tokens();
    *out = {special.unk, special.bos, special.eos, special.pad};
  });
}

trafo_error* trafo_tokenizer_encode(const trafo_tokenizer* tokenizer, const char* text,
                                    size_t text_length, int32_t** out_ids, size_t* out_count) {
  return api(__func__, [&](const Call& call) {
    encode_text(call, tokenizer, false, text, text_length, out_ids, out_count);
  });
}

trafo_error* trafo_tokenizer_encode_target(const trafo_tokenizer* tokenizer, const char* text,
                                           size_t text_length, int32_t** out_ids,
                                           size_t* out_count) {
  return api(__func__, [&](const Call& call) {
    encode_text(call, tokenizer, true, text, text_length, out_ids, out_count);
  });
}

trafo_error* trafo_tokenizer_parse_special(const trafo_tokenizer* tokenizer,
                                           trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TokenizerObject& plain = call.handle(tokenizer, "tokenizer");
    *out =
        new_handle<trafo_tokenizer>(plain.tokenizer.parsing_special(), plain.file, plain.checksum);
  });
}

trafo_error* trafo_tokenizer_with_languages(const trafo_tokenizer* tokenizer, const char* source,
                                            size_t source_length, const char* target,
                                            size_t target_length, trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TokenizerObject& plain = call.handle(tokenizer, "tokenizer");
    *out = new_handle<trafo_tokenizer>(
        plain.tokenizer.with_languages(call.text(source, source_length, "source"),
                                       call.text(target, target_length, "target")),
        plain.file, plain.checksum);
  });
}

trafo_error* trafo_tokenizer_decode(const trafo_tokenizer* tokenizer, const int32_t* ids,
                                    size_t count, char** out_text, size_t* out_length) {
  return api(__func__, [&](const Call& call) {
    call.out(out_text, "out_text");
    call.out(out_length, "out_length");
    call.array(ids, count, "ids");
    const std::string text = call.handle(tokenizer, "tokenizer").tokenizer.decode({ids, count});
    *out_text = copy_string(text);
    *out_length = text.size();
  });
}

trafo_error* trafo_tokenizer_get_token(const trafo_tokenizer* tokenizer, int32_t id,
                                       char** out_subword, size_t* out_length) {
  return api(__func__, [&](const Call& call) {
    call.out(out_subword, "out_subword");
    call.out(out_length, "out_length");
    const std::string& subword = call.handle(tokenizer, "tokenizer").tokenizer.token(id);
    *out_subword = copy_string(subword);
    *out_length = subword.size();
  });
}

void trafo_tokenizer_free(trafo_tokenizer* tokenizer) {
  free_handle(tokenizer);
}

trafo_error* trafo_corpus_load(const char* source_path, size_t source_length,
                               const char* target_path, size_t target_length,
                               const trafo_cancel* cancel, trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const CancelArgument token(call, cancel);
    const CancelScope scope(token.get());
    *out = new_handle<trafo_corpus>(
        load_parallel(utf8_path(call, source_path, source_length, "source_path"),
                      utf8_path(call, target_path, target_length, "target_path")));
  });
}

trafo_error* trafo_corpus_load_tsv(const char* path, size_t path_length, const trafo_cancel* cancel,
                                   trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const CancelArgument token(call, cancel);
    const CancelScope scope(token.get());
    *out = new_handle<trafo_corpus>(load_tsv(utf8_path(call, path, path_length, "path")));
  });
}

trafo_error* trafo_corpus_new(const trafo_string_view* source, const trafo_string_view* target,
                              size_t count, trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = new_handle<trafo_corpus>(make_parallel(lines_argument(call, source, count, "source"),
                                                  lines_argument(call, target, count, "target")));
  });
}

trafo_error* trafo_corpus_new_ids(const trafo_ids_view* source, const trafo_ids_view* target,
                                  size_t count, trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    std::vector<std::vector<int32_t>> sources(source ? 0 : count);
    if (source) sources = ids_argument(call, source, count, "source");
    *out = new_handle<trafo_corpus>(
        TextCorpus::of_ids(sources, ids_argument(call, target, count, "target")));
  });
}

trafo_error* trafo_corpus_new_preferences(const trafo_string_view* prompts,
                                          const trafo_string_view* chosen,
                                          const trafo_string_view* rejected, size_t count,
                                          trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = new_handle<trafo_corpus>(
        make_preferences(lines_argument(call, prompts, count, "prompts"),
                         lines_argument(call, chosen, count, "chosen"),
                         lines_argument(call, rejected, count, "rejected")));
  });
}

trafo_error* trafo_corpus_new_labelled(const trafo_string_view* prompts,
                                       const trafo_string_view* answers, const int32_t* labels,
                                       size_t count, trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    std::vector<std::string> questions = lines_argument(call, prompts, count, "prompts"),
                             replies = lines_argument(call, answers, count, "answers");
    call.array(labels, count, "labels");
    std::vector<bool> desirable;
    for (size_t i = 0; i < count; ++i) desirable.push_back(call.flag(labels[i], "labels"));
    *out = new_handle<trafo_corpus>(
        make_labelled(std::move(questions), std::move(replies), desirable));
  });
}

trafo_error* trafo_corpus_open(const trafo_string_view* paths, size_t count,
                               const trafo_corpus_options* options, const trafo_cancel* cancel,
                               trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const CancelArgument token(call, cancel);
    const CancelScope scope(token.get());
    call.array(paths, count, "paths");
    const trafo_corpus_options o = read_options(call, options);
    const bool monolingual = call.flag(o.monolingual, "monolingual");
    const bool preferences = call.flag(o.preferences, "preferences");
    if (monolingual && preferences)
      call.refuse_argument("preferences", " and monolingual are both set: text is one of them");
    if (o.memory_bytes < 0)
      call.refuse_argument("memory_bytes", " must be at least 0, got ", o.memory_bytes);
    if (o.format < TRAFO_CORPUS_AUTO || o.format > TRAFO_CORPUS_MEGATRON)
      call.refuse_argument("format", " must be 0 to ", TRAFO_CORPUS_MEGATRON, ", got ", o.format);
    if (o.document_end < -1)
      call.refuse_argument("document_end", " must be a token or -1, none, got ", o.document_end);
    if (o.document_end >= 0 && o.format != TRAFO_CORPUS_LLM_C && o.format != TRAFO_CORPUS_NANOGPT)
      call.refuse_argument("document_end", " is of files of llm.c and nanoGPT, got ",
                           o.document_end);
    call.reserved(o.reserved);
    if (!preferences && (count < 1 || count > (monolingual ? 1u : 2u)))
      call.refuse(count, " paths: ",
                  monolingual ? "monolingual text is one file"
                              : "a corpus is two files, or one file of TSV or JSON lines");
    LoadOptions load;
    load.memory_bytes = o.memory_bytes;
    load.format = static_cast<CorpusFormat>(o.format);
    load.document_end = o.document_end;
    const trafo_string_view& folder = o.unpack_directory;
    if (!call.text(folder.data, folder.length, "unpack_directory").empty())
      load.unpack_directory = utf8_path(call, folder.data, folder.length, "unpack_directory");
    std::vector<std::string> files;
    for (size_t i = 0; i < count; ++i)
      files.push_back(utf8_path(call, paths[i].data, paths[i].length, "paths"));
    *out = new_handle<trafo_corpus>(preferences   ? load_preferences(files, load)
                                    : count == 2  ? load_parallel(files[0], files[1], load)
                                    : monolingual ? load_monolingual(files[0], load)
                                                  : load_tsv(files[0], load));
  });
}

trafo_error* trafo_corpus_write_ids(const trafo_corpus* corpus, const trafo_tokenizer* tokenizer,
                                    int32_t format, const char* path, size_t path_length,
                                    const trafo_cancel* cancel, int64_t* out_documents,
                                    int64_t* out_tokens) {
  return api(__func__, [&](const Call& call) {
    call.out(out_documents, "out_documents");
    call.out(out_tokens, "out_tokens");
    const CancelArgument token(call, cancel);
    if (format < TRAFO_CORPUS_LLM_C || format > TRAFO_CORPUS_MEGATRON)
      call.refuse_argument("format", " must be ", TRAFO_CORPUS_LLM_C, " to ", TRAFO_CORPUS_MEGATRON,
                           ", files of token ids, got ", format);
    const TokenFileSize size = write_token_file(
        call.handle(corpus, "corpus").corpus, call.handle(tokenizer, "tokenizer").tokenizer,
        static_cast<CorpusFormat>(format), utf8_path(call, path, path_length, "path"),
        idle_host_threads(), token.get());
    *out_documents = size.documents;
    *out_tokens = size.tokens;
  });
}

trafo_error* trafo_corpus_mix(const trafo_corpus* const* corpora, const double* weights,
                              size_t count, trafo_corpus** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    call.array(corpora, count, "corpora");
    call.array(weights, count, "weights");
    std::vector<std::pair<TextCorpus, double>> parts;
    for (size_t i = 0; i < count; ++i)
      parts.emplace_back(call.handle(corpora[i], "corpora").corpus, weights[i]);
    *out = new_handle<trafo_corpus>(TextCorpus::mix(std::move(parts)));
  });
}

trafo_error* trafo_corpus_hold_out(const trafo_corpus* corpus, int64_t count,
                                   trafo_corpus** out_rest, trafo_corpus** out_held) {
  return api(__func__, [&](const Call& call) {
    call.out(out_rest, "out_rest");
    call.out(out_held, "out_held");
    auto [rest, held] = call.handle(corpus, "corpus").corpus.hold_out(count);
    OwnedHandle<trafo_corpus> first(new_handle<trafo_corpus>(std::move(rest)));
    *out_held = new_handle<trafo_corpus>(std::move(held));
    *out_rest = first.release();
  });
}

trafo_error* trafo_corpus_get_info(const trafo_corpus* corpus, trafo_corpus_info* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const TextCorpus& pairs = call.handle(corpus, "corpus").corpus;
    const CorpusReport report = pairs.report();
    *out = {report.lines,
            report.pairs,
            report.dropped_empty,
            static_cast<int32_t>(pairs.form()),
            pairs.format() == CorpusFormat::json_lines,
            pairs.has_chats(),
            pairs.labelled(),
            pairs.format() == CorpusFormat::csv,
            pairs.has_ids()};
  });
}

trafo_error* trafo_corpus_get_line(const trafo_corpus* corpus, int64_t index, int64_t* out_line) {
  return api(__func__, [&](const Call& call) {
    call.out(out_line, "out_line");
    const TextCorpus& pairs = call.handle(corpus, "corpus").corpus;
    if (index < 0 || index >= pairs.size())
      call.refuse_argument("index", " must be 0 to ", pairs.size() - 1, ", got ", index);
    *out_line = pairs.line(index);
  });
}

trafo_error* trafo_corpus_get_pair(const trafo_corpus* corpus, int64_t index,
                                   trafo_string_view* out_source, trafo_string_view* out_target) {
  return api(__func__, [&](const Call& call) {
    call.out(out_source, "out_source");
    call.out(out_target, "out_target");
    thread_local PairBuffers buffers;
    const PairView pair = pair_argument(call, corpus, index, buffers);
    *out_source = {pair.source.data(), pair.source.size()};
    *out_target = {pair.target.data(), pair.target.size()};
  });
}

trafo_error* trafo_corpus_get_rejected(const trafo_corpus* corpus, int64_t index,
                                       trafo_string_view* out_rejected) {
  return api(__func__, [&](const Call& call) {
    call.out(out_rejected, "out_rejected");
    thread_local PairBuffers buffers;
    const PairView pair = pair_argument(call, corpus, index, buffers);
    if (call.handle(corpus, "corpus").corpus.form() != CorpusForm::preferences)
      call.refuse("the corpus has no preference pairs");
    *out_rejected = {pair.rejected.data(), pair.rejected.size()};
  });
}

trafo_error* trafo_corpus_train_tokenizer(const trafo_corpus* corpus,
                                          const trafo_tokenizer_options* options,
                                          const trafo_cancel* cancel, trafo_tokenizer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const CancelArgument token(call, cancel);
    *out = new_handle<trafo_tokenizer>(train_tokenizer(call.handle(corpus, "corpus").corpus,
                                                       to_options(call, options, token.get())));
  });
}

void trafo_corpus_free(trafo_corpus* corpus) {
  free_handle(corpus);
}
