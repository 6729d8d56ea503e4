// The files of a checkpoint, in a run directory or one after the other in a stream.
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
#include "engine/train/checkpoint/state.h"
#include "engine/train/step/gemm_cache.h"
#include "engine/train/step/trainer.h"

namespace trafo {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kUnsmoothedFile = "unsmoothed.safetensors";
inline constexpr const char* kStateFile = "state.json";

// Copies each file to the host when it is written. The result refers to the arguments, which must
// outlive it.
std::vector<CheckpointFile> checkpoint_files(Context& context, const Model& model,
                                             const Trainer& trainer, const RunState& state,
                                             const RunIdentity& identity);
// Copies all files to the host at once, into buffers of `allocate`. The result refers to none of
// the arguments. Not with several ranks.
std::vector<CheckpointFile> copied_checkpoint_files(Context& context, const Model& model,
                                                    const Trainer& trainer, const RunState& state,
                                                    const RunIdentity& identity,
                                                    const HostAllocator& allocate);

// An opened checkpoint.
struct CheckpointContent {
  std::string label;              // in messages
  std::string state;              // the text of state.json
  std::optional<int64_t> update;  // expected update of the state, if known
  SafetensorsReader weights, optimizer;
  std::function<SafetensorsReader()> unsmoothed;  // called only for runs with an EMA
};
// Seeks the data to the position of a state. It may also change the state. If it throws, the
// position of the data is unchanged.
using SeekFunction = std::function<void(RunState&)>;
// Restores model, trainer and data from a checkpoint, after it has checked `identity` and the
// model's configuration and has read every byte. If it throws, nothing has changed.
RunState restore_checkpoint(Context& context, Model& model, Trainer& trainer,
                            const RunIdentity& identity, const CheckpointContent& content,
                            const SeekFunction& seek);

// The file of a stream that has the run's GEMM kernels. `kernels` must outlive it.
CheckpointFile gemm_cache_file(const GemmCache& kernels);

// The stream format:
//
//   "trafo checkpoint 1\n"
//   a line of JSON: [{"name": string, "bytes": number, "crc32": eight hexadecimal digits}, ...]
//   the files' bytes in this order
void write_checkpoint_stream(ByteSink& sink, std::span<const CheckpointFile> files);

// A checkpoint stream in memory. CORRUPT_FILE if it is damaged, VERSION if a newer release wrote
// it.
class CheckpointStream {
 public:
  explicit CheckpointStream(std::vector<std::byte> bytes);
  CheckpointContent content() const;  // refers to this object
  std::optional<GemmCache> kernels() const;

 private:
  std::span<const std::byte> at(std::string_view name) const;
  std::vector<std::byte> bytes_;
  std::vector<std::pair<std::string, std::span<const std::byte>>> files_;
};

}  // namespace trafo
