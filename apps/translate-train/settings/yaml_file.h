// Reading a YAML file that may come from anybody.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>

namespace translate_train {

// All settings with their comments are a few KiB. A node takes some hundred times the bytes that
// spell it, so that this bounds what a file can make us take to less than 64 MiB.
inline constexpr size_t kLargestYaml = size_t{128} << 10;

// Throws what YAML::LoadFile throws, and YAML::Exception for a file above kLargestYaml.
YAML::Node load_yaml(const std::string& path);

}  // namespace translate_train
