// Checkpoints in a stream: any bytes besides the files are damage.
#include <gtest/gtest.h>

#include "engine/io/byte_sink.h"
#include "engine/train/checkpoint/checkpoint_files.h"

namespace trafo {
namespace {

TEST(CheckpointStreamEnd, WhatFollowsTheLastFileIsRefused) {
  const CheckpointFile files[] = {
      {"one", [](ByteSink& sink) { sink.write(std::string_view("content")); }},
      {"two", [](ByteSink& sink) { sink.write(std::string_view("more")); }}};
  MemorySink sink;
  write_checkpoint_stream(sink, files);
  std::vector<std::byte> bytes = sink.take();
  EXPECT_NO_THROW(CheckpointStream{bytes});
  bytes.push_back(std::byte{0});
  try {
    const CheckpointStream stream(bytes);
    ADD_FAILURE() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
    EXPECT_NE(error.message().find("goes on after its last file"), std::string::npos);
  }
}

}  // namespace
}  // namespace trafo
