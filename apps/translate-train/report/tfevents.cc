#include "report/tfevents.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "commands/cli_error.h"
#include "engine/io/atomic_file.h"
#include "engine/os/names.h"
#include "engine/os/process.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kReversedPolynomial = 0x82F63B78u;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ ((value & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

template <typename T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i));
}

// Protocol buffers: a field is a number and one of four kinds of value.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

class Message {
 public:
  Message& varint(uint64_t field, uint64_t value) {
    append_varint(field << 3 | kVarint);
    append_varint(value);
    return *this;
  }
  Message& real64(uint64_t field, double value) {
    append_varint(field << 3 | kFixed64);
    append_little_endian(bytes_, std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& real32(uint64_t field, float value) {
    append_varint(field << 3 | kFixed32);
    append_little_endian(bytes_, std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(uint64_t field, std::string_view value) {
    append_varint(field << 3 | kBytes);
    append_varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(uint64_t field, const Message& value) { return bytes(field, value.bytes_); }
  const std::string& encoded() const { return bytes_; }

 private:
  void append_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Field numbers of event.proto, summary.proto, tensor.proto and tensor_shape.proto.
namespace event {
constexpr uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr uint64_t kStatus = 1, kStart = 1;
}
namespace summary {
constexpr uint64_t kValue = 1, kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
constexpr uint64_t kPluginData = 1, kPluginName = 1, kDataClass = 4, kDataClassTensor = 2;
}  // namespace summary
namespace tensor {
constexpr uint64_t kDtype = 1, kString = 7, kShape = 2, kStringValue = 8, kDim = 2, kSize = 1;
}

Message new_event(int64_t step, double time) {
  Message message;
  message.real64(event::kWallTime, time);
  if (step != 0) message.varint(event::kStep, static_cast<uint64_t>(step));
  return message;
}

// Two processes of one second must not write one file, and readers take files by name.
int64_t time_after_existing_files(const fs::path& directory, double time) {
  auto seconds = static_cast<int64_t>(std::floor(time));
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t taken = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, taken);
    if (error == std::errc() && taken < INT64_MAX) seconds = std::max(seconds, taken + 1);
  }
  return seconds;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char byte : bytes)
    value = (value >> 8) ^ kCrcTable[(value ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~value;
}

uint32_t masked_crc32c(std::string_view bytes) {
  // So that a checksum of data that holds checksums stays a good one.
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

TensorBoardWriter::TensorBoardWriter(const std::string& directory, double time) try {
  trafo::MadeDirectory folder(trafo::os::path_of(directory));
  path_ = folder
              .file(fmt::format("{}{:010}.trafo.{}", kPrefix,
                                time_after_existing_files(trafo::os::path_of(directory), time),
                                trafo::os::process_id()))
              .string();
  out_ = OutputFile(path_, OutputFile::Mode::create);
  record(new_event(0, time).bytes(event::kFileVersion, "brain.Event:2").encoded());
  if (failed_) throw CliError(kFailed, path_ + ": cannot be written");
  folder.keep();
} catch (const trafo::Error& error) {
  throw CliError(kFailed, error.message());
} catch (const fs::filesystem_error& error) {
  throw CliError(kFailed, directory + ": " + error.code().message());
}

void TensorBoardWriter::start_session(int64_t first_step, double time) {
  const Message start = Message().varint(session_log::kStatus, session_log::kStart);
  record(new_event(first_step, time).message(event::kSessionLog, start).encoded());
}

void TensorBoardWriter::scalars(int64_t step, double time, const std::vector<Scalar>& values) {
  Message all;
  for (const Scalar& scalar : values)
    all.message(summary::kValue,
                Message()
                    .bytes(summary::kTag, scalar.tag)
                    .real32(summary::kSimpleValue, static_cast<float>(scalar.value)));
  record(new_event(step, time).message(event::kSummary, all).encoded());
}

void TensorBoardWriter::text(int64_t step, double time, const std::string& tag,
                             const std::string& markdown) {
  const Message plugin = Message().bytes(summary::kPluginName, "text");
  const Message metadata = Message()
                               .message(summary::kPluginData, plugin)
                               .varint(summary::kDataClass, summary::kDataClassTensor);
  const Message shape =
      Message().message(tensor::kDim, Message().varint(tensor::kSize, uint64_t{1}));
  const Message content = Message()
                              .varint(tensor::kDtype, tensor::kString)
                              .message(tensor::kShape, shape)
                              .bytes(tensor::kStringValue, markdown);
  const Message value = Message()
                            .bytes(summary::kTag, tag)
                            .message(summary::kTensor, content)
                            .message(summary::kMetadata, metadata);
  record(new_event(step, time)
             .message(event::kSummary, Message().message(summary::kValue, value))
             .encoded());
}

void TensorBoardWriter::record(const std::string& event) {
  std::string frame;
  append_little_endian(frame, static_cast<uint64_t>(event.size()));
  append_little_endian(frame, masked_crc32c(frame));
  frame += event;
  append_little_endian(frame, masked_crc32c(event));
  // Whole records only: a reader may look at any time.
  failed_ = failed_ || !out_.write(frame);
}

}  // namespace translate_train
