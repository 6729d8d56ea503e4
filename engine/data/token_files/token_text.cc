#include "engine/data/token_files/token_text.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/core/cancel_scope.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/data/read_only_file.h"
#include "engine/data/token_files/token_layout.h"

namespace trafo {
namespace {

constexpr std::string_view kTokenTextOrigin = "corpus";
constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

// The tokens of a row in one word: the first one, how many, and whether it continues a document.
constexpr int kRowLengthBits = 19;
static_assert(kTokenRow < int64_t{1} << kRowLengthBits);
constexpr int kRowBeginBits = 63 - kRowLengthBits;

struct TokenRow {
  int64_t begin, length;
  bool goes_on;

  uint64_t word() const {
    return (static_cast<uint64_t>(begin) << kRowLengthBits | static_cast<uint64_t>(length)) << 1 |
           (goes_on ? 1u : 0u);
  }
  static TokenRow of(uint64_t word) {
    constexpr uint64_t kLength = (uint64_t{1} << kRowLengthBits) - 1;
    return {static_cast<int64_t>(word >> 1 >> kRowLengthBits),
            static_cast<int64_t>(word >> 1 & kLength), (word & 1) != 0};
  }
};

std::string_view text_of(std::span<const int32_t> ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()};
}

// Ids above 2^31 - 1 become negative.
void widen(std::string_view raw, TokenType type, std::vector<int32_t>& ids) {
  ids.resize(raw.size() / bytes_of(type));
  if (type != TokenType::uint16) {
    std::memcpy(ids.data(), raw.data(), raw.size());
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    uint16_t id;
    std::memcpy(&id, raw.data() + 2 * i, sizeof id);
    ids[i] = id;
  }
}

class TokenText final : public PairText {
 public:
  TokenText(const std::string& path, const LoadOptions& options);

  int64_t size() const noexcept override { return report_.pairs; }
  PairView view(int64_t pair, PairBuffers& buffers) const override;
  std::string place(int64_t pair) const override {
    return concat(file_, ": the text from token ", row_of(pair).begin, " on");
  }
  void check_vocabulary(int64_t vocabulary) const override {
    if (largest_ >= vocabulary)
      fail(ErrorCode::invalid_argument, kTokenTextOrigin, file_, ": token ", largest_at_, " is ",
           largest_, ", the vocabulary has 0 to ", vocabulary - 1);
  }

 private:
  // Cuts the tokens of the file into rows.
  struct Cut {
    int64_t document_end;           // negative: none
    std::span<const int64_t> ends;  // of Megatron's documents that are left
    bool by_index;                  // they say where documents end
    TokenRow row{0, 0, false};
    std::vector<int32_t> ids = {};  // of the row
    int32_t last = 0;               // the token before it
    LineHash source = {}, target = {};
  };

  void open(const std::string& path);
  void read_ids(int64_t begin, int64_t count, std::string& raw, std::vector<int32_t>& ids) const;
  void check_ids(std::span<const int32_t> ids, int64_t begin);
  void scan(const LoadOptions& options);
  void add(Cut& cut, std::span<const int32_t> ids);
  // Ends the row, and the document unless it continues.
  void end_row(Cut& cut, bool ends_document);
  TokenRow row_of(int64_t pair) const { return TokenRow::of(rows_[static_cast<size_t>(pair)]); }

  ReadOnlyFile tokens_;
  TokenLayout layout_;
  std::vector<uint64_t> rows_;
  int32_t largest_ = 0;
  int64_t largest_at_ = 0;
};

TokenText::TokenText(const std::string& path, const LoadOptions& options) {
  require(options.document_end <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
          kTokenTextOrigin, "document_end is ", options.document_end, ", which no token is");
  require(options.document_end < 0 || options.format != CorpusFormat::megatron,
          ErrorCode::invalid_argument, kTokenTextOrigin, "document_end is ", options.document_end,
          "; Megatron's index says where documents end");
  open(path);
  form_ = CorpusForm::monolingual;
  format_ = options.format;
  has_ids_ = true;
  file_ = path;
  layout_ = read_token_layout(tokens_, options.format);
  require(layout_.tokens >> kRowBeginBits == 0, ErrorCode::unsupported, kTokenTextOrigin, path,
          ": has more than 2^", kRowBeginBits, " tokens");
  scan(options);
  layout_.ends = {};
  rows_.shrink_to_fit();
  report_.pairs = static_cast<int64_t>(rows_.size());
  require(report_.pairs > 0, ErrorCode::invalid_argument, kTokenTextOrigin, path, ": has ",
          layout_.tokens, " tokens and no document with text");
  large_ = layout_.tokens > options.memory_bytes / static_cast<int64_t>(sizeof(int32_t));
}

void TokenText::open(const std::string& path) {
  require(path != "-", ErrorCode::invalid_argument, kTokenTextOrigin,
          "token ids are read from files, not from standard input");
  os::FileStatus status;
  require(os::status_of(path, status) != 0 || status.kind == os::FileStatus::Kind::regular,
          ErrorCode::invalid_argument, kTokenTextOrigin, path,
          ": is no regular file, and token ids are read from one");
  require(!path.ends_with(".gz"), ErrorCode::invalid_argument, kTokenTextOrigin, path,
          ": is named .gz; unpack it, token ids are read from plain files");
  tokens_.open_path(path);
}

void TokenText::read_ids(int64_t begin, int64_t count, std::string& raw,
                         std::vector<int32_t>& ids) const {
  const size_t width = bytes_of(layout_.type);
  tokens_.read(layout_.begin + static_cast<uint64_t>(begin) * width,
               static_cast<size_t>(count) * width, raw);
  widen(raw, layout_.type, ids);
}

void TokenText::check_ids(std::span<const int32_t> ids, int64_t begin) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t at = begin + static_cast<int64_t>(i);
    if (ids[i] < 0) {
      const int64_t id = layout_.type == TokenType::int32 ? int64_t{ids[i]}
                                                          : int64_t{static_cast<uint32_t>(ids[i])};
      fail(ErrorCode::corrupt_file, kTokenTextOrigin, file_, ": token ", at, " is ", id,
           ", which no vocabulary has");
    }
    if (ids[i] <= largest_) continue;
    largest_ = ids[i];
    largest_at_ = at;
  }
}

void TokenText::scan(const LoadOptions& options) {
  constexpr int64_t kBlock = 1 << 17;
  Cut cut{options.document_end, layout_.ends, options.format == CorpusFormat::megatron};
  const auto width = static_cast<int64_t>(bytes_of(layout_.type));
  WorkProgress progress(Work::read_text, layout_.tokens * width);
  std::string raw;
  std::vector<int32_t> ids;
  for (int64_t begin = 0; begin < layout_.tokens; begin += kBlock) {
    stop_if_call_is_cancelled(kTokenTextOrigin);
    const int64_t count = std::min(kBlock, layout_.tokens - begin);
    read_ids(begin, count, raw, ids);
    check_ids(ids, begin);
    add(cut, ids);
    progress.add(count * width);
  }
  if (!cut.ids.empty()) end_row(cut, true);
  report_.lines += std::ssize(cut.ends);  // empty documents at the end of Megatron's
  report_.dropped_empty += std::ssize(cut.ends);
  const LineHash sides[] = {cut.source, cut.target};
  fingerprint_ = corpus_fingerprint(sides);
  progress.finish();
}

void TokenText::add(Cut& cut, std::span<const int32_t> ids) {
  while (!ids.empty()) {
    const int64_t at = cut.row.begin + std::ssize(cut.ids);
    if (cut.by_index && cut.ends.front() == at) {  // the next document has no token
      end_row(cut, true);
      continue;
    }
    int64_t run = std::min<int64_t>(std::ssize(ids), kTokenRow - std::ssize(cut.ids));
    const auto end = cut.document_end < 0 ? ids.begin() + run
                                          : std::find(ids.begin(), ids.begin() + run,
                                                      static_cast<int32_t>(cut.document_end));
    bool ends_document = end != ids.begin() + run;
    if (ends_document) run = end - ids.begin() + 1;
    if (const int64_t left = cut.by_index ? cut.ends.front() - at : kNoEnd; left <= run) {
      run = left;
      ends_document = true;
    }
    cut.ids.insert(cut.ids.end(), ids.begin(), ids.begin() + run);
    ids = ids.subspan(static_cast<size_t>(run));
    if (ends_document || std::ssize(cut.ids) == kTokenRow) end_row(cut, ends_document);
  }
}

void TokenText::end_row(Cut& cut, bool ends_document) {
  TokenRow& row = cut.row;
  row.length = std::ssize(cut.ids);
  const bool empty =
      !row.goes_on && (row.length == 0 || (row.length == 1 && cut.ids[0] == cut.document_end));
  if (empty) {
    ++report_.dropped_empty;
  } else {
    add_line(std::ssize(rows_), report_.lines);
    rows_.push_back(row.word());
    if (row.goes_on) cut.source.add(text_of({&cut.last, 1}));
    cut.target.add(text_of(cut.ids));
  }
  ++report_.lines;
  if (ends_document && cut.by_index) cut.ends = cut.ends.subspan(1);
  if (row.length > 0) cut.last = cut.ids.back();
  row = {row.begin + row.length, 0, !ends_document};
  cut.ids.clear();
}

PairView TokenText::view(int64_t pair, PairBuffers& buffers) const {
  if (pair % 64 == 0) tokens_.check_unchanged();
  const TokenRow row = row_of(pair);
  const int64_t before = row.goes_on ? 1 : 0;
  std::vector<int32_t> ids;
  read_ids(row.begin - before, row.length + before, buffers.line, ids);
  const std::span<const int32_t> all(ids);
  buffers.source = text_of(all.first(static_cast<size_t>(before)));
  buffers.target = text_of(all.subspan(static_cast<size_t>(before)));
  return {buffers.source, buffers.target};
}

}  // namespace

std::shared_ptr<const PairText> open_token_file(const std::string& path,
                                                const LoadOptions& options) {
  return std::make_shared<const TokenText>(path, options);
}

}  // namespace trafo
