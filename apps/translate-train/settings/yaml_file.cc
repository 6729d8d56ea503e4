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
  for (size_t i = 1; i < documents.size(); ++i)
    if (!documents[i].IsNull())
      throw YAML::ParserException(documents[i].Mark(),
                                  "a second document begins here: settings are one document");
  return documents.empty() ? YAML::Node() : documents[0];
}

}  // namespace translate_train
