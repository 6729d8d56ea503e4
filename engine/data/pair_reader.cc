#include "engine/data/pair_reader.h"

#include <utility>

#include "engine/core/status.h"
#include "engine/data/json_record.h"

namespace trafo {
namespace {

constexpr std::string_view kPairReaderOrigin = "corpus";

}  // namespace

bool LineForm::has_chats() const noexcept {
  return records != nullptr && are_chats(*records);
}

PairView LineForm::split(std::string_view line, std::string_view file, int64_t number,
                         PairBuffers& buffers) const {
  if (records == nullptr) return split_columns(line, form, file, number);
  if (is_blank(line)) return {};
  return read_record(*records, line, file, number, buffers);
}

PairReader::PairReader(LineReader& lines, CorpusForm form, CorpusFormat format)
    : lines_(lines),
      form_{form},
      named_(format == CorpusFormat::json_lines || format == CorpusFormat::chats ||
             (format == CorpusFormat::automatic && is_json_name(lines.name()))) {
  const bool automatic = format == CorpusFormat::automatic;
  // A line of white space is a text of a corpus, but no record.
  while ((named_ ? is_blank(first_) : first_.empty()) && lines_.next(first_))
    first_number_ = lines_.line_number();
  if (first_.empty() || (!named_ && !(automatic && is_record(first_)))) return;
  form_.records =
      &kind_of_record(first_, lines_.name(), first_number_, format == CorpusFormat::chats);
  form_.form = form_of(*form_.records);
  require(form != CorpusForm::preferences || form_.form == form, ErrorCode::invalid_argument,
          kPairReaderOrigin, lines_.name(), ":", first_number_, ": the records have ",
          members_of(*form_.records), "; preferences are prompt, chosen and rejected");
}

bool PairReader::next(PairView& pair) {
  if (number_ + 1 < first_number_) {
    line_.clear();
  } else if (number_ + 1 == first_number_) {
    line_ = std::move(first_);
  } else if (!lines_.next(line_)) {
    return false;
  }
  ++number_;
  pair =
      named_ && is_blank(line_) ? PairView() : form_.split(line_, lines_.name(), number_, buffers_);
  return true;
}

void refuse_records(std::string_view line, std::string_view file, int64_t number,
                    CorpusFormat format) {
  if (format != CorpusFormat::automatic) return;
  constexpr std::string_view kAdvice =
      ", all sides of a pair: give it alone, or choose the format text";
  const std::string members = record_members(line);
  require(members.empty(), ErrorCode::invalid_argument, kPairReaderOrigin, file, ":", number,
          ": it has JSON lines with ", members, kAdvice);
  require(!is_json_name(file), ErrorCode::invalid_argument, kPairReaderOrigin, file,
          ": its name says that it has JSON lines", kAdvice);
}

}  // namespace trafo
