#include "engine/data/pair_reader.h"

#include <utility>

#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/data/csv_record.h"
#include "engine/data/json_record.h"

namespace trafo {
namespace {

constexpr std::string_view kPairReaderOrigin = "corpus";

}  // namespace

bool LineForm::has_chats() const noexcept {
  return records != nullptr && are_chats(*records);
}

bool LineForm::labelled() const noexcept {
  return records != nullptr && are_labelled(*records);
}

PairView LineForm::split(std::string_view line, std::string_view file, int64_t number,
                         PairBuffers& buffers) const {
  if (records == nullptr) return split_columns(line, form, file, number);
  if (names != nullptr && line.empty()) return {};
  if (names != nullptr) {
    const std::string label = concat(file, ":", number);
    return read_fields(*records, *names, csv_fields(line, label), label, buffers);
  }
  if (is_blank(line)) return {};
  return read_record(*records, line, file, number, buffers);
}

PairReader::PairReader(LineReader& lines, CorpusForm form, CorpusFormat format)
    : lines_(lines),
      form_{form},
      is_csv_(format == CorpusFormat::csv ||
              (format == CorpusFormat::automatic && is_csv_name(lines.name()))),
      named_(is_csv_ || format == CorpusFormat::json_lines || format == CorpusFormat::chats ||
             (format == CorpusFormat::automatic && is_json_name(lines.name()))) {
  const bool automatic = format == CorpusFormat::automatic;
  // A line of white space is a text of a corpus, but no record.
  while ((named_ ? is_blank(first_) : first_.empty()) && lines_.next(first_))
    first_number_ = lines_.line_number();
  if (first_.empty() || (!named_ && !(automatic && is_record(first_)))) return;
  if (is_csv_)
    read_header();
  else
    form_.records =
        &kind_of_record(first_, lines_.name(), first_number_, format == CorpusFormat::chats);
  form_.form = form_of(*form_.records);
  require(form != CorpusForm::preferences || form_.form == form, ErrorCode::invalid_argument,
          kPairReaderOrigin, lines_.name(), ":", first_number_, ": the records have ",
          members_of(*form_.records), "; preferences are prompt, chosen and rejected");
}

void PairReader::read_header() {
  const std::string label = concat(lines_.name(), ":", first_number_);
  auto names = std::make_shared<const std::vector<std::string>>(csv_fields(first_, label));
  form_.records = &kind_of_columns(*names, label);
  form_.names = std::move(names);
  number_ = first_number_;
}

// A quoted field may have line feeds, so that a record is several lines.
bool PairReader::next_csv(PairView& pair) {
  if (!lines_.next(line_)) return false;
  number_ = lines_.line_number();
  offset_ = lines_.offset();
  bytes_ = line_.size();
  CsvScan scan;
  scan.add(line_);
  for (std::string more; scan.is_open(); scan.add(more)) {
    if (!lines_.next(more)) break;  // split() says what is missing
    line_ += '\n';
    line_ += more;
    bytes_ = lines_.offset() - offset_ + more.size();
    require(line_.size() <= limits::kLineBytes, ErrorCode::corrupt_file, kPairReaderOrigin,
            lines_.name(), ":", number_, ": the record is longer than ", limits::kLineBytes,
            " bytes: a quote may be missing");
  }
  pair = form_.split(line_, lines_.name(), number_, buffers_);
  return true;
}

bool PairReader::next(PairView& pair) {
  if (form_.names != nullptr) return next_csv(pair);
  if (number_ + 1 < first_number_) {
    line_.clear();
  } else if (number_ + 1 == first_number_) {
    line_ = std::move(first_);
  } else if (!lines_.next(line_)) {
    return false;
  }
  ++number_;
  offset_ = lines_.offset();
  bytes_ = line_.size();
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
  const bool csv = is_csv_name(file);
  require(!csv && !is_json_name(file), ErrorCode::invalid_argument, kPairReaderOrigin, file,
          ": its name says that it has ", csv ? "CSV" : "JSON lines", kAdvice);
}

}  // namespace trafo
