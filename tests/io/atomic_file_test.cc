#include "engine/io/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "engine/io/file_lock.h"
#include "engine/io/temporary_name.h"
#include "tests/support/dead_process.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

TEST(AtomicFile, RoundTripAndReplacement) {
  TemporaryDirectory directory;
  const auto path = directory / "state.json";
  write_file_atomically(path, std::string_view("first"));
  EXPECT_EQ(read_text_file(path, 100), "first");
  write_file_atomically(path, std::string_view(""));
  EXPECT_EQ(read_text_file(path, 0), "");
  const std::string large(3 << 20, 'x');
  write_file_atomically(path, large);
  EXPECT_EQ(read_text_file(path, large.size()), large);
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"state.json"});
}

TEST(AtomicFile, TargetIsUntouchedUntilCommit) {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  write_file_atomically(path, std::string_view("old"));
  {
    AtomicFile file(path);
    file.write(std::string_view("new"));
    EXPECT_EQ(slurp(path), "old");
    const auto names = list_directory(directory.path());
    ASSERT_EQ(names.size(), 2u);
    const auto temporary = parse_temporary_name(names[0]);
    ASSERT_TRUE(temporary.has_value()) << names[0];
    EXPECT_EQ(temporary->name, "model");
    EXPECT_EQ(temporary->pid, getpid());
  }
  EXPECT_EQ(slurp(path), "old");
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"model"});
  AtomicFile file(path);
  file.write(std::string_view("new"));
  file.commit();
  EXPECT_EQ(slurp(path), "new");
  EXPECT_EQ(error_of([&] { file.write(std::string_view("more")); }).code(), ErrorCode::internal);
  EXPECT_EQ(error_of([&] { file.commit(); }).code(), ErrorCode::internal);
}

TEST(AtomicFile, MissingDirectoryNamesPathAndReason) {
  TemporaryDirectory directory;
  const Error error =
      error_of([&] { write_file_atomically(directory / "absent/file", std::string_view("x")); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "absent")) << error.what();
  EXPECT_TRUE(mentions(error, "No such file or directory")) << error.what();
}

TEST(AtomicFile, FailedRenameRemovesTheTemporary) {
  TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "target/inside");
  const Error error =
      error_of([&] { write_file_atomically(directory / "target", std::string_view("x")); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "target")) << error.what();
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"target"});
}

TEST(AtomicFile, FullDiskIsAnError) {
  // /dev/full answers ENOSPC to every write.
  Descriptor full = try_open("/dev/full", os::Open::write);
  ASSERT_TRUE(full.is_open());
  const std::byte bytes[4] = {};
  const Error error = error_of([&] { full.write_all(bytes); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "No space left on device")) << error.what();
}

TEST(AtomicFile, ReadOnlyDirectory) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write into read-only directories";
  TemporaryDirectory directory;
  chmod(directory.path().c_str(), 0500);
  const Error error =
      error_of([&] { write_file_atomically(directory / "file", std::string_view("x")); });
  chmod(directory.path().c_str(), 0700);
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "Permission denied")) << error.what();
}

TEST(AtomicFile, ASymbolicLinkIsReplacedNotFollowed) {
  TemporaryDirectory directory;
  spill(directory / "victim", "precious");
  std::filesystem::create_symlink(directory / "victim", directory / "link");
  write_file_atomically(directory / "link", std::string_view("new"));
  EXPECT_EQ(slurp(directory / "victim"), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(slurp(directory / "link"), "new");
}

TEST(AtomicFile, ModeComesFromTheUmask) {
  TemporaryDirectory directory;
  const mode_t before = umask(027);
  write_file_atomically(directory / "file", std::string_view("x"));
  umask(before);
  struct stat status;
  ASSERT_EQ(stat((directory / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, NamesTheTargetsThatCannotBe) {
  EXPECT_EQ(error_of([] { AtomicFile(""); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([] { AtomicFile("directory/"); }).code(), ErrorCode::invalid_argument);
}

TEST(ReadFile, LimitMissingAndNotRegular) {
  TemporaryDirectory directory;
  const auto path = directory / "file";
  spill(path, "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  EXPECT_EQ(read_file(path, 5).size(), 5u);
  const Error too_large = error_of([&] { read_text_file(path, 4); });
  EXPECT_EQ(too_large.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(too_large, "limit of 4")) << too_large.what();
  EXPECT_EQ(error_of([&] { read_text_file(directory / "absent", 5); }).code(),
            ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { read_text_file(directory.path(), 5); }).code(), ErrorCode::io);

  // A FIFO nobody writes to must not make the reader wait.
  ASSERT_EQ(mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_TRUE(mentions(error_of([&] { read_text_file(directory / "fifo", 5); }), "regular file"));
  EXPECT_EQ(error_of([] { read_text_file("/dev/zero", 5); }).code(), ErrorCode::io);

  std::filesystem::create_symlink(path, directory / "link");
  EXPECT_EQ(read_text_file(directory / "link", 5), "12345");
  const Error link = error_of([&] { read_text_file(directory / "link", 5, FollowLinks::no); });
  EXPECT_EQ(link.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(link, "symbolic link")) << link.what();
}

TEST(TemporaryName, RoundTripAndStrangers) {
  const auto file = parse_temporary_name(temporary_file_name("a.b.c"));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->name, "a.b.c");
  EXPECT_EQ(file->kind, "tmp");
  EXPECT_EQ(file->pid, getpid());
  const auto directory = parse_temporary_name(temporary_directory_name("12", "old"));
  ASSERT_TRUE(directory.has_value());
  EXPECT_EQ(directory->kind, "old");
  for (const char* stranger :
       {"", ".", "..", "...", ".a", "a.tmp-1", ".a.tmp", ".a.tmp-", ".a.tmp-0", ".a.tmp--1",
        ".a.tmp-01", ".a.tmp-1-", ".a.tmp-1-x", ".a.tmp-1 ", ".a.tmp-99999999999999999999",
        ".a.tmp-4294967297", ".a.bak-1", "..tmp-1", ".a.tmpx1"})
    EXPECT_FALSE(parse_temporary_name(stranger).has_value()) << stranger;
}

TEST(TemporaryName, OnlyLeftoversOfDeadProcessesAreRemoved) {
  TemporaryDirectory directory;
  const std::string dead = concat(".model.tmp-", dead_process(), "-3");
  const std::string alive = concat(".model.tmp-", getppid(), "-3");
  const std::string of_another = concat(".other.tmp-", dead_process(), "-3");
  for (const std::string& name :
       {dead, alive, of_another, std::string(".model.tmp"), std::string("model")})
    spill(directory / name, "x");
  EXPECT_EQ(remove_stale_temporaries(directory / "model"), std::vector<std::string>{dead});
  EXPECT_EQ(list_directory(directory.path()).size(), 4u);
  // Who writes a file removes the leftovers of writers that were freed meanwhile.
  write_file_atomically(directory / "other", std::string_view("x"));
  const std::vector<std::string> left{".model.tmp", alive, "model", "other"};
  EXPECT_EQ(list_directory(directory.path()), left);
}

// The writer's process id means nothing in another PID namespace: its lock says that it lives.
TEST(RemoveStaleTemporaries, LeavesWhatAWriterElsewhereHasLocked) {
  TemporaryDirectory directory;
  std::string name;
  {
    AtomicFile writer(directory / "model");
    writer.write("half");
    name = list_directory(directory.path()).at(0);
    const std::filesystem::path renamed = directory / concat(".model.tmp-", dead_process(), "-7");
    std::filesystem::rename(directory / name, renamed);
    EXPECT_TRUE(remove_stale_temporaries(directory / "model").empty());
    EXPECT_TRUE(std::filesystem::exists(renamed));
    std::filesystem::rename(renamed, directory / name);
    writer.commit();
  }
  EXPECT_EQ(slurp(directory / "model"), "half");
  std::filesystem::rename(directory / "model", directory / concat(".model.tmp-", dead_process()));
  EXPECT_EQ(remove_stale_temporaries(directory / "model").size(), 1u);
}

TEST(EnsureDirectory, MakesParentsAndRefusesFiles) {
  TemporaryDirectory directory;
  ensure_directory(directory / "a/b/c");
  ensure_directory(directory / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(directory / "a/b/c"));
  spill(directory / "file", "x");
  EXPECT_EQ(error_of([&] { ensure_directory(directory / "file"); }).code(), ErrorCode::io);
  EXPECT_EQ(error_of([&] { ensure_directory(directory / "file/below"); }).code(), ErrorCode::io);
}

TEST(EnsureDirectory, TheModeComesFromTheUmask) {
  TemporaryDirectory directory;
  const mode_t before = umask(027);
  ensure_directory(directory / "a/b");
  ensure_own_directory(directory / "own");
  umask(before);
  for (const char* name : {"a", "a/b", "own"})
    EXPECT_EQ(std::filesystem::status(directory / name).permissions(),
              static_cast<std::filesystem::perms>(0750))
        << name;
}

TEST(DirectoryLock, SecondHolderIsToldWhoHoldsIt) {
  TemporaryDirectory directory;
  {
    DirectoryLock lock(directory.path());
    const Error error = error_of([&] { DirectoryLock second(directory.path()); });
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_TRUE(mentions(error, concat("process ", getpid(), ";"))) << error.what();
    EXPECT_TRUE(mentions(error, directory.path().string())) << error.what();
  }
  EXPECT_EQ(std::filesystem::file_size(directory / ".lock"), 0u);  // names nobody
  DirectoryLock again(directory.path());
  // The contents of the file come from another program: no number, a number and more, more than is
  // read.
  const std::pair<const char*, const char*> holders[] = {
      {"", "by another process;"},
      {"word", "by another process;"},
      {"12 34", "by process 12;"},
      {"1111111111111111111111111", "by process 111111111111111111111111;"}};
  for (const auto& [text, shown] : holders) {
    std::ofstream(directory / ".lock") << text;
    const Error error = error_of([&] { DirectoryLock second(directory.path()); });
    EXPECT_TRUE(mentions(error, shown)) << error.what();
  }
}

TEST(DirectoryLock, AFileThatNoLockHasWrittenIsKept) {
  TemporaryDirectory directory;
  const auto content = [&] {
    std::ifstream in(directory / ".lock");
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const std::string text : {"of my own\n", "12 dogs\n", "111111111111111111111111111\n"}) {
    std::ofstream(directory / ".lock") << text;
    const Error error = error_of([&] { DirectoryLock lock(directory.path()); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, "move it away")) << error.what();
    EXPECT_EQ(content(), text);
  }
  // A file left by a killed process counts as a lock.
  for (const char* text : {"", "12", "12\n"}) {
    std::ofstream(directory / ".lock") << text;
    EXPECT_NO_THROW(DirectoryLock(directory.path())) << text;
  }
}

TEST(DirectoryLock, OtherProcessIsRefusedAndDeathUnlocks) {
  TemporaryDirectory directory;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    DirectoryLock lock(directory.path());
    const char byte = 'r';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const Error error = error_of([&] { DirectoryLock lock(directory.path()); });
  EXPECT_TRUE(mentions(error, concat("process ", child, ";"))) << error.what();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  DirectoryLock lock(directory.path());
  close(ready[0]);
  close(ready[1]);
}

TEST(DirectoryLock, OnlyAFileOfItsOwnIsEmptied) {
  TemporaryDirectory directory;
  write_file_atomically(directory / "victim", "precious");
  std::filesystem::create_hard_link(directory / "victim", directory / ".lock");
  expect_error(ErrorCode::io, "has a second name", [&] { DirectoryLock lock(directory.path()); });
  std::filesystem::remove(directory / ".lock");
  std::filesystem::create_symlink(directory / "victim", directory / ".lock");
  EXPECT_EQ(code_of([&] { DirectoryLock lock(directory.path()); }), ErrorCode::io);
  EXPECT_EQ(read_text_file(directory / "victim", 100), "precious");
  std::filesystem::remove(directory / ".lock");
  ASSERT_EQ(mkfifo((directory / ".lock").c_str(), 0600), 0);
  expect_error(ErrorCode::io, "special", [&] { DirectoryLock lock(directory.path()); });
}

TEST(DirectoryLock, MissingDirectory) {
  const Error error = error_of([] { DirectoryLock lock("/nonexistent-directory"); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "No such file or directory")) << error.what();
}

}  // namespace
}  // namespace trafo
