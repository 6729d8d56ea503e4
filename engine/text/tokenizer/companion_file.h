// Files that belong to a vocabulary file and lie beside it.
#pragma once

#include <string>

namespace trafo {

struct CompanionFile {
  std::string name;
  std::string content;
  std::string path = {};  // in messages; empty: the name

  const std::string& label() const { return path.empty() ? name : path; }
};

}  // namespace trafo
