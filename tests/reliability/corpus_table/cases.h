// Treatment of odd training text: the table that the readers are tested against and that
// docs/reference/generated/broken-text.md shows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace trafo::corpus_table {

enum class Form { pair, tsv, mono };

struct Case {
  std::string title;    // in the documentation
  std::string outcome;  // in the documentation
  Form form = Form::pair;
  std::string source, target;  // contents; target of a pair only
  // In place of the contents: makes the files at the paths. `clean` undoes it.
  std::function<void(const std::string& source, const std::string& target)> make = {};
  bool gzip = false;               // the files are named .gz; contents are theirs as they are
  std::string refused = {};        // part of the message; empty: it is taken
  int64_t pairs = 0, dropped = 0;  // if it is taken
  int status = 2;                  // of the program if it is refused
  bool same_file = false;          // both sides are the source
};

std::vector<Case> cases();

}  // namespace trafo::corpus_table
