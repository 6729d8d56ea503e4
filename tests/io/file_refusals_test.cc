// Files and directories that are in the way, cannot be removed, or are left over: with conditions
// that any Linux has, without faults that are put in (tests/reliability/save_faults.sh has those).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "engine/io/atomic_file.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/io/descriptor.h"
#include "engine/io/temporary_name.h"
#include "tests/support/dead_process.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

void save_one(CheckpointDirectory& checkpoints, int64_t update, const std::string& text) {
  const CheckpointFile file{"state.json", [&](ByteSink& sink) { sink.write(text); }};
  checkpoints.save(update, std::span(&file, 1));
}

TEST(FileRefusals, LinksThatLeadNowhere) {
  const TemporaryDirectory directory;
  fs::create_symlink(directory / "b", directory / "a");
  fs::create_symlink(directory / "a", directory / "b");
  expect_error(ErrorCode::io, "Too many levels of symbolic links",
               [&] { read_text_file(directory / "a", 10); });
  expect_error(ErrorCode::io, "is a symbolic link",
               [&] { read_text_file(directory / "a", 10, FollowLinks::no); });
}

TEST(FileRefusals, ANewFileIsNew) {
  const TemporaryDirectory directory;
  Descriptor file = create_new_file(directory / "a");
  file.write_all(std::as_bytes(std::span("x", 1)));
  expect_error(ErrorCode::io, "cannot create", [&] { create_new_file(directory / "a"); });
  expect_error(ErrorCode::io, "File exists", [&] { create_new_file(directory / "a"); });
  EXPECT_FALSE(try_create_new_file(directory / "a").is_open());
  expect_error(ErrorCode::io, "cannot create", [&] { try_create_new_file(directory / "a/b"); });
  expect_error(ErrorCode::io, "cannot create", [&] { try_create_new_file(directory / "no/b"); });

  Descriptor& same = file;
  file = std::move(same);
  EXPECT_TRUE(file.is_open());
  EXPECT_EQ(file.size(), 1u);
  Descriptor other = create_new_file(directory / "b");
  other = std::move(file);
  EXPECT_EQ(other.path(), directory / "a");
  EXPECT_EQ(other.size(), 1u);
}

TEST(FileRefusals, DirectoriesThatCannotBeMade) {
  const TemporaryDirectory directory;
  expect_error(ErrorCode::io, "cannot create directory", [] { ensure_directory(""); });
  ensure_directory("/");
  expect_error(ErrorCode::io, "cannot create directory",
               [&] { make_new_directory(directory.path()); });
  expect_error(ErrorCode::io, "cannot create directory",
               [&] { make_new_directory(directory / "no/such"); });
  expect_error(ErrorCode::not_found, "there is no directory",
               [&] { list_directory(directory / "no"); });
  spill(directory / "file", "x");
  expect_error(ErrorCode::io, "cannot list", [&] { list_directory(directory / "file"); });
  expect_error(ErrorCode::io, "cannot open directory", [&] { sync_directory(directory / "file"); });
}

TEST(FileRefusals, WhatCannotBeRemovedIsSaid) {
  const TemporaryDirectory directory;
  remove_tree(directory / "absent");
  spill(directory / "file", "x");
  expect_error(ErrorCode::io, "cannot remove", [&] { remove_tree(directory / "file/below"); });
  remove_tree(directory / "file");
  EXPECT_FALSE(fs::exists(directory / "file"));
  ensure_directory(directory / "a/b/c");
  spill(directory / "a/b/file", "x");
  fs::create_directory_symlink(directory.path(), directory / "a/link");
  remove_tree(directory / "a");
  EXPECT_TRUE(fs::is_empty(directory.path()));
  // Files of the kernel, whoever asks; and a directory of them.
  expect_error(ErrorCode::io, "cannot remove", [] { remove_tree("/proc/self/status"); });
  expect_error(ErrorCode::io, "cannot remove", [] { remove_tree("/proc/self/fdinfo"); });
}

TEST(FileRefusals, OnlyUnfinishedFilesOfTheTargetAreLeftovers) {
  const TemporaryDirectory directory;
  const std::string dead = std::to_string(dead_process());
  const std::string old = ".model.old-" + dead, unfinished = ".model.tmp-" + dead + "-1";
  for (const std::string& name : {old, unfinished}) spill(directory / name, "x");
  EXPECT_EQ(remove_stale_temporaries(directory / "model"), Names{unfinished});
  EXPECT_TRUE(fs::exists(directory / old));
}

TEST(CheckpointRefusals, LeftoversOfARunAreThoseOfTheDead) {
  const TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_one(checkpoints, 1, "one");
  const std::string dead = std::to_string(dead_process()), alive = std::to_string(getppid());
  const std::string kept[] = {".latest.old-" + dead, ".latest.tmp-" + alive + "-2", ".notes"};
  for (const std::string& name : kept) spill(run / name, "x");
  spill(run / (".latest.tmp-" + dead + "-2"), "x");
  EXPECT_EQ(checkpoints.remove_leftovers(), Names{".latest.tmp-" + dead + "-2"});
  for (const std::string& name : kept) EXPECT_TRUE(fs::exists(run / name)) << name;
}

TEST(CheckpointRefusals, WhatIsInTheWayIsSaid) {
  const TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  spill(run / "ckpt", "a file");
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] { checkpoints.list(); }, [&] { checkpoints.newest_valid(); },
           [&] { checkpoints.remove_leftovers(); }, [&] { save_one(checkpoints, 1, "x"); }})
    EXPECT_EQ(error_of(call).code(), ErrorCode::io);
  EXPECT_EQ(slurp(run / "ckpt"), "a file");
  fs::remove(run / "ckpt");

  for (const char* name : {"", ".", "a/b", ".hidden"}) {
    expect_error(ErrorCode::invalid_argument, "cannot be a file name here",
                 [&] { checkpoints.read_pointer(name); });
    expect_error(ErrorCode::invalid_argument, "cannot be a file name here",
                 [&] { checkpoints.write_pointer(name, 1); });
  }
  fs::create_directory(run / "latest");
  expect_error(ErrorCode::io, "latest", [&] { checkpoints.read_pointer("latest"); });
}

// Between the two renames of a replacement that failed, and so did its way back.
TEST(CheckpointRefusals, AReplacementMeetsTheRestOfAnEarlierOne) {
  const TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_one(checkpoints, 5, "first");
  const fs::path old = run / "ckpt" / concat(".5.old-", getpid());
  fs::copy(checkpoints.path(5), old, fs::copy_options::recursive);
  save_one(checkpoints, 5, "second");
  EXPECT_EQ(list_directory(run / "ckpt"), Names{"5"});
  EXPECT_EQ(checkpoints.read_text(5, "state.json", 100), "second");
  spill(old, "a file");
  expect_error(ErrorCode::io, "cannot list", [&] { save_one(checkpoints, 5, "third"); });
  EXPECT_EQ(checkpoints.read_text(5, "state.json", 100), "second");
}

}  // namespace
}  // namespace trafo
