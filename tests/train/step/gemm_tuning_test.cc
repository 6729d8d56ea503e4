// GEMM autotuning of runs: its bound, the user's cache, and runs that resume with the same bits. On
// a stand-in whose kernels differ in their last digits, and partly on a GPU with
// TRAFO_TEST_DEVICE=cuda.
#include "engine/train/step/gemm_tuning.h"

#include <array>
#include <cstdlib>
#include <map>

#include "engine/io/byte_sink.h"
#include "engine/train/step/user_gemm_cache.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr const char* kCard = "Card 1, sm_90, 132 multiprocessors, cuBLASLt 130100";
constexpr const char* kCacheName =
    "gemm-card-1-sm-90-132-multiprocessors-cublaslt-130100-0123456789abcdef";
constexpr uint64_t kRefused = 999;

// Every measurement finds another kernel, as if by noise.
class TuningDevice final : public StreamAccelerator, public GemmTuner {
 public:
  explicit TuningDevice(std::string library = kCard) : library_(std::move(library)) {}

  GemmTuner* gemm_tuner() override { return this; }
  void gemm(const GemmParams& p) override {
    StreamAccelerator::gemm(p);
    if (p.m == 0 || p.n == 0 || p.batch == 0) return;
    static_cast<float*>(p.c)[0] *= 1.0f + static_cast<float>(kernel_of(p)) * 0x1p-16f;
  }

  std::vector<float> measure(const GemmParams&) override { return {}; }
  void set_tuning(bool on) override { tuning_ = on; }
  void set_tuning_budget(double seconds) override {
    budget_ = seconds;
    cost_ = {};
  }
  double budget() const { return budget_; }
  GemmTuningCost tuning_cost() const override { return cost_; }
  std::string library() const override { return library_; }
  std::string kernel_abi() const override { return "0123456789abcdef"; }
  std::vector<GemmChoice> choices() const override {
    std::vector<GemmChoice> all;
    for (const auto& [gemm, kernel] : kernels_) {
      all.emplace_back();
      std::copy(gemm.begin(), gemm.end(), all.back().gemm);
      std::fill(std::begin(all.back().kernel), std::end(all.back().kernel), kernel);
    }
    return all;
  }
  void set_choices(std::span<const GemmChoice> choices, RefusedChoice refused) override {
    kernels_.clear();
    refused_ = refused;
    for (const GemmChoice& choice : choices) {
      Gemm gemm;
      std::copy(std::begin(choice.gemm), std::end(choice.gemm), gemm.begin());
      kernels_[gemm] = choice.kernel[0];
    }
  }

  double seconds_each = 0.001;
  int measured = 0;  // of all runs

 private:
  using Gemm = std::array<int64_t, 16>;

  uint64_t kernel_of(const GemmParams& p) {
    static uint64_t next = 1;
    const Gemm gemm{p.m,          p.n,   p.k,   p.trans_a, p.trans_b,
                    p.accumulate, p.lda, p.ldb, p.ldc,     p.batch};
    auto found = kernels_.find(gemm);
    if (found != kernels_.end() && found->second == kRefused) {
      require(refused_ == RefusedChoice::dropped, ErrorCode::internal, "gemm", "a refused kernel");
      kernels_.erase(found);
      found = kernels_.end();
    }
    if (found == kernels_.end()) {
      if (!tuning_ || cost_.seconds >= budget_) return 0;
      cost_.seconds += seconds_each;
      ++cost_.measured;
      ++measured;
      found = kernels_.emplace(gemm, 1 + next++ % 97).first;
    }
    return found->second;
  }

  std::string library_;
  std::map<Gemm, uint64_t> kernels_;
  RefusedChoice refused_ = RefusedChoice::dropped;
  bool tuning_ = false;
  double budget_ = 0;
  GemmTuningCost cost_;
};

// Sets an environment variable, or removes it, for the life of the object.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedVariable() { set(old_ ? old_->c_str() : nullptr); }
  void set(const char* value) const { value ? setenv(name_, value, 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

std::unique_ptr<Context> context_of(std::shared_ptr<Backend> device) {
  auto context = std::make_unique<Context>(std::move(device));
  context->set_graphs(false);
  return context;
}

// A run in a separate process, and its output.
struct Tuned {
  std::unique_ptr<Context> own;
  Context& context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;
  std::vector<std::string> notes, warnings;

  Tuned(Context& shared, const TrainOptions& options,
        const std::optional<fs::path>& directory = std::nullopt)
      : context(shared),
        model(make_model(shared, tiny_config(), 5)),
        run(std::make_unique<TrainingRun>(shared, *model, copy_data(), options, directory)) {}
  Tuned(std::unique_ptr<Context> alone, const TrainOptions& options,
        const std::optional<fs::path>& directory = std::nullopt)
      : Tuned(*alone, options, directory) {
    own = std::move(alone);
  }
  ~Tuned() {
    run.reset();
    model.reset();
  }

  void train(int64_t updates) {
    const TrainCallback listen = [this](const TrainEvent& event) {
      if (event.kind == TrainEventKind::gemm_autotuned) notes.push_back(event.message);
      if (event.kind == TrainEventKind::warning) warnings.push_back(event.message);
      return 0;
    };
    run->run(listen, nullptr, updates);
  }
  std::vector<std::byte> weights() const { return weight_bytes(context, *model); }
};

class GemmTuningTest : public ::testing::Test {
 protected:
  GemmTuningTest() {
    options_.autotune_gemm = true;
    options_.after_updates = 20;
  }

  // A process with a separate stand-in.
  Tuned process(const std::optional<fs::path>& directory = std::nullopt) {
    device_ = std::make_shared<TuningDevice>(library_);
    device_->seconds_each = seconds_each_;
    return {context_of(device_), options_, directory};
  }
  fs::path cache() const { return folder_ / "cache" / "trafo" / kCacheName; }
  void forget() const { fs::remove_all(folder_ / "cache"); }
  fs::path copy(const fs::path& from, const char* name) const {
    fs::copy(from, folder_ / name, fs::copy_options::recursive);
    return folder_ / name;
  }

  const TemporaryDirectory folder_;
  const ScopedVariable cache_home_{"XDG_CACHE_HOME", (folder_ / "cache").c_str()};
  const ScopedVariable home_{"HOME", folder_.path().c_str()};
  const ScopedVariable off_{"TRAFO_GEMM_CACHE", nullptr};
  TrainOptions options_ = quick_options();
  std::shared_ptr<TuningDevice> device_;
  std::string library_ = kCard;
  double seconds_each_ = 0.001;
};

TEST_F(GemmTuningTest, ANewRunMeasuresUntilItsFirstCheckpoint) {
  Tuned a = process(folder_ / "run");
  a.train(5);
  const int measured = device_->measured;
  EXPECT_GT(measured, 10);
  EXPECT_EQ(a.notes.size(), 1u) << "the checkpoint that ends the measuring says so";
  a.train(0);
  EXPECT_EQ(device_->measured, measured) << "measured after the first checkpoint";
  ASSERT_EQ(a.notes.size(), 1u);
  EXPECT_TRUE(a.notes[0].starts_with(concat("GEMM autotuning: ", measured, " GEMMs timed in 0.")))
      << a.notes[0];
  EXPECT_TRUE(a.notes[0].ends_with(concat(" s, 0 kernels from ", cache().string()))) << a.notes[0];
  EXPECT_TRUE(a.warnings.empty());
  const auto kept = read_gemm_cache(folder_ / "run" / kGemmCacheFile);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->choices.size(), static_cast<size_t>(measured));
  EXPECT_EQ(slurp(cache()), slurp(folder_ / "run" / kGemmCacheFile));
}

TEST_F(GemmTuningTest, ARunWithoutCheckpointsMeasuresInItsFirstUpdates) {
  options_.after_updates = GemmTuning::kUpdates + 10;
  options_.save_freq = options_.valid_freq = {0, PeriodUnit::updates};
  Tuned a = process(folder_ / "run");
  a.train(GemmTuning::kUpdates);
  EXPECT_TRUE(a.notes.empty());
  EXPECT_GT(device_->budget(), 0);
  const int measured = device_->measured;
  a.train(2);
  EXPECT_EQ(a.notes.size(), 1u);
  a.train(0);
  EXPECT_EQ(a.notes.size(), 1u);
  EXPECT_EQ(device_->measured, measured);
}

TEST_F(GemmTuningTest, ARunThatIsFreedStopsMeasuring) {
  options_.after_updates = GemmTuning::kUpdates;
  Tuned a = process();
  a.train(2);
  EXPECT_GT(device_->budget(), 0);
  EXPECT_NE(device_->owner(), nullptr);
  a.run.reset();
  EXPECT_EQ(device_->budget(), 0);
  EXPECT_EQ(device_->owner(), nullptr);
}

TEST_F(GemmTuningTest, TheTimeIsBounded) {
  seconds_each_ = 1;
  Tuned a = process();
  a.train(0);
  EXPECT_EQ(device_->measured, GemmTuning::kSeconds);
  ASSERT_EQ(a.notes.size(), 1u);
  EXPECT_NE(a.notes[0].find("5 GEMMs timed in 5.0 s"), std::string::npos) << a.notes[0];
  EXPECT_NE(a.notes[0].find("the time for it is used up"), std::string::npos) << a.notes[0];
}

TEST_F(GemmTuningTest, OffMeasuresAndReadsNothing) {
  process().train(0);
  ASSERT_TRUE(fs::exists(cache()));
  options_.autotune_gemm = false;
  Tuned off = process(folder_ / "run");
  off.train(0);
  EXPECT_EQ(device_->measured, 0);
  EXPECT_TRUE(device_->choices().empty());
  EXPECT_TRUE(off.notes.empty());
  EXPECT_FALSE(fs::exists(folder_ / "run" / kGemmCacheFile));
}

TEST_F(GemmTuningTest, SeveralLanesMeasureAndReadNothing) {
  process().train(0);
  ASSERT_TRUE(fs::exists(cache()));
  options_.lanes = 2;
  Tuned lanes = process(folder_ / "run");
  lanes.train(0);
  EXPECT_EQ(device_->measured, 0);
  EXPECT_TRUE(device_->choices().empty());
  ASSERT_EQ(lanes.notes.size(), 1u);
  EXPECT_NE(lanes.notes[0].find("nothing is timed with 2 lanes"), std::string::npos);
}

TEST_F(GemmTuningTest, RunsWithTheSameCacheHaveTheSameBits) {
  Tuned first = process();
  first.train(0);
  const std::string kept = slurp(cache());
  for (int i = 0; i < 2; ++i) {
    Tuned next = process(folder_ / std::to_string(i));
    next.train(0);
    EXPECT_TRUE(next.weights() == first.weights());
    EXPECT_EQ(device_->measured, 0);
    EXPECT_NE(next.notes.at(0).find("0 GEMMs timed"), std::string::npos) << next.notes[0];
    EXPECT_EQ(slurp(cache()), kept);
  }
  forget();
  Tuned other = process();
  other.train(0);
  EXPECT_FALSE(other.weights() == first.weights()) << "the stand-in's kernels are all alike";
}

TEST_F(GemmTuningTest, ARunThatResumesHasItsOwnKernels) {
  for (const int64_t cut : {5, 7, 9, 10, 13}) {
    forget();
    const fs::path run = folder_ / concat("run", cut);
    Tuned uncut_run = process(run);
    uncut_run.train(cut);  // and as if it were killed
    const fs::path killed = copy(run, concat("killed", cut).c_str());
    uncut_run.train(0);
    // In the meantime the cache of the user has other kernels.
    forget();
    process().train(0);
    Tuned resumed = process(killed);
    ASSERT_TRUE(resumed.run->resumed());
    resumed.train(0);
    EXPECT_EQ(device_->measured, 0);
    EXPECT_TRUE(resumed.weights() == uncut_run.weights()) << "cut at " << cut;
    ASSERT_EQ(resumed.notes.size(), 1u);
    EXPECT_NE(resumed.notes[0].find((killed / kGemmCacheFile).string()), std::string::npos);
    EXPECT_EQ(slurp(killed / kGemmCacheFile), slurp(run / kGemmCacheFile));
  }
}

TEST_F(GemmTuningTest, ARunResumesWithItsKernelsWhateverTheOptionSays) {
  Tuned whole = process(folder_ / "run");
  whole.train(10);
  const fs::path killed = copy(folder_ / "run", "killed");
  whole.train(0);
  options_.autotune_gemm = false;
  Tuned resumed = process(killed);
  resumed.train(0);
  EXPECT_TRUE(resumed.weights() == whole.weights());
}

TEST_F(GemmTuningTest, CheckpointStreamsHoldTheKernels) {
  Tuned whole = process();
  MemorySink early;
  whole.run->write_checkpoint(early);  // before the first update: tuning stays open
  whole.train(6);
  EXPECT_GT(device_->measured, 10);
  MemorySink sink;
  whole.run->write_checkpoint(sink);
  const std::vector<std::byte> bytes = sink.take();
  whole.train(0);
  forget();
  process().train(0);
  Tuned other = process();
  other.train(3);
  const int measured = device_->measured;
  other.run->read_checkpoint(bytes);
  other.train(0);
  EXPECT_TRUE(other.weights() == whole.weights());
  EXPECT_EQ(device_->measured, measured);
  other.run->read_checkpoint(bytes);  // once more in the same process
  other.train(0);
  EXPECT_TRUE(other.weights() == whole.weights());
}

TEST_F(GemmTuningTest, RunsOnOneContextKeepTheirOwnKernels) {
  process().train(0);
  Tuned reference = process();
  reference.train(0);
  const auto device = std::make_shared<TuningDevice>();
  const auto context = context_of(device);
  Tuned a(*context, options_, folder_ / "a");
  a.train(6);
  forget();
  Tuned b(*context, options_, folder_ / "b");
  b.train(6);
  a.train(0);
  b.train(0);
  EXPECT_TRUE(a.weights() == reference.weights());
  EXPECT_FALSE(b.weights() == reference.weights());
  EXPECT_NE(slurp(folder_ / "a" / kGemmCacheFile), slurp(folder_ / "b" / kGemmCacheFile));
}

TEST_F(GemmTuningTest, ACacheThatCannotBeUsedIsReplaced) {
  process().train(0);
  const std::string good = slurp(cache());
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  GemmCache foreign = decode_gemm_cache(good, "x");
  foreign.library = "another card";
  const fs::path target = folder_ / "target";
  spill(target, good);
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"damaged", [&] { spill(cache(), flipped); }},
      {"is no GEMM cache", [&] { spill(cache(), "not a cache"); }},
      {"is no GEMM cache", [&] { spill(cache(), ""); }},
      {"damaged", [&] { spill(cache(), good.substr(0, good.size() / 2)); }},
      {"another device", [&] { spill(cache(), encode_gemm_cache(foreign)); }},
      {"symbolic link",
       [&] {
         fs::remove(cache());
         fs::create_symlink(target, cache());
       }},
  };
  for (const auto& [says, damage] : damages) {
    damage();
    Tuned run = process(folder_ / "run");
    run.train(0);
    EXPECT_EQ(run.run->state().trainer.update, 20);
    ASSERT_EQ(run.warnings.size(), 1u) << says;
    EXPECT_NE(run.warnings[0].find(says), std::string::npos) << run.warnings[0];
    EXPECT_GT(device_->measured, 10);
    EXPECT_FALSE(fs::is_symlink(cache()));
    EXPECT_EQ(slurp(cache()), slurp(folder_ / "run" / kGemmCacheFile));
    fs::remove_all(folder_ / "run");
  }
  EXPECT_EQ(slurp(target), good) << "written through a link";
}

TEST_F(GemmTuningTest, ACacheThatCannotBeWrittenDoesNotEndTheRun) {
  fs::create_directories(folder_ / "elsewhere");
  fs::create_directories(folder_ / "cache");
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "cache" / "trafo");
  Tuned linked = process();
  linked.train(0);
  EXPECT_EQ(linked.run->state().trainer.update, 20);
  ASSERT_EQ(linked.warnings.size(), 2u) << "reading and writing";
  EXPECT_NE(linked.warnings[1].find("not kept for later runs"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_ / "elsewhere"));

  fs::remove(folder_ / "cache" / "trafo");
  fs::create_directories(cache() / "in the way");
  Tuned blocked = process();
  blocked.train(0);
  EXPECT_EQ(blocked.run->state().trainer.update, 20);
  EXPECT_EQ(blocked.warnings.size(), 2u);
}

TEST_F(GemmTuningTest, KernelsOfTheCacheThatTheLibraryRefusesAreMeasuredAgain) {
  process().train(0);
  GemmCache cached = decode_gemm_cache(slurp(cache()), "x");
  for (GemmChoice& choice : cached.choices) choice.kernel[0] = kRefused;
  spill(cache(), encode_gemm_cache(cached));
  Tuned run = process();
  run.train(0);
  EXPECT_EQ(run.run->state().trainer.update, 20);
  EXPECT_EQ(device_->measured, static_cast<int>(cached.choices.size()));
  process().train(0);
  EXPECT_EQ(device_->measured, 0) << "the refused kernels are still in the cache";
}

TEST_F(GemmTuningTest, WithoutAFolderNothingIsWritten) {
  const auto says_no_cache = [&] {
    Tuned run = process();
    run.train(0);
    EXPECT_GT(device_->measured, 10);
    EXPECT_TRUE(run.warnings.empty());
    EXPECT_NE(run.notes.at(0).find("no cache"), std::string::npos) << run.notes[0];
  };
  const TuningDevice tuner;
  off_.set("off");
  EXPECT_FALSE(user_gemm_cache_path(tuner));
  says_no_cache();
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
  off_.set("on");
  EXPECT_EQ(user_gemm_cache_path(tuner), cache());
  off_.set(nullptr);
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    cache_home_.set(none);
    for (const char* home : {static_cast<const char*>(nullptr), "", ".", "/nonexistent/home"}) {
      home_.set(home);
      EXPECT_FALSE(user_gemm_cache_path(tuner));
    }
    home_.set(folder_.path().c_str());
    EXPECT_EQ(user_gemm_cache_path(tuner), folder_ / ".cache" / "trafo" / kCacheName);
  }
  home_.set(nullptr);
  says_no_cache();
  home_.set(folder_.path().c_str());
  process().train(0);
  EXPECT_TRUE(fs::exists(folder_ / ".cache" / "trafo" / kCacheName));
}

TEST_F(GemmTuningTest, AnotherCardGoesOnWithOtherKernels) {
  Tuned here = process(folder_ / "run");
  here.train(10);
  const std::string before = slurp(folder_ / "run" / kGemmCacheFile);
  here.run.reset();
  library_ = "Card 2, sm_80, 108 multiprocessors, cuBLASLt 130100";
  Tuned there = process(folder_ / "run");
  EXPECT_TRUE(there.run->resumed());
  there.train(0);
  ASSERT_EQ(there.warnings.size(), 1u);
  EXPECT_NE(there.warnings[0].find("differ in their last digits"), std::string::npos);
  EXPECT_GT(device_->measured, 10);
  EXPECT_NE(slurp(folder_ / "run" / kGemmCacheFile), before);
}

TEST_F(GemmTuningTest, DamagedKernelsOfARunAreAnError) {
  {
    Tuned run = process(folder_ / "run");
    run.train(10);
  }
  spill(folder_ / "run" / kGemmCacheFile, "trafo-gemm-cache 1 ");
  try {
    process(folder_ / "run");
    FAIL() << "resumed with other kernels";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
  }
}

// Other kernels would be other bits than the run's without the stop.
TEST_F(GemmTuningTest, ARunWhoseOwnKernelsAreRefusedDoesNotGoOnWithOthers) {
  process(folder_ / "run").train(10);
  GemmCache saved = decode_gemm_cache(slurp(folder_ / "run" / kGemmCacheFile), "x");
  for (GemmChoice& choice : saved.choices) choice.kernel[0] = kRefused;
  spill(folder_ / "run" / kGemmCacheFile, encode_gemm_cache(saved));
  EXPECT_EQ(error_of([&] { process(folder_ / "run").train(0); }).message(), "a refused kernel");
}

TEST(UserGemmCache, IsBoundedAndKeepsTheNewest) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "cache" / "trafo" / "gemm";
  const TuningDevice tuner;
  std::vector<GemmChoice> many(kMaxUserGemms);
  for (size_t i = 0; i < many.size(); ++i) many[i].gemm[0] = static_cast<int64_t>(i);
  add_to_user_gemm_cache(tuner, path, many);
  GemmChoice changed = many[5], added{};
  changed.kernel[0] = 7;
  added.gemm[0] = -1;
  const std::vector<GemmChoice> more{changed, added};
  add_to_user_gemm_cache(tuner, path, more);
  const std::vector<GemmChoice> kept = read_user_gemm_cache(tuner, path);
  ASSERT_EQ(kept.size(), kMaxUserGemms);
  EXPECT_EQ(kept.front().gemm[0], 1) << "the oldest is dropped";
  EXPECT_EQ(kept[kept.size() - 2].kernel[0], 7u);
  EXPECT_EQ(kept.back().gemm[0], -1);
}

// With kernels that are really measured, and recorded graphs.
class CudaGemmTuning : public GemmTuningTest {
 protected:
  void SetUp() override {
    if (!cuda_context()) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  Tuned on_gpu(const std::optional<fs::path>& directory = std::nullopt) {
    return {cuda_context(), options_, directory};
  }
};

TEST_F(CudaGemmTuning, ARunThatResumesHasItsOwnKernels) {
  Tuned whole = on_gpu(folder_ / "run");
  whole.train(7);
  const fs::path killed = copy(folder_ / "run", "killed");
  whole.train(0);
  ASSERT_EQ(whole.notes.size(), 1u);
  SCOPED_TRACE(whole.notes[0]);
  EXPECT_TRUE(whole.warnings.empty());
  EXPECT_TRUE(fs::exists(folder_ / "run" / kGemmCacheFile));
  forget();
  Tuned resumed = on_gpu(killed);
  resumed.train(0);
  EXPECT_TRUE(resumed.weights() == whole.weights());
  EXPECT_NE(resumed.notes.at(0).find("kernels from"), std::string::npos);
  EXPECT_EQ(slurp(killed / kGemmCacheFile), slurp(folder_ / "run" / kGemmCacheFile));
}

TEST_F(CudaGemmTuning, RunsWithTheSameCacheHaveTheSameBits) {
  Tuned first = on_gpu();
  first.train(0);
  Tuned second = on_gpu(), third = on_gpu(folder_ / "run");
  second.train(0);
  third.train(0);
  EXPECT_TRUE(first.weights() == second.weights());
  EXPECT_TRUE(second.weights() == third.weights());
  EXPECT_NE(second.notes.at(0).find(": 0 GEMMs timed"), std::string::npos) << second.notes[0];
}

TEST_F(CudaGemmTuning, CheckpointStreamsHoldTheKernels) {
  Tuned whole = on_gpu();
  whole.train(6);
  MemorySink sink;
  whole.run->write_checkpoint(sink);
  const std::vector<std::byte> bytes = sink.take();
  whole.train(0);
  forget();
  Tuned other = on_gpu();
  other.train(9);
  other.run->read_checkpoint(bytes);
  other.train(0);
  EXPECT_TRUE(other.weights() == whole.weights());
}

}  // namespace
}  // namespace trafo
