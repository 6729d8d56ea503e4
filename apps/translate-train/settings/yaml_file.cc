#include "settings/yaml_file.h"

#include <fmt/format.h>

#include <fstream>

#include "engine/os/names.h"

namespace translate_train {

YAML::Node load_yaml(const std::string& path) {
  std::ifstream in(trafo::os::path_of(path), std::ios::binary);
  if (!in) throw YAML::BadFile(path);
  std::string text(kLargestYaml + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw YAML::BadFile(path);
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLargestYaml)
    throw YAML::ParserException(
        YAML::Mark(),
        fmt::format("the file has more than {} bytes, which settings never have", kLargestYaml));
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  if (documents.size() > 1)
    throw YAML::ParserException(documents[1].Mark(),
                                "a second document begins here: settings are one document");
  return documents.empty() ? YAML::Node() : documents[0];
}

}  // namespace translate_train
