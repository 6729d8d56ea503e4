#include "engine/data/token_files/token_layout.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/core/status.h"
#include "engine/data/read_only_file.h"

namespace trafo {
namespace {

constexpr std::string_view kTokenLayoutOrigin = "corpus";

template <class... Parts>
[[noreturn]] void fail_layout(const std::string& file, const Parts&... parts) {
  fail(ErrorCode::corrupt_file, kTokenLayoutOrigin, file, ": ", parts...);
}

template <class T>
T number_at(std::string_view bytes, size_t offset) {
  static_assert(std::is_integral_v<T>);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TokenLayout llmc_layout(const ReadOnlyFile& file) {
  const std::string& name = file.name();
  const uint64_t size = file.status().size;
  if (size < kLlmcHeader)
    fail_layout(name, "has ", size, " bytes, the header of llm.c has ", kLlmcHeader);
  std::string header;
  file.read(0, kLlmcHeader, header);
  const auto magic = number_at<int32_t>(header, 0), version = number_at<int32_t>(header, 4),
             tokens = number_at<int32_t>(header, 8);
  const auto kind = std::ranges::find(kLlmcKinds, magic, &LlmcKind::magic);
  if (kind == std::end(kLlmcKinds))
    fail_layout(name, "begins with ", magic, "; token files of llm.c begin with ",
                kLlmcKinds[0].magic, " (GPT-2) or ", kLlmcKinds[1].magic, " (Llama 3)");
  if (version != kind->version)
    fail_layout(name, "has version ", version, " of llm.c's format ", magic, ", it must be ",
                kind->version);
  const uint64_t body = size - kLlmcHeader, width = bytes_of(kind->type);
  if (tokens < 0 || static_cast<uint64_t>(tokens) * width != body)
    fail_layout(name, "its header says ", tokens, " tokens of ", width, " bytes, and there are ",
                body, " bytes after it");
  return {kind->type, kLlmcHeader, tokens};
}

TokenLayout nanogpt_layout(const ReadOnlyFile& file) {
  const uint64_t size = file.status().size, width = bytes_of(TokenType::uint16);
  if (size % width != 0)
    fail_layout(file.name(), "has ", size, " bytes, and a token of nanoGPT has ", width);
  return {TokenType::uint16, 0, static_cast<int64_t>(size / width)};
}

// Numbers of an array in a file, one after the other.
template <class T>
class NumberReader {
 public:
  NumberReader(const ReadOnlyFile& file, uint64_t offset, uint64_t count)
      : file_(file), offset_(offset), left_(count) {}

  T next() {
    if (at_ == block_.size()) {
      constexpr uint64_t kBlock = 1 << 15;
      const uint64_t count = std::min(left_, kBlock);
      file_.read(offset_, count * sizeof(T), block_);
      offset_ += count * sizeof(T);
      left_ -= count;
      at_ = 0;
    }
    const T value = number_at<T>(block_, at_);
    at_ += sizeof(T);
    return value;
  }

 private:
  const ReadOnlyFile& file_;
  uint64_t offset_, left_;
  std::string block_;
  size_t at_ = 0;
};

struct MegatronHeader {
  TokenType type;
  uint64_t sequences, boundaries;
};

MegatronHeader megatron_header(const ReadOnlyFile& index) {
  const std::string& name = index.name();
  const uint64_t size = index.status().size;
  if (size < kMegatronHeader)
    fail_layout(name, "has ", size, " bytes, the header of Megatron's index has ", kMegatronHeader);
  std::string header;
  index.read(0, kMegatronHeader, header);
  constexpr size_t kMagic = sizeof kMegatronMagic;
  if (header.compare(0, kMagic, kMegatronMagic, kMagic) != 0)
    fail_layout(name, "does not begin with MMIDIDX, as Megatron's indices do");
  const auto version = number_at<uint64_t>(header, kMagic);
  if (version != kMegatronVersion)
    fail_layout(name, "has version ", version, ", it must be ", kMegatronVersion);
  const auto type = number_at<uint8_t>(header, 17);
  if (type != kMegatronInt32 && type != kMegatronUint16)
    fail_layout(name, "has tokens of type ", int{type}, ", they must be ", int{kMegatronInt32},
                " (int32) or ", int{kMegatronUint16}, " (uint16)");
  const MegatronHeader found{type == kMegatronInt32 ? TokenType::int32 : TokenType::uint16,
                             number_at<uint64_t>(header, 18), number_at<uint64_t>(header, 26)};
  const uint64_t body = size - kMegatronHeader;
  // Bounded first, so that the products cannot overflow.
  if (found.sequences > body / 12 || found.boundaries > body / 8 ||
      12 * found.sequences + 8 * found.boundaries != body)
    fail_layout(name, "its header says ", found.sequences, " sequences of 12 bytes and ",
                found.boundaries, " borders of documents of 8, and there are ", body,
                " bytes after it");
  if (found.boundaries == 0) fail_layout(name, "has no borders of documents");
  return found;
}

TokenLayout megatron_layout(const ReadOnlyFile& file) {
  ReadOnlyFile index;
  index.open_path(megatron_index(file.name()));
  const auto [type, sequences, boundaries] = megatron_header(index);
  const std::string& name = index.name();
  NumberReader<int32_t> lengths(index, kMegatronHeader, sequences);
  NumberReader<int64_t> begins(index, kMegatronHeader + 4 * sequences, sequences);
  NumberReader<int64_t> borders(index, kMegatronHeader + 12 * sequences, boundaries);
  TokenLayout layout{type, 0, 0};
  const uint64_t width = bytes_of(type), size = file.status().size;
  layout.ends.reserve(boundaries - 1);
  uint64_t sequence = 0;
  for (uint64_t i = 0; i < boundaries; ++i) {
    const int64_t border = borders.next();
    if (border < static_cast<int64_t>(sequence) || (i == 0 && border != 0) ||
        border > static_cast<int64_t>(sequences))
      fail_layout(name, "border ", i, " of the documents is sequence ", border,
                  i == 0 ? ", it must be 0" : concat(", it must be ", sequence, " to ", sequences));
    for (; sequence < static_cast<uint64_t>(border); ++sequence) {
      const int32_t length = lengths.next();
      const int64_t begin = begins.next();
      const uint64_t before = static_cast<uint64_t>(layout.tokens) * width;
      if (begin < 0 || static_cast<uint64_t>(begin) != before)
        fail_layout(name, "sequence ", sequence, " begins at byte ", begin, ", it must be ", before,
                    ", where the one before it ends");
      if (length < 0 || static_cast<uint64_t>(length) > (size - before) / width)
        fail_layout(name, "sequence ", sequence, " has ", length, " tokens, and ", file.name(),
                    " has ", (size - before) / width, " left");
      layout.tokens += length;
    }
    if (i > 0) layout.ends.push_back(layout.tokens);
  }
  if (sequence != sequences)
    fail_layout(name, "the last border of the documents is sequence ", sequence, ", it must be ",
                sequences);
  if (static_cast<uint64_t>(layout.tokens) * width != size)
    fail_layout(file.name(), "has ", size, " bytes, ", name, " says ", layout.tokens, " tokens of ",
                width, " bytes");
  return layout;
}

}  // namespace

std::string megatron_index(const std::string& path) {
  constexpr std::string_view kEnd = ".bin";
  require(path.ends_with(kEnd), ErrorCode::invalid_argument, kTokenLayoutOrigin, path,
          ": token files of Megatron are NAME.bin and NAME.idx: give NAME.bin");
  return path.substr(0, path.size() - kEnd.size()) + ".idx";
}

TokenLayout read_token_layout(const ReadOnlyFile& file, CorpusFormat format) {
  switch (format) {
    case CorpusFormat::llm_c:
      return llmc_layout(file);
    case CorpusFormat::nanogpt:
      return nanogpt_layout(file);
    case CorpusFormat::megatron:
      return megatron_layout(file);
    default:
      fail(ErrorCode::internal, kTokenLayoutOrigin, "not a format of token files");
  }
}

}  // namespace trafo
