// TensorBoard's event files: scalars and text by update.
//
// A file is a sequence of records as TFRecord frames them (length, its checksum, bytes, their
// checksum), each an Event message of TensorFlow's event.proto. Only what TensorBoard reads of it
// is written: wall time, step, simple values, text tensors, and the session start that makes it
// forget what an earlier file has from a later step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "run_dir/run_files.h"

namespace translate_train {

// CRC-32C (Castagnoli), and the form in which TFRecord stores it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

struct Scalar {
  std::string tag;
  double value;  // stored as float; NaN and infinities are
};

class TensorBoardWriter {
 public:
  // A new file in `directory`, which is made if it is not there; its name sorts behind those of
  // earlier files. `time` is in Unix seconds. Every record is on its way to the disk when the call
  // returns. Throws CliError if the file cannot be made; what cannot be written later is `failed`.
  TensorBoardWriter(const std::string& directory, double time);

  // Steps from `first_step` on come from this file, whatever earlier files say.
  void start_session(int64_t first_step, double time);
  void scalars(int64_t step, double time, const std::vector<Scalar>& values);
  void text(int64_t step, double time, const std::string& tag, const std::string& markdown);

  const std::string& path() const { return path_; }
  bool failed() const { return failed_; }

 private:
  void record(const std::string& event);

  std::string path_;
  OutputFile out_;
  bool failed_ = false;
};

}  // namespace translate_train
