// The file of GEMM autotuning.
#include "engine/train/step/gemm_cache.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/core/status.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

namespace fs = std::filesystem;

GemmCache some_cache() {
  GemmCache cache{"card, library 1", std::vector<GemmChoice>(3)};
  for (size_t i = 0; i < cache.choices.size(); ++i) {
    for (size_t j = 0; j < 16; ++j)
      cache.choices[i].gemm[j] = static_cast<int64_t>(1000 * i + j) * (j == 3 ? -1 : 1);
    for (size_t j = 0; j < 8; ++j) cache.choices[i].kernel[j] = ~uint64_t{0} - 77 * i - j;
  }
  return cache;
}

bool same(const GemmCache& a, const GemmCache& b) {
  return a.library == b.library && a.choices.size() == b.choices.size() &&
         std::memcmp(a.choices.data(), b.choices.data(), a.choices.size() * sizeof(GemmChoice)) ==
             0;
}

ErrorCode code_of(const std::string& text) {
  try {
    decode_gemm_cache(text, "here/gemm-cache");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("here/gemm-cache"), std::string::npos);
    return error.code();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCode::internal;
}

TEST(GemmCache, ComesBackAsItWas) {
  const std::string text = encode_gemm_cache(some_cache());
  const GemmCache other = decode_gemm_cache(text, "x");
  EXPECT_TRUE(same(other, some_cache()));
  EXPECT_EQ(encode_gemm_cache(other), text);
}

TEST(GemmCache, EveryFlippedBitIsNoticed) {
  const std::string text = encode_gemm_cache(some_cache());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    ASSERT_EQ(code_of(damaged), ErrorCode::corrupt_file) << "byte " << i;
  }
  for (const size_t length : {size_t{0}, size_t{5}, text.size() / 2, text.size() - 1})
    ASSERT_EQ(code_of(text.substr(0, length)), ErrorCode::corrupt_file);
}

TEST(GemmCache, Files) {
  const TemporaryDirectory folder;
  const fs::path path = folder / kGemmCacheFile;
  EXPECT_FALSE(read_gemm_cache(path));
  write_gemm_cache({"card", {}}, path);
  EXPECT_FALSE(fs::exists(path)) << "nothing was measured";
  write_gemm_cache(some_cache(), path);
  const auto written = fs::last_write_time(path);
  write_gemm_cache(some_cache(), path);
  EXPECT_EQ(fs::last_write_time(path), written);
  EXPECT_TRUE(same(*read_gemm_cache(path), some_cache()));
  write_gemm_cache({"card", {}}, path);
  EXPECT_FALSE(fs::exists(path)) << "an earlier attempt's kernels would come back";
}

TEST(GemmCache, ALinkIsNotFollowed) {
  const TemporaryDirectory folder;
  const fs::path path = folder / kGemmCacheFile, target = folder / "target";
  spill(target, "mine");
  fs::create_symlink(target, path);
  try {
    read_gemm_cache(path);
    FAIL() << "read through a link";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
  }
  write_gemm_cache(some_cache(), path);
  EXPECT_EQ(slurp(target), "mine");
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_TRUE(same(*read_gemm_cache(path), some_cache()));
}

}  // namespace
}  // namespace trafo
