// Runs targets over files, without libFuzzer:
//   fuzz_replay TARGET PATH...          every file, folders one level deep; prints how many
//   fuzz_replay --write-seeds FOLDER    the first corpora, FOLDER/TARGET/NAME
//   fuzz_replay --list
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

namespace fs = std::filesystem;
using trafo::fuzz::Target;

namespace {

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int write_seeds(const fs::path& folder) {
  for (const Target& target : trafo::fuzz::all_targets()) {
    fs::create_directories(folder / target.name);
    for (const trafo::fuzz::Seed& seed : target.seeds()) {
      std::ofstream out(folder / target.name / seed.name, std::ios::binary);
      out.write(seed.bytes.data(), static_cast<std::streamsize>(seed.bytes.size()));
      if (!out.flush()) return 1;
    }
  }
  return 0;
}

int replay(const Target& target, const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    // Told before: if it ends the process, the last line names it.
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);
    const std::string input = content(file);
    target.run(input);
  }
  std::printf("replayed %zu\n", files.size());
  return files.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 1 && arguments[0] == "--list") {
    for (const Target& target : trafo::fuzz::all_targets()) std::printf("%s\n", target.name);
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "--write-seeds") return write_seeds(arguments[1]);
  const Target* target = arguments.empty() ? nullptr : trafo::fuzz::find_target(arguments[0]);
  if (target == nullptr || arguments.size() < 2) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET PATH... | --write-seeds FOLDER | --list\n");
    return 2;
  }
  return replay(*target, {arguments.begin() + 1, arguments.end()});
}
