// The input of the command score: pairs, n-best lists or plain text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace translate_train {

struct ScoreInput {
  std::vector<std::string> source, target;  // of plain text, the target alone
  std::vector<bool> cut;                    // a side had more than 1 MiB and lost its end
  // Of an n-best list, the fields of each line around its new score: "LINE ||| TEXT", the features
  // and " ||| " with the rest. Empty: no list.
  struct Listed {
    std::string begin, features, rest;
  };
  std::vector<Listed> listed;

  size_t size() const { return target.size(); }
};

ScoreInput read_pairs(const std::string& source, const std::string& target);
// The two columns, counted from 1. `strict`: there must be no others.
ScoreInput read_tsv_pairs(const std::string& path, int64_t source, int64_t target, bool strict);
// `list` has lines "LINE ||| TEXT [||| FEATURES [||| ...]]"; LINE is a line of `source`, counted
// from 0.
ScoreInput read_n_best(const std::string& source, const std::string& list);
ScoreInput read_text(const std::string& path);

}  // namespace translate_train
