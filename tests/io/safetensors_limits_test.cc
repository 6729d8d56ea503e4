// Safetensors at the limits of the format that safetensors_test.cc does not come to: numbers of
// tensors and pairs, letters of every length, keys of other programs before and after ours.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/core/limits.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

using Bytes = std::vector<std::byte>;

std::string file_of(std::string_view json, std::string_view payload = "") {
  const uint64_t size = json.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file.append(json).append(payload);
}
SafetensorsReader opened(const std::string& file) {
  return SafetensorsReader::from_memory(std::as_bytes(std::span(file.data(), file.size())), "test");
}
std::string json_of(const Bytes& file) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  return {reinterpret_cast<const char*>(file.data()) + 8, size};
}

TEST(SafetensorsLimits, TheWriterCountsTensorsAndPairs) {
  std::vector<TensorEntry> tensors;
  for (int i = 0; i <= static_cast<int>(limits::kTensors); ++i)
    tensors.push_back({concat("t", i), DType::f32, {0}, {}});
  expect_error(ErrorCode::invalid_argument, "tensors, the limit is",
               [&] { safetensors_to_memory(tensors); });
  SafetensorsMetadata many;
  for (int i = 0; i < static_cast<int>(limits::kMetadataPairs); ++i)
    many.emplace(concat("k", i), std::string(1, 'v'));
  expect_error(ErrorCode::invalid_argument, "metadata pairs, too many",
               [&] { safetensors_to_memory({}, many); });
  many.erase("k0");
  many.erase("k1");  // room for the two of the file
  EXPECT_EQ(opened(file_of(json_of(safetensors_to_memory({}, many)))).metadata(), many);
}

TEST(SafetensorsLimits, TextsAreUtf8OfEveryLength) {
  const std::vector<float> one{1.0f};
  const auto written = [&](const std::string& text) {
    const TensorEntry entry{text, DType::f32, {1}, std::as_bytes(std::span(one))};
    const Bytes file = safetensors_to_memory(std::span(&entry, 1), {{text, text}});
    const auto reader = SafetensorsReader::from_memory(file, "test");
    EXPECT_NE(reader.find(text), nullptr) << text;
    EXPECT_EQ(reader.metadata().at(text), text);
  };
  for (const char* text : {"a", "\xc3\xbc", "\xe0\xa4\x85", "\xed\x95\x9c", "\xe2\x82\xac",
                           "\xf0\x9f\x98\x80", "\xf1\x80\x80\x80", "\xf4\x8f\xbf\xbf"})
    written(text);
  for (const char* text : {"\xc3(", "\xe2(\xac", "\xe2\x82(", "\xf0\x9f(\x80", "\xe0\x9f\xbf",
                           "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80"}) {
    const TensorEntry entry{text, DType::f32, {1}, std::as_bytes(std::span(one))};
    expect_error(ErrorCode::invalid_argument, "is not UTF-8",
                 [&] { safetensors_to_memory(std::span(&entry, 1)); });
    expect_error(ErrorCode::invalid_argument, "is not UTF-8", [&] {
      safetensors_to_memory({}, {{text, ""}});
    });
  }
}

TEST(SafetensorsLimits, DimensionsAreBounded) {
  const TensorEntry wide{"t", DType::f32, {limits::kDimension + 1, 0}, {}};
  expect_error(ErrorCode::invalid_argument, "too large dimension",
               [&] { safetensors_to_memory(std::span(&wide, 1)); });
  const TensorEntry widest{"t", DType::f32, {limits::kDimension, 0}, {}};
  EXPECT_FALSE(safetensors_to_memory(std::span(&widest, 1)).empty());
}

TEST(SafetensorsLimits, KeysOfOtherProgramsMayStandAnywhere) {
  const SafetensorsMetadata around{{"a", "before ours"}, {"zzz", "behind ours"}};
  const Bytes file = safetensors_to_memory({}, around);
  EXPECT_EQ(SafetensorsReader::from_memory(file, "test").metadata(), around);
  const auto foreign = opened(file_of(R"({"__metadata__":{"zzz":"behind ours"}})"));
  EXPECT_FALSE(foreign.has_checksums());
  EXPECT_EQ(foreign.metadata(), (SafetensorsMetadata{{"zzz", "behind ours"}}));
  expect_error(ErrorCode::corrupt_file, "a metadata key has", [] {
    opened(file_of(concat(R"({"__metadata__":{")", std::string(3000, 'k'), R"(":""}})")));
  });
}

TEST(SafetensorsLimits, AChecksumHasEightDigits) {
  const std::vector<float> one{1.0f};
  const TensorEntry entry{"t", DType::f32, {1}, std::as_bytes(std::span(one))};
  const Bytes file = safetensors_to_memory(std::span(&entry, 1));
  const std::string whole = json_of(file);
  const size_t sum = whole.find("trafo.crc32.t\":\"") + 16;
  ASSERT_LT(sum, whole.size());
  for (const std::string& digits : {std::string(), std::string("1234567"), std::string(9, '0')}) {
    std::string json = whole;
    json.replace(sum, 8, digits);
    seal_text(json, json.find("header_crc32\":\"") + 15);
    expect_error(ErrorCode::corrupt_file, "the checksum of tensor 't' is missing",
                 [&] { opened(file_of(json, "abcd")); });
  }
}

TEST(SafetensorsLimits, TypesOfNoProgramAreNamed) {
  const TemporaryDirectory directory;
  const std::string json = R"({"t":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}})";
  write_file_atomically(directory / "f", file_of(json, "abcd"));
  expect_error(ErrorCode::unsupported, "has dtype 'F7'",
               [&] { SafetensorsReader::open_foreign(directory / "f"); });
}

}  // namespace
}  // namespace trafo
