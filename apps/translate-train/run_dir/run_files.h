// The files of a run directory. The library knows its checkpoints and what their names mean.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace translate_train {

inline constexpr const char* kModelFile = "model.safetensors";

// Updates of the checkpoints, whole or damaged, ascending. A run that is started where there is one
// resumes.
std::vector<int64_t> checkpoints_of(const std::string& run);
// The model file of a checkpoint by its name: "latest", "best-bleu", "averaged", "1000". A
// checkpoint that is not there is a usage error.
std::string checkpoint_model(const std::string& run, const std::string& name);
// The model file that a path stands for, as trafo_find_model decides. Throws a usage error if there
// is none.
std::string usual_model(const std::string& path);

// The vocabulary in the directory of a run or a model, as trafo_find_vocabulary decides; empty: it
// has none.
std::string vocabulary_in(const std::string& folder);

// Refuses a run directory that has a FIFO, a device or a directory where one of the files that are
// read from it should be. Reading it might never end.
void check_run_files(const std::string& run);
// Refuses a run directory that cannot be made or written to, before hours are spent on what would
// lie there. Makes nothing that stays.
void check_run_directory(const std::string& run);

// Opens a file of a run directory. Refuses what exists and is no regular file; a missing file gives
// a stream that is not open.
std::ifstream open_run_file(const std::string& path);

// Writes a small file whole or not at all; false: it could not be written, and is as it was. A
// symbolic link of that name is replaced, not followed.
bool replace_file(const std::string& path, std::string_view text);
// The same, or throws.
void write_file(const std::string& path, std::string_view text);

// RUN/NAME, made if it is not there. Throws if it is a symbolic link or no directory.
void make_own_folder(const std::string& path);

// A file that grows. It must be a regular file with one name and no symbolic link, so that a
// run directory from a stranger does not write elsewhere.
class OutputFile {
 public:
  enum class Mode { append, create };  // create: there must be nothing of that name
  OutputFile() = default;
  OutputFile(const std::string& path, Mode mode);
  OutputFile(OutputFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  OutputFile& operator=(OutputFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~OutputFile();

  bool is_open() const { return file_ >= 0; }
  // All of it, or false; errno says why.
  bool write(std::string_view text);

 private:
  int file_ = -1;
};

}  // namespace translate_train
