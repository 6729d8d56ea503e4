#include "engine/data/token_files/token_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/data/encode_pairs.h"
#include "engine/data/read_only_file.h"
#include "engine/data/token_files/token_layout.h"
#include "engine/io/atomic_file.h"
#include "engine/os/names.h"

namespace trafo {
namespace {

constexpr std::string_view kTokenWriterOrigin = "corpus";

template <class T>
void append_number(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void append_ids(std::string& out, std::span<const int32_t> ids, TokenType type) {
  for (const int32_t id : ids)
    if (type == TokenType::uint16)
      append_number(out, static_cast<uint16_t>(id));
    else
      append_number(out, id);
}

TokenType type_for(CorpusFormat format, int64_t vocabulary) {
  constexpr int64_t kUint16 = 65536, kMegatronUint16Ids = 65500;
  if (format == CorpusFormat::megatron)
    return vocabulary < kMegatronUint16Ids ? TokenType::uint16 : TokenType::int32;
  if (vocabulary <= kUint16) return TokenType::uint16;
  require(format == CorpusFormat::llm_c, ErrorCode::unsupported, kTokenWriterOrigin,
          "the vocabulary has ", vocabulary, " tokens, and a file of nanoGPT holds ids below ",
          kUint16, ": write llm.c's or Megatron's");
  return TokenType::uint32;
}

using Documents = std::function<void(std::span<const int32_t> ids)>;

// Calls each(ids) for the texts in their order. Few texts are in memory at a time, however long.
void for_documents(const TextCorpus& corpus, const PairEncoding& encoding, int num_threads,
                   const CancelToken* cancel, const Documents& each) {
  constexpr int64_t kFirst = 128, kMost = 1 << 16, kTokens = int64_t{1} << 22;
  WorkProgress progress(Work::encode_text, corpus.size());
  int64_t tokens = 0;
  for (int64_t begin = 0; begin < corpus.size();) {
    int64_t count = kFirst;
    if (begin > 0) count = std::clamp(kTokens / (tokens / begin + 1), int64_t{1}, kMost);
    count = std::min(count, corpus.size() - begin);
    auto pairs = encode_pairs(
        corpus, encoding, count, [begin](int64_t i) { return begin + i; }, {}, num_threads,
        cancel != nullptr ? &cancel->flag() : nullptr);
    require(pairs.has_value(), ErrorCode::cancelled, kTokenWriterOrigin, "cancelled by the caller");
    for (EncodedPair& pair : *pairs) {
      tokens += std::ssize(pair.target);
      if (pair.target.empty()) continue;
      pair.target.push_back(encoding.tokens.special.eos);
      each(pair.target);
    }
    begin += count;
    progress.add(count);
  }
  progress.finish();
}

// A file without a name beside the one that is to be written.
class Spool {
 public:
  explicit Spool(const std::string& path)
      : name_(path), file_(os::open_nameless_file(os::path_of(path).parent_path() / "tokens-")) {
    require(file_ >= 0, ErrorCode::io, kTokenWriterOrigin, path,
            ": cannot be written: ", std::strerror(errno));
  }
  ~Spool() { os::close_file(file_); }
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ptrdiff_t wrote = os::write_some(file_, bytes.data(), bytes.size());
      require(wrote > 0, ErrorCode::io, kTokenWriterOrigin, name_,
              ": cannot be written: ", wrote < 0 ? std::strerror(errno) : "nothing was written");
      bytes.remove_prefix(static_cast<size_t>(wrote));
      size_ += static_cast<uint64_t>(wrote);
    }
  }

  void copy_to(ByteSink& sink) const {
    std::vector<char> block(size_t{1} << 20);
    for (uint64_t done = 0; done < size_;) {
      const ptrdiff_t got = os::read_at(file_, block.data(), block.size(), done);
      require(got > 0, ErrorCode::io, kTokenWriterOrigin, name_,
              ": cannot be read back: ", got < 0 ? std::strerror(errno) : "it has become shorter");
      sink.write(std::string_view(block.data(), static_cast<size_t>(got)));
      done += static_cast<uint64_t>(got);
    }
  }

 private:
  std::string name_;
  int file_;
  uint64_t size_ = 0;
};

// Writes what has gathered, if that is much or the last.
template <class Out>
void flush(std::string& bytes, Out& out, bool all = false) {
  constexpr size_t kMuch = size_t{1} << 20;
  if (!all && bytes.size() < kMuch) return;
  out.write(std::string_view(bytes));
  bytes.clear();
}

// The texts of a corpus as tokens of a type.
struct TokenStream {
  std::function<void(const Documents&)> documents;
  TokenType type;

  // each(length) follows each document.
  template <class Out, class Each>
  TokenFileSize write(Out& out, const Each& each) const {
    TokenFileSize size;
    std::string bytes;
    documents([&](std::span<const int32_t> ids) {
      ++size.documents;
      size.tokens += std::ssize(ids);
      append_ids(bytes, ids, type);
      flush(bytes, out);
      each(ids.size(), size.tokens);
    });
    flush(bytes, out, true);
    return size;
  }
};

// Its header has the number of tokens, which is known last.
TokenFileSize write_llmc(const std::string& path, const TokenStream& stream) {
  Spool spool(path);
  const TokenFileSize size = stream.write(spool, [&](size_t, int64_t tokens) {
    require(tokens <= std::numeric_limits<int32_t>::max(), ErrorCode::unsupported,
            kTokenWriterOrigin, path,
            ": a file of llm.c has at most 2^31 - 1 tokens; write the text in parts");
  });
  const LlmcKind& kind = *std::ranges::find(kLlmcKinds, stream.type, &LlmcKind::type);
  std::string header;
  append_number(header, kind.magic);
  append_number(header, kind.version);
  append_number(header, static_cast<int32_t>(size.tokens));
  header.resize(kLlmcHeader);
  AtomicFile file(os::path_of(path));
  file.write(header);
  spool.copy_to(file);
  file.commit();
  return size;
}

TokenFileSize write_nanogpt(const std::string& path, const TokenStream& stream) {
  AtomicFile file(os::path_of(path));
  const TokenFileSize size = stream.write(file, [](size_t, int64_t) {});
  file.commit();
  return size;
}

void write_index(ByteSink& file, TokenType type, std::span<const int32_t> lengths) {
  std::string bytes(kMegatronMagic, sizeof kMegatronMagic);
  append_number(bytes, kMegatronVersion);
  append_number(bytes, type == TokenType::uint16 ? kMegatronUint16 : kMegatronInt32);
  append_number(bytes, static_cast<uint64_t>(lengths.size()));
  append_number(bytes, static_cast<uint64_t>(lengths.size() + 1));
  for (const int32_t length : lengths) {
    append_number(bytes, length);
    flush(bytes, file);
  }
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    append_number(bytes, begin);
    begin += length * static_cast<int64_t>(bytes_of(type));
    flush(bytes, file);
  }
  for (size_t i = 0; i <= lengths.size(); ++i) {
    append_number(bytes, static_cast<int64_t>(i));
    flush(bytes, file);
  }
  flush(bytes, file, true);
}

TokenFileSize write_megatron(const std::string& path, const TokenStream& stream) {
  const std::string index_path = megatron_index(path);
  AtomicFile file(os::path_of(path)), index(os::path_of(index_path));
  std::vector<int32_t> lengths;
  const TokenFileSize size = stream.write(
      file, [&](size_t length, int64_t) { lengths.push_back(static_cast<int32_t>(length)); });
  write_index(index, stream.type, lengths);
  file.commit();
  index.commit();
  return size;
}

}  // namespace

TokenFileSize write_token_file(const TextCorpus& corpus, const Tokenizer& tokenizer,
                               CorpusFormat format, const std::string& path, int num_threads,
                               const CancelToken* cancel) {
  require(is_token_format(format), ErrorCode::invalid_argument, kTokenWriterOrigin,
          "the format is not one of files of token ids");
  require(!corpus.has_ids() && corpus.monolingual() && !corpus.has_chats(),
          ErrorCode::invalid_argument, kTokenWriterOrigin,
          "a file of token ids is written from text without a source, and the corpus has ",
          corpus.has_ids()     ? "token ids"
          : corpus.has_chats() ? "conversations"
                               : "pairs");
  const PairEncoding encoding(tokenizer);
  const TokenStream stream{
      [&](const Documents& each) { for_documents(corpus, encoding, num_threads, cancel, each); },
      type_for(format, encoding.vocabulary)};
  if (format == CorpusFormat::llm_c) return write_llmc(path, stream);
  if (format == CorpusFormat::nanogpt) return write_nanogpt(path, stream);
  return write_megatron(path, stream);
}

}  // namespace trafo
