// What a checkpoint consists of, wherever its files are kept: in a run directory, or one after the
// other in a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/checkpoint_directory.h"
#include "engine/io/safetensors.h"
#include "engine/train/state.h"
#include "engine/train/trainer.h"

namespace trafo {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kUnsmoothedFile = "unsmoothed.safetensors";
inline constexpr const char* kStateFile = "state.json";
// Metadata key in model.safetensors: CRC-32 of the serialised tokenizer the model was trained with.
inline constexpr const char* kTokenizerKey = "tokenizer_crc32";

// They refer to the arguments, which must outlive them.
std::vector<CheckpointFile> checkpoint_files(Context& context, const Model& model,
                                             const Trainer& trainer, const RunState& state,
                                             const RunIdentity& identity);

// An opened checkpoint.
struct CheckpointContent {
  std::string label;              // in messages
  std::string state;              // the text of state.json
  std::optional<int64_t> update;  // whose state it has to be, if that is known
  SafetensorsReader weights, optimizer;
  std::function<SafetensorsReader()> unsmoothed;  // opens it; only asked of runs that have one
};
// Moves the data to the position of a state, and does with the state whatever else may fail, or
// throws and leaves the data where it is.
using SeekFunction = std::function<void(RunState&)>;
// Gives model, trainer and data what it holds, after `identity` and the model's configuration were
// checked and every byte was read. Nothing has changed if it throws.
RunState restore_checkpoint(Context& context, Model& model, Trainer& trainer,
                            const RunIdentity& identity, const CheckpointContent& content,
                            const SeekFunction& seek);

// The files as one sequence of bytes:
//
//   "trafo checkpoint 1\n"
//   a line of JSON: [{"name": string, "bytes": number, "crc32": eight hexadecimal digits}, ...]
//   the files' bytes in this order
void write_checkpoint_stream(ByteSink& sink, std::span<const CheckpointFile> files);

// One that was read whole: CORRUPT_FILE says what is wrong with it, VERSION: of a newer release.
class CheckpointStream {
 public:
  explicit CheckpointStream(std::vector<std::byte> bytes);
  CheckpointContent content() const;  // refers to this object

 private:
  std::span<const std::byte> at(std::string_view name) const;
  std::vector<std::byte> bytes_;
  std::vector<std::pair<std::string, std::span<const std::byte>>> files_;
};

}  // namespace trafo
