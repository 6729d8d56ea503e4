// The lines of one file as pairs: text, columns, JSON lines or CSV.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/corpus.h"

namespace trafo {

struct RecordKind;

// How each line of a file is a pair.
struct LineForm {
  CorpusForm form = CorpusForm::parallel;
  const RecordKind* records = nullptr;                              // null: the texts are columns
  std::shared_ptr<const std::vector<std::string>> names = nullptr;  // of the columns of CSV

  bool has_chats() const noexcept;  // the texts are conversations
  bool labelled() const noexcept;   // each pair has one answer
  CorpusFormat format() const noexcept {
    return records == nullptr ? CorpusFormat::text
           : names == nullptr ? CorpusFormat::json_lines
                              : CorpusFormat::csv;
  }
  // `buffers` may hold the texts. Errors name file and line.
  PairView split(std::string_view line, std::string_view file, int64_t number,
                 PairBuffers& buffers) const;
};

class PairReader {
 public:
  // Reads as far as the first line that is not empty, which says what the lines are unless `format`
  // or the name of the file does. The form of JSON lines and CSV is that of their members or
  // columns. INVALID_ARGUMENT
  // if `form` is preferences and they have none; errors as in kind_of_record. `lines` outlives this
  // object.
  PairReader(LineReader& lines, CorpusForm form, CorpusFormat format);

  const LineForm& form() const noexcept { return form_; }
  // Reads the next pair, whose views are valid until the next call; false at the end of the file.
  bool next(PairView& pair);
  // The first line of the last pair, counted from 1.
  int64_t line_number() const noexcept { return number_; }
  // Its bytes in the decompressed file, unless it is an empty line.
  uint64_t offset() const noexcept { return offset_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  void read_header();
  bool next_csv(PairView& pair);

  LineReader& lines_;
  LineForm form_;
  const bool is_csv_;  // by name or by request
  const bool named_;   // so are JSON lines
  PairBuffers buffers_;
  std::string line_, first_;  // first_: the line that was read ahead
  int64_t number_ = 0;
  uint64_t offset_ = 0;
  size_t bytes_ = 0;
  int64_t first_number_ = 0;  // of first_; all lines before it are blank; 0: there is no such line
};

// INVALID_ARGUMENT if this line, the first of a file with one side, is a record or a chat.
void refuse_records(std::string_view line, std::string_view file, int64_t number,
                    CorpusFormat format);

}  // namespace trafo
