// Ranks as threads of the test, each with a separate context, model and run.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>

#include "engine/backend/cuda/copy_link.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/nccl_link.h"
#include "engine/dist/linked_group.h"
#include "engine/dist/local_group.h"
#include "engine/dist/tcp_group.h"
#include "tests/train/training_support.h"

namespace trafo::testing {

// About 130,000 weights: five shards, the last one not full.
inline ModelConfig group_config(Architecture architecture = Architecture::encoder_decoder) {
  ModelConfig config = tiny_config(architecture);
  config.width = 64;
  config.ffn_width = 256;
  config.heads = 4;
  if (architecture == Architecture::decoder_lm) config.decoder_layers = 3;
  return config;
}

// About 570,000 weights: no shard of sixteen ranks is empty.
inline ModelConfig sixteen_shards() {
  ModelConfig config = group_config();
  config.ffn_width = 2048;
  return config;
}

// Where a rank trains: the CPU, or with TRAFO_TEST_DEVICE=cuda the GPUs of this host in turn.
inline Device device_of_rank(int rank) {
  const char* wanted = std::getenv("TRAFO_TEST_DEVICE");
  if (!wanted || std::string_view(wanted) != "cuda") return {DeviceKind::cpu, 0};
  const auto gpus = static_cast<int>(cuda_devices(nullptr).size());
  return {DeviceKind::cuda, gpus > 0 ? rank % gpus : 0};
}

// Each rank needs a separate GPU; the CPU has room for all.
inline bool has_room_for(int ranks) {
  return device_of_rank(0).kind == DeviceKind::cpu ||
         ranks <= static_cast<int>(cuda_devices(nullptr).size());
}
inline bool on_gpus() {
  return device_of_rank(0).kind == DeviceKind::cuda;
}
inline constexpr const char* kOfHostMemory = "it moves host memory, and TRAFO_TEST_DEVICE is cuda";
inline constexpr const char* kNoRoom = "TRAFO_TEST_DEVICE is cuda, and there are fewer GPUs";

inline constexpr GroupTimeouts kGenerous{.start = 60, .wait = 60};

// The plugin of this build serves groups over TCP, unless the environment names another one.
inline GroupId tcp_group(const std::string& master = "127.0.0.1:0", const std::string& token = "") {
  setenv("TRAFO_TCP_LIBRARY", TRAFO_TCP_FILE, 0);
  return tcp_group_id(master, token);
}

// On GPUs copy engines move the bytes, and with TRAFO_TEST_TRANSPORT=nccl NCCL does. With
// TRAFO_TEST_OVERLAP=1 that is beside the backward pass, with TRAFO_TEST_PARTS=1 in as many parts
// as there may be, although models of tests are small.
inline std::unique_ptr<Communicator> join_group(const GroupId& id, int rank, int size,
                                                const GroupTimeouts& timeouts) {
  if (is_tcp_group_id(id)) return join_tcp_group(id, rank, size, timeouts);
  auto local = join_local_group(id, rank, size, timeouts);
  if (device_of_rank(rank).kind == DeviceKind::cpu) return local;
  const char* wanted = std::getenv("TRAFO_TEST_TRANSPORT");
  const bool nccl = wanted && std::string_view(wanted) == "nccl";
  return join_linked_group(
      std::move(local), nccl ? make_nccl_links() : make_copy_links(), timeouts,
      std::getenv("TRAFO_TEST_OVERLAP") ? Overlap::always : Overlap::between_hosts,
      std::getenv("TRAFO_TEST_PARTS") ? 1 : kLeastPart);
}

// Runs body(rank, group) for each rank, and rethrows the first exception.
inline void for_each_rank(int size, const std::function<void(int, Communicator*)>& body,
                          const GroupTimeouts& timeouts = kGenerous,
                          const GroupId& id = new_local_group()) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto group = join_group(id, rank, size, timeouts);
        body(rank, group.get());
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

// The error of each rank; no value where there was none.
inline std::vector<std::optional<Error>> errors_of_ranks(
    int size, const std::function<void(int, Communicator*)>& body,
    const GroupTimeouts& timeouts = kGenerous, const GroupId& id = new_local_group()) {
  std::vector<std::optional<Error>> errors(static_cast<size_t>(size));
  for_each_rank(
      size,
      [&](int rank, Communicator* group) {
        try {
          body(rank, group);
        } catch (const Error& error) {
          errors[static_cast<size_t>(rank)] = error;
        }
      },
      timeouts, id);
  return errors;
}

// State of a rank: made anew, it knows nothing but what is in the run directory.
struct Rank {
  std::unique_ptr<Context> context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  Rank(const TrainingData& data, const TrainOptions& options, Communicator* group,
       const std::optional<std::filesystem::path>& directory = std::nullopt,
       const ModelConfig& config = group_config(), uint64_t model_seed = 5,
       DType dtype = DType::f32)
      : context(make_context(device_of_rank(group ? group->rank() : 0), 1)),
        model(make_model(*context, config, model_seed, dtype)),
        run(std::make_unique<TrainingRun>(*context, *model, data, options, directory, group)) {}
};

// state.json without the seconds that the run took.
inline std::string without_seconds(std::string state) {
  const std::string_view key = "\"train_seconds\": ";
  const size_t at = state.find(key);
  if (at == std::string::npos) return state;
  const size_t begin = at + key.size();
  return state.replace(begin, state.find_first_of(",\n", begin) - begin, "0");
}

// The files of a checkpoint, by name; state.json without the seconds that it took.
inline std::vector<std::pair<std::string, std::string>> files_of_checkpoint(
    const std::filesystem::path& run, int64_t update) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {kModelFile, kOptimizerFile, kUnsmoothedFile, kStateFile}) {
    const std::filesystem::path path = run / "ckpt" / std::to_string(update) / name;
    if (!std::filesystem::exists(path)) continue;
    const bool state = name == std::string_view(kStateFile);
    files.emplace_back(name, state ? without_seconds(slurp(path)) : slurp(path));
  }
  return files;
}

inline void expect_same_files(const std::filesystem::path& one, const std::filesystem::path& two,
                              int64_t update, const std::string& label) {
  const auto a = files_of_checkpoint(one, update), b = files_of_checkpoint(two, update);
  ASSERT_GE(a.size(), 3u) << label;
  ASSERT_EQ(a.size(), b.size()) << label;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first) << label;
    const bool is_text = a[i].first == kStateFile;
    EXPECT_TRUE(a[i].second == b[i].second) << label << ": " << a[i].first << "\n"
                                            << (is_text ? a[i].second + b[i].second : "");
  }
}

}  // namespace trafo::testing
