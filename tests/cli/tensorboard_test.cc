// TensorBoard's event files, read back by a reader that shares nothing with the writer.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "apps/translate-train/commands/cli_error.h"
#include "apps/translate-train/report/tfevents.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;

// A bit at a time, as the definition of the code says (RFC 3720, appendix B.4).
uint32_t slow_crc32c(const std::string& bytes) {
  uint32_t value = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = static_cast<unsigned char>(byte) >> bit & 1;
      value = ((value ^ in) & 1) != 0 ? value >> 1 ^ 0x82F63B78u : value >> 1;
    }
  }
  return value ^ 0xFFFFFFFFu;
}

uint32_t unmasked(uint32_t stored) {
  const uint32_t rotated = stored - 0xA282EAD8u;
  return rotated >> 17 | rotated << 15;
}

template <typename T>
T little_endian(const std::string& bytes, size_t at) {
  if (at + sizeof(T) > bytes.size()) throw std::runtime_error("the file ends inside a number");
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  return value;
}

std::vector<std::string> read_frames(const std::string& file) {
  std::vector<std::string> frames;
  for (size_t at = 0; at < file.size();) {
    const auto length = static_cast<size_t>(little_endian<uint64_t>(file, at));
    EXPECT_EQ(unmasked(little_endian<uint32_t>(file, at + 8)), slow_crc32c(file.substr(at, 8)));
    if (length > file.size() - at) throw std::runtime_error("a frame is longer than the file");
    frames.push_back(file.substr(at + 12, length));
    EXPECT_EQ(unmasked(little_endian<uint32_t>(file, at + 12 + length)),
              slow_crc32c(frames.back()));
    at += 16 + length;
  }
  return frames;
}

// Fields of a protocol buffer by number; numbers as their bits.
struct Fields {
  std::multimap<uint64_t, uint64_t> numbers;
  std::multimap<uint64_t, std::string> bytes;
  const std::string& text(uint64_t field) const { return bytes.find(field)->second; }
};

Fields parse(const std::string& message) {
  Fields fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint(), field = key >> 3;
    switch (key & 7) {
      case 0:
        fields.numbers.emplace(field, varint());
        break;
      case 1:
        fields.numbers.emplace(field, little_endian<uint64_t>(message, at));
        at += 8;
        break;
      case 2: {
        const auto length = static_cast<size_t>(varint());
        fields.bytes.emplace(field, message.substr(at, length));
        at += length;
        break;
      }
      case 5:
        fields.numbers.emplace(field, little_endian<uint32_t>(message, at));
        at += 4;
        break;
      default:
        throw std::runtime_error("no wire type");
    }
  }
  EXPECT_EQ(at, message.size());
  return fields;
}

int64_t step_of(const Fields& event) {
  const auto found = event.numbers.find(2);
  return found == event.numbers.end() ? 0 : static_cast<int64_t>(found->second);
}

float value_of(const Fields& value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.numbers.find(2)->second));
}

TEST(TensorBoard, Checksum) {
  // RFC 3720, appendix B.4, and the usual check value of CRC catalogues.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
  for (const std::string text : {"", "a", "masked"})
    EXPECT_EQ(unmasked(masked_crc32c(text)), slow_crc32c(text));
}

TEST(TensorBoard, FileHasTheBytesTensorFlowWrites) {
  const TemporaryFolder folder;
  const TensorBoardWriter writer(folder.file("board/deep"), 1.5);
  const std::string file = read_file(writer.path());
  // Length 24 and its checksum; wall time 1.5; file_version.
  const unsigned char head[] = {0x18, 0, 0, 0, 0, 0, 0, 0,    0xA3, 0x7F, 0x4B, 0x22,
                                0x09, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x1A, 0x0D};
  const std::string wanted(reinterpret_cast<const char*>(head), sizeof head);
  EXPECT_EQ(file.substr(0, wanted.size()), wanted);
  EXPECT_EQ(file.substr(wanted.size(), 13), "brain.Event:2");
  EXPECT_EQ(file.size(), 40u);
  EXPECT_EQ(read_frames(file).size(), 1u);
}

TEST(TensorBoard, ScalarsAndText) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), 1700000000.25);
  writer.start_session(301, 1700000001);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  writer.scalars(300, 1700000002, {{"train/loss", 2.5}, {"train/grad_norm", nan}});
  const std::string text = "| ein | 'größer' |\n" + std::string(300, 'x');
  writer.text(INT64_MAX, 1700000003, "valid/samples", text);
  ASSERT_FALSE(writer.failed());

  const auto frames = read_frames(read_file(writer.path()));
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(parse(frames[0]).text(3), "brain.Event:2");
  EXPECT_EQ(std::bit_cast<double>(parse(frames[0]).numbers.find(1)->second), 1700000000.25);

  const Fields session = parse(frames[1]);
  EXPECT_EQ(step_of(session), 301);
  EXPECT_EQ(parse(session.text(7)).numbers.find(1)->second, 1u);  // SessionLog.START

  const Fields scalars = parse(frames[2]);
  EXPECT_EQ(step_of(scalars), 300);
  const Fields summary = parse(scalars.text(5));
  const auto [begin, end] = summary.bytes.equal_range(1);
  ASSERT_EQ(std::distance(begin, end), 2);
  EXPECT_EQ(parse(begin->second).text(1), "train/loss");
  EXPECT_EQ(value_of(parse(begin->second)), 2.5f);
  EXPECT_EQ(parse(std::next(begin)->second).text(1), "train/grad_norm");
  EXPECT_TRUE(std::isnan(value_of(parse(std::next(begin)->second))));

  const Fields texts = parse(frames[3]);
  EXPECT_EQ(step_of(texts), INT64_MAX);
  const Fields value = parse(parse(texts.text(5)).text(1));
  EXPECT_EQ(value.text(1), "valid/samples");
  const Fields tensor = parse(value.text(8));
  EXPECT_EQ(tensor.numbers.find(1)->second, 7u);  // DT_STRING
  EXPECT_EQ(tensor.text(8), text);
  EXPECT_EQ(parse(parse(tensor.text(2)).text(2)).numbers.find(1)->second, 1u);
  EXPECT_EQ(parse(parse(value.text(9)).text(1)).text(1), "text");
}

TEST(TensorBoard, FilesOfOneSecondAreInOrder) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) paths.push_back(TensorBoardWriter(folder.path(), 99.5 - i).path());
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
  EXPECT_EQ(std::adjacent_find(paths.begin(), paths.end()), paths.end());
}

TEST(TensorBoard, WhatCannotBeWrittenIsSaid) {
  const TemporaryFolder folder;
  write_file(folder.file("file"), "");
  EXPECT_THROW(TensorBoardWriter(folder.file("file"), 1), CliError);
  EXPECT_THROW(TensorBoardWriter("/proc/board", 1), CliError);
}

}  // namespace
}  // namespace translate_train::testing
