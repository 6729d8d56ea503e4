#include "run_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli_error.h"

namespace translate_train {

namespace fs = std::filesystem;

std::vector<int64_t> checkpoints_of(const std::string& run) {
  std::vector<int64_t> updates;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(run) / "ckpt", none)) {
    const std::string name = entry.path().filename().string();
    const bool number =
        !name.empty() && name.size() < 18 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number && fs::exists(entry.path() / kModelFile)) updates.push_back(std::stoll(name));
  }
  std::sort(updates.begin(), updates.end());
  return updates;
}

std::string pointed_checkpoint(const std::string& run, const std::string& name) {
  std::ifstream in(fs::path(run) / name);
  std::string update;
  if (!(in >> update)) return "";
  const fs::path path = fs::path(run) / "ckpt" / update;
  return fs::exists(path / kModelFile) ? path.string() : "";
}

std::string usual_checkpoint(const std::string& run) {
  const std::string best = pointed_checkpoint(run, "best-bleu");
  return best.empty() ? pointed_checkpoint(run, "latest") : best;
}

namespace {

// What was written to a file, or the names in a directory.
bool make_durable(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool done = fsync(descriptor) == 0;
  close(descriptor);
  return done;
}

}  // namespace

bool replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  std::error_code failed;
  const bool written = out && make_durable(temporary);
  if (written) fs::rename(temporary, path, failed);
  if (written && !failed) {
    const std::string folder = fs::path(path).parent_path().string();
    make_durable(folder.empty() ? "." : folder);  // the file is there in any case
    return true;
  }
  fs::remove(temporary, failed);
  return false;
}

void write_file(const std::string& path, std::string_view text) {
  if (!replace_file(path, text)) throw CliError(kFailed, path + ": cannot be written");
}

}  // namespace translate_train
