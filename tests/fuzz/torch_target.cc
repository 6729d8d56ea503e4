// Files of torch.save(): whole, or a pickle in a good zip file of either width.
#include "engine/formats/hf/directory.h"
#include "engine/formats/torch/torch_file.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"
#include "tests/support/torch_files.h"

namespace trafo::fuzz {
namespace {

enum Mode : unsigned { kWhole, kInZip, kInWideZip, kModes };

std::vector<testing::TorchTensor> good_tensors() {
  const std::string bytes(24, '\0');
  return {{"w", "FloatStorage", {2, 3}, {3, 1}, bytes},
          {"turned", "FloatStorage", {3, 2}, {1, 3}, bytes, 4, 0, "w"},
          {"half", "HalfStorage", {2}, {1}, bytes.substr(0, 4), 2}};
}

}  // namespace

void run_torch(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte() % kModes;
  std::string bytes(parts.rest());
  if (mode != kWhole) {
    testing::ZipParts entries = testing::torch_parts(good_tensors());
    entries[0].second = std::move(bytes);
    bytes = testing::zip_file(entries, mode == kInWideZip);
  }
  const std::filesystem::path path = folder().write("pytorch_model.bin", bytes);
  attempt([&] {
    const interop::TorchFile file(path);
    for (const TensorInfo& info : file.tensors())
      attempt([&] { interop::read_floats(file, info); });
  });
}

std::vector<Seed> torch_seeds() {
  const std::vector<testing::TorchTensor> tensors = good_tensors();
  const auto seed = [](std::string name, unsigned mode, const std::string& bytes) {
    return Seed{std::move(name), std::string(1, static_cast<char>(mode)) + bytes};
  };
  testing::PickleText hostile;
  hostile.raw("\x80\x02").global("os", "system").text("true").raw("\x85R.");
  return {seed("zip", kWhole, testing::zip_file(testing::torch_parts(tensors))),
          seed("wide-zip", kWhole, testing::zip_file(testing::torch_parts(tensors), true)),
          seed("older", kWhole, testing::torch_older_file(tensors)),
          seed("pickle", kInZip, testing::torch_pickle(tensors)),
          seed("pickle-in-wide-zip", kInWideZip, testing::torch_pickle(tensors)),
          seed("pickle-that-calls", kInZip, hostile.str())};
}

}  // namespace trafo::fuzz
