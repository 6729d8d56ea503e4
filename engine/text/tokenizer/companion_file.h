// Files that belong to a vocabulary file and lie beside it.
#pragma once

#include <string>

namespace trafo {

struct CompanionFile {
  std::string name;
  std::string content;
};

}  // namespace trafo
