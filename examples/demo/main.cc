// demo-corpus FOLDER: writes train.de, train.en, test.de and test.en.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "corpus.h"

namespace {

constexpr uint64_t kSeed = 1;
constexpr size_t kTrainPairs = 12000;
constexpr size_t kTestPairs = 500;

bool write_side(const std::filesystem::path& path, const std::vector<demo::Pair>& pairs,
                std::string demo::Pair::*side) {
  std::ofstream out(path, std::ios::binary);
  for (const demo::Pair& pair : pairs) out << pair.*side << '\n';
  out.close();
  if (!out) std::cerr << "demo-corpus: " << path.string() << " cannot be written\n";
  return bool(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: demo-corpus FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    std::cerr << "demo-corpus: " << folder.string() << ": " << failed.message() << '\n';
    return 1;
  }
  const demo::Corpus corpus = demo::make_corpus(kSeed, kTrainPairs, kTestPairs);
  const bool written = write_side(folder / "train.de", corpus.train, &demo::Pair::german) &&
                       write_side(folder / "train.en", corpus.train, &demo::Pair::english) &&
                       write_side(folder / "test.de", corpus.held_out, &demo::Pair::german) &&
                       write_side(folder / "test.en", corpus.held_out, &demo::Pair::english);
  return written ? 0 : 1;
}
