// The GEMM autotuning cache, against a tuner that only remembers.
#include "engine/train/gemm_cache.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/core/status.h"
#include "engine/io/atomic_file.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

class Remembering final : public GemmTuner {
 public:
  explicit Remembering(std::string library = "card, library 1") : library_(std::move(library)) {}
  std::vector<float> measure(const GemmParams&) override { return {}; }
  void set_tuning(bool) override {}
  std::string library() const override { return library_; }
  std::vector<GemmChoice> choices() const override { return choices_; }
  void set_choices(std::span<const GemmChoice> choices) override {
    choices_.assign(choices.begin(), choices.end());
  }

 private:
  std::string library_;
  std::vector<GemmChoice> choices_;
};

std::vector<GemmChoice> some_choices() {
  std::vector<GemmChoice> choices(3);
  for (size_t i = 0; i < choices.size(); ++i) {
    for (size_t j = 0; j < 16; ++j)
      choices[i].gemm[j] = static_cast<int64_t>(1000 * i + j) * (j == 3 ? -1 : 1);
    for (size_t j = 0; j < 8; ++j) choices[i].kernel[j] = ~uint64_t{0} - 77 * i - j;
  }
  return choices;
}

bool same(const std::vector<GemmChoice>& a, const std::vector<GemmChoice>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

ErrorCode code_of(GemmTuner& tuner, const std::string& text) {
  try {
    decode_gemm_cache(tuner, text, "here/gemm-cache");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("here/gemm-cache"), std::string::npos);
    return error.code();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCode::internal;
}

TEST(GemmCache, ComeBackAsTheyWere) {
  Remembering tuner, other;
  tuner.set_choices(some_choices());
  const std::string text = encode_gemm_cache(tuner);
  decode_gemm_cache(other, text, "x");
  EXPECT_TRUE(same(other.choices(), some_choices()));
  EXPECT_EQ(encode_gemm_cache(other), text);
}

TEST(GemmCache, EveryFlippedBitIsNoticed) {
  Remembering tuner, other;
  tuner.set_choices(some_choices());
  const std::string text = encode_gemm_cache(tuner);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    ASSERT_EQ(code_of(other, damaged), ErrorCode::corrupt_file) << "byte " << i;
  }
  for (const size_t length : {size_t{0}, size_t{5}, text.size() / 2, text.size() - 1})
    ASSERT_EQ(code_of(other, text.substr(0, length)), ErrorCode::corrupt_file);
  EXPECT_TRUE(other.choices().empty());
}

TEST(GemmCache, AreOfOneDeviceAndLibrary) {
  Remembering tuner, other("card, library 2");
  tuner.set_choices(some_choices());
  EXPECT_EQ(code_of(other, encode_gemm_cache(tuner)), ErrorCode::unsupported);
  EXPECT_TRUE(other.choices().empty());
}

TEST(GemmCache, Files) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / kGemmCacheFile;
  Remembering tuner, other;
  read_gemm_cache(other, path);
  EXPECT_TRUE(other.choices().empty());
  write_gemm_cache(tuner, path);
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing was measured";
  tuner.set_choices(some_choices());
  write_gemm_cache(tuner, path);
  const auto written = std::filesystem::last_write_time(path);
  write_gemm_cache(tuner, path);
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
  read_gemm_cache(other, path);
  EXPECT_TRUE(same(other.choices(), some_choices()));
}

}  // namespace
}  // namespace trafo
