// Lines of token ids, "12 7 2", in place of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "commands/trafo_handles.h"

namespace translate_train {

// The rows of lines, for one call.
class IdRows {
 public:
  IdRows() = default;
  IdRows(IdRows&&) = default;
  IdRows& operator=(IdRows&&) = default;

  // Adds the ids of a line, whose place ("FILE:LINE") is for messages. Throws a usage error unless
  // they are whole numbers between spaces; the library checks whether the vocabulary has them.
  void add(std::string_view line, std::string_view place);
  void clear();
  bool empty() const { return rows_.empty(); }
  std::vector<trafo_ids_view> views() const;

 private:
  std::vector<std::vector<int32_t>> rows_;
};

// The ids of a hypothesis, its end not included.
std::string id_line(const trafo_translations* translations, size_t index, size_t rank);

}  // namespace translate_train
