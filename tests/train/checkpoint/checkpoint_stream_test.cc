// A checkpoint that is refused late, for a part that is read last, has changed nothing.
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/io/checksum.h"
#include "engine/models/model_io.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;
using Json = nlohmann::json;

std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string stream_of(Process& process) {
  MemorySink sink;
  process.run->write_checkpoint(sink);
  return {reinterpret_cast<const char*>(sink.bytes().data()), sink.bytes().size()};
}

// The stream with one of its files changed and all sums right.
std::string with_file(const std::string& stream, const std::string& name,
                      const std::function<std::string(std::string)>& change) {
  const size_t list_begin = stream.find('\n') + 1;
  const size_t list_end = stream.find('\n', list_begin);
  Json list = Json::parse(stream.substr(list_begin, list_end - list_begin));
  std::string files;
  size_t at = list_end + 1;
  for (Json& entry : list) {
    const auto size = entry.at("bytes").get<size_t>();
    std::string file = stream.substr(at, size);
    at += size;
    if (entry.at("name") == name) file = change(std::move(file));
    entry["bytes"] = file.size();
    entry["crc32"] = crc32_text(crc32(bytes_of_text(file)));
    files += file;
  }
  return stream.substr(0, list_begin) + list.dump() + "\n" + files;
}

class CheckpointStreamTest : public ::testing::Test {
 protected:
  CheckpointStreamTest() {
    options_.ema_alpha = 1e-2;
    Process process(data_, options_);
    process.run->run({}, nullptr, 5);
    stream_ = stream_of(process);
  }

  // INVALID_ARGUMENT with `text`, and a run that goes on as if it had not been asked.
  void refused(const std::string& stream, const char* text) {
    const Reference reference = uncut(data_, options_, 6);
    options_.after_updates = 6;
    Process process(data_, options_);
    process.run->run({}, nullptr, 3);
    const auto bytes = bytes_of_text(stream);
    const Error error = error_of([&] {
      process.run->read_checkpoint({bytes.begin(), bytes.end()});
    });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_EQ(process.run->state().trainer.update, 3);
    process.run->run();
    EXPECT_TRUE(process.weights() == reference.weights);
    EXPECT_EQ(timeless(process.run->state()), reference.state);
  }

  TrainingData data_ = copy_data();
  TrainOptions options_ = quick_options();
  std::string stream_;
};

TEST_F(CheckpointStreamTest, AChangedCopyWithNothingChangedIsTheSame) {
  EXPECT_EQ(with_file(stream_, kStateFile, [](std::string file) { return file; }), stream_);
}

TEST_F(CheckpointStreamTest, WhatWasReadIsNotSavedAtOnce) {
  const TemporaryDirectory directory;
  Process process(data_, options_, directory.path());
  const auto bytes = bytes_of_text(stream_);
  process.run->read_checkpoint({bytes.begin(), bytes.end()});
  std::vector<int64_t> saved;
  process.run->run(
      [&](const TrainEvent& event) {
        if (event.kind == TrainEventKind::saved) saved.push_back(event.update);
        return 0;
      },
      nullptr, 5);
  EXPECT_EQ(saved, (std::vector<int64_t>{7, 10}));  // the best model, and when it is due
}

// A bfloat16 model computes with the rounded values of what was read.
TEST_F(CheckpointStreamTest, Bfloat16ValuesFollowWhatWasRead) {
  Context context(std::make_shared<Accelerator>());
  const auto model = make_model(context, tiny_config(), 9, DType::bf16);
  TrainingRun run(context, *model, data_, options_);
  const auto bytes = bytes_of_text(stream_);
  run.read_checkpoint({bytes.begin(), bytes.end()});
  const auto exact = context.values<float>(model->parameters().master());
  const auto rounded = context.values<BFloat16>(model->parameters().flat());
  ASSERT_EQ(exact.size(), rounded.size());
  for (size_t i = 0; i < exact.size(); ++i)
    ASSERT_EQ(rounded[i].to_float(), BFloat16::from_float(exact[i]).to_float()) << i;
}

TEST_F(CheckpointStreamTest, AnotherFormatIsNamed) {
  for (const std::string& format :
       {std::string("2"), std::string("12"), std::string(), std::string(40, '1')}) {
    std::string other = stream_;
    other.replace(0, other.find('\n'), "trafo checkpoint " + format);
    const auto bytes = bytes_of_text(other);
    const Error error = error_of([&] { CheckpointStream({bytes.begin(), bytes.end()}); });
    EXPECT_EQ(error.code(), ErrorCode::version) << error.what();
    EXPECT_TRUE(mentions(error, concat("has the format ", format.substr(0, 16), ",").c_str()))
        << error.what();
  }
}

TEST_F(CheckpointStreamTest, APositionThatTheDataDoesNotHave) {
  refused(with_file(stream_, kStateFile,
                    [](const std::string& file) {
                      Json state = Json::parse(file);
                      state["next_batch"] = state["next_in_window"] = 100000;
                      return state.dump(2) + "\n";
                    }),
          "does not exist");
}

TEST_F(CheckpointStreamTest, UnsmoothedWeightsOfAnotherModel) {
  Process other(data_, options_, std::nullopt, 1, tiny_config(Architecture::encoder_decoder, 0.3));
  MemorySink sink;
  write_model(sink, *other.context, *other.model);
  const std::string foreign(reinterpret_cast<const char*>(sink.bytes().data()),
                            sink.bytes().size());
  refused(with_file(stream_, kUnsmoothedFile, [&](const std::string&) { return foreign; }),
          "another model");
}

}  // namespace
}  // namespace trafo
