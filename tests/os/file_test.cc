// Runs on every system that engine/os supports: nothing but the standard library and the engine.
#include "engine/os/file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/os/names.h"
#include "tests/os/test_folder.h"

namespace trafo {
namespace {

using os::Open;

class OpenFile {
 public:
  OpenFile(os::PathRef path, Open how) : file_(os::open_file(path, how)) {}
  ~OpenFile() {
    if (file_ >= 0) os::close_file(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return file_; }
  void write(std::string_view text) const {
    EXPECT_EQ(os::write_some(file_, text.data(), text.size()), static_cast<ptrdiff_t>(text.size()));
  }

 private:
  int file_;
};

constexpr Open kNew = Open::write | Open::create | Open::exclusive;

TEST(OsFile, SystemFileIsReadToItsEndAndNoFurther) {
#ifdef __linux__
  const TestFolder folder;
  for (const size_t bytes : {0, 1, 65536, 150000}) {
    std::string text(bytes, 'x');
    if (bytes > 0) text.back() = '\n';
    write_bytes(folder / "file", text);
    EXPECT_EQ(os::read_system_file((folder / "file").c_str()), text) << bytes;
  }
  EXPECT_EQ(os::read_system_file((folder / "missing").c_str()), "");
  EXPECT_EQ(os::read_system_file(folder.path().c_str()), "");
#else
  EXPECT_EQ(os::read_system_file("/proc/meminfo"), "");
#endif
}

TEST(OsFile, BytesAreWrittenAsTheyAre) {
  const TestFolder folder;
  const std::string text("a\nb\r\n\x1a\0z", 8);  // a text mode would change or end at some of these
  OpenFile(folder / "file", kNew).write(text);
  EXPECT_EQ(bytes_of(folder / "file"), text);
  const OpenFile file(folder / "file", Open::read);
  char bytes[16] = {};
  EXPECT_EQ(os::read_some(file.number(), bytes, sizeof bytes), 8);
  EXPECT_EQ(std::string(bytes, 8), text);
  EXPECT_EQ(os::read_some(file.number(), bytes, sizeof bytes), 0);
  EXPECT_EQ(os::read_at(file.number(), bytes, 3, 2), 3);
  EXPECT_EQ(std::string(bytes, 3), "b\r\n");
  EXPECT_EQ(os::read_at(file.number(), bytes, 3, 8), 0);
}

TEST(OsFile, ReadingAtAnOffsetLeavesThePositionOfWriting) {
  const TestFolder folder;
  const OpenFile file(folder / "file", Open::read_write | Open::create);
  file.write("1234");
  char bytes[4];
  EXPECT_EQ(os::read_at(file.number(), bytes, 2, 0), 2);
  file.write("5");
  EXPECT_EQ(bytes_of(folder / "file"), "12345");
  EXPECT_EQ(os::truncate_file(file.number(), 2), 0);
  EXPECT_EQ(os::seek_to_end(file.number()), 0);
  file.write("x");
  EXPECT_EQ(bytes_of(folder / "file"), "12x");
}

TEST(OsFile, AppendsWhereTheFileEnds) {
  const TestFolder folder;
  const OpenFile one(folder / "file", Open::write | Open::create | Open::append);
  const OpenFile other(folder / "file", Open::write | Open::create | Open::append);
  one.write("1");
  other.write("2");
  one.write("3");
  EXPECT_EQ(bytes_of(folder / "file"), "123");
}

TEST(OsFile, OpeningSaysWhatIsWrong) {
  const TestFolder folder;
  write_bytes(folder / "file", "text");
  const auto error_of_opening = [&](const char* name, Open how) {
    const int file = os::open_file(folder / name, how);
    const int reason = errno;
    if (file < 0) return reason;
    os::close_file(file);
    return 0;
  };
  EXPECT_EQ(error_of_opening("missing", Open::read), ENOENT);
  EXPECT_EQ(error_of_opening("missing/file", kNew), ENOENT);
  EXPECT_EQ(error_of_opening("file", kNew), EEXIST);
  EXPECT_EQ(error_of_opening("file", Open::read | Open::directory), ENOTDIR);
  EXPECT_EQ(error_of_opening(".", Open::write), EISDIR);
  EXPECT_EQ(error_of_opening(".", Open::read | Open::directory), 0);
  EXPECT_EQ(bytes_of(folder / "file"), "text");
}

TEST(OsFile, ALinkIsNotFollowedIfItMustNot) {
  const TestFolder folder;
  write_bytes(folder / "file", "text");
  std::error_code error;
  std::filesystem::create_symlink(folder / "file", folder / "link", error);
  if (error || !std::filesystem::is_symlink(folder / "link", error))  // Wine says that it made one
    GTEST_SKIP() << "this system or user makes no symbolic links";
  EXPECT_LT(os::open_file(folder / "link", Open::read | Open::no_follow), 0);
  EXPECT_EQ(errno, ELOOP);
  const OpenFile followed(folder / "link", Open::read);
  EXPECT_GE(followed.number(), 0);
  os::FileStatus status;
  EXPECT_EQ(os::link_status_of(folder / "link", status), 0);
  EXPECT_EQ(status.kind, os::FileStatus::Kind::link);
}

TEST(OsFile, StatusSaysKindSizeNamesAndTime) {
  const TestFolder folder;
  write_bytes(folder / "file", "text");
  os::FileStatus status;
  ASSERT_EQ(os::status_of(folder / "file", status), 0);
  EXPECT_EQ(status.kind, os::FileStatus::Kind::regular);
  EXPECT_EQ(status.size, 4u);
  EXPECT_EQ(status.names, 1u);
  EXPECT_TRUE(status.is_own);
  std::filesystem::create_hard_link(folder / "file", folder / "other");
  const OpenFile file(folder / "file", Open::read_write);
  os::FileStatus now;
  ASSERT_EQ(os::file_status(file.number(), now), 0);
  EXPECT_EQ(now.names, 2u);
  EXPECT_EQ(now.modified_seconds, status.modified_seconds);
  ASSERT_EQ(os::status_of(folder.path(), status), 0);
  EXPECT_EQ(status.kind, os::FileStatus::Kind::directory);
  EXPECT_LT(os::status_of(folder / "missing", status), 0);
  EXPECT_EQ(errno, ENOENT);
}

TEST(OsFile, ALockHoldsUntilTheLastDescriptorIsClosed) {
  const TestFolder folder;
  const OpenFile other(folder / "file", Open::read_write | Open::create);
  int copy = -1;
  {
    const OpenFile file(folder / "file", Open::read_write);
    file.write("read me");
    ASSERT_EQ(os::lock_file(file.number()), 0);
    copy = os::duplicate_file(file.number());
    ASSERT_GE(copy, 0);
    EXPECT_LT(os::lock_file(other.number()), 0);
    EXPECT_EQ(errno, EWOULDBLOCK);
    char bytes[8] = {};  // who has no lock can still read
    EXPECT_EQ(os::read_at(other.number(), bytes, 7, 0), 7);
    EXPECT_STREQ(bytes, "read me");
  }
  EXPECT_LT(os::lock_file(other.number()), 0);
  EXPECT_EQ(os::close_file(copy), 0);
  EXPECT_EQ(os::lock_file(other.number()), 0);
}

TEST(OsFile, ANamelessFileLeavesNothing) {
  const TestFolder folder;
  const int file = os::open_nameless_file(folder / "unpacked-");
  ASSERT_GE(file, 0);
  EXPECT_EQ(os::write_some(file, "text", 4), 4);
  char bytes[4];
  EXPECT_EQ(os::read_at(file, bytes, 4, 0), 4);
  EXPECT_EQ(std::string(bytes, 4), "text");
  os::close_file(file);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_LT(os::open_nameless_file(folder / "missing/unpacked-"), 0);
  EXPECT_EQ(errno, ENOENT);
}

TEST(OsFile, SyncsFilesAndDirectories) {
  const TestFolder folder;
  const OpenFile file(folder / "file", kNew);
  file.write("text");
  EXPECT_EQ(os::sync_file(file.number()), 0);
  const OpenFile directory(folder.path(), Open::read | Open::directory);
  ASSERT_GE(directory.number(), 0);
  const bool synced = os::sync_file(directory.number()) == 0;
  EXPECT_TRUE(synced || os::is_unsupported(errno)) << errno;
}

TEST(OsFile, APipeIsWaitedForOnlySoLong) {
  const TestFolder folder;
  write_bytes(folder / "file", "text");
  const OpenFile file(folder / "file", Open::read);
  EXPECT_EQ(os::wait_for_input(file.number(), 0), 1);
}

}  // namespace
}  // namespace trafo
