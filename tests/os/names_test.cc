// Runs on every system that engine/os supports.
#include "engine/os/names.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "engine/io/atomic_file.h"
#include "engine/io/file_lock.h"
#include "engine/os/file.h"
#include "tests/os/test_folder.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

namespace fs = std::filesystem;

TEST(OsNames, ARenamedFileReplacesTheOldOne) {
  const TestFolder folder;
  write_bytes(folder / "old", "old");
  write_bytes(folder / "new", "new");
  EXPECT_LT(os::rename_new(folder / "new", folder / "old"), 0);
  EXPECT_EQ(errno, EEXIST);
  // Somebody who has the old file open keeps it, and does not prevent the change.
  const int reader = os::open_file(folder / "old", os::Open::read);
  ASSERT_GE(reader, 0);
  // Wine 8 cannot change the name then. Nothing is lost.
  const bool is_renamed = os::rename_replacing(folder / "new", folder / "old") == 0;
  EXPECT_TRUE(is_renamed || errno == EACCES) << errno;
  char bytes[3];
  EXPECT_EQ(os::read_some(reader, bytes, 3), 3);
  EXPECT_EQ(std::string(bytes, 3), "old");
  os::close_file(reader);
#ifndef _WIN32
  EXPECT_TRUE(is_renamed);
#endif
  if (!is_renamed) {
    ASSERT_EQ(os::rename_replacing(folder / "new", folder / "old"), 0) << errno;
  }
  EXPECT_EQ(bytes_of(folder / "old"), "new");
  EXPECT_FALSE(fs::exists(folder / "new"));
  EXPECT_EQ(os::rename_new(folder / "old", folder / "other"), 0);
  EXPECT_LT(os::rename_replacing(folder / "missing", folder / "other"), 0);
  EXPECT_EQ(errno, ENOENT);
}

TEST(OsNames, ADirectoryReplacesAnEmptyOne) {
  const TestFolder folder;
  ASSERT_EQ(os::make_directory(folder / "new"), 0);
  write_bytes(folder / "new/file", "text");
  ASSERT_EQ(os::make_directory(folder / "empty"), 0);
  ASSERT_EQ(os::make_directory(folder / "full"), 0);
  write_bytes(folder / "full/file", "text");
  EXPECT_LT(os::rename_replacing(folder / "new", folder / "full"), 0);
  EXPECT_TRUE(errno == ENOTEMPTY || errno == EEXIST) << errno;
  EXPECT_EQ(os::rename_replacing(folder / "new", folder / "empty"), 0) << errno;
  EXPECT_EQ(bytes_of(folder / "empty/file"), "text");
}

TEST(OsNames, DirectoriesAreMadeListedAndRemoved) {
  const TestFolder folder;
  const fs::path made = folder / "made";
  EXPECT_EQ(os::make_directory(made), 0);
  EXPECT_LT(os::make_directory(made), 0);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_LT(os::make_directory(folder / "missing/inside"), 0);
  EXPECT_EQ(errno, ENOENT);
  write_bytes(made / "one", "1");
  write_bytes(made / ".hidden", "2");
  os::DirectoryReader reader(made);
  ASSERT_TRUE(reader.is_open());
  std::set<std::string> names;
  for (std::string name; reader.next(name);) names.insert(name);
  EXPECT_EQ(errno, 0);
  EXPECT_EQ(names, (std::set<std::string>{"one", ".hidden"}));
  EXPECT_FALSE(os::DirectoryReader(folder / "missing").is_open());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_LT(os::remove_directory(made), 0);
  EXPECT_TRUE(errno == ENOTEMPTY || errno == EEXIST) << errno;
  EXPECT_LT(os::remove_file(made), 0);
  EXPECT_EQ(os::remove_tree(made), 0);
  EXPECT_FALSE(fs::exists(made));
  EXPECT_EQ(os::remove_tree(made), 0);
  EXPECT_LT(os::remove_file(made), 0);
  EXPECT_EQ(errno, ENOENT);
}

TEST(OsNames, AFileThatIsOpenCanBeRemoved) {
  const TestFolder folder;
  const int file = os::open_file(folder / "file", os::Open::read_write | os::Open::create);
  ASSERT_GE(file, 0);
  EXPECT_EQ(os::remove_file(folder / "file"), 0) << errno;
  EXPECT_EQ(os::write_some(file, "text", 4), 4);
  os::close_file(file);
  EXPECT_FALSE(fs::exists(folder / "file"));
}

TEST(OsNames, LongAndForeignPaths) {
  const TestFolder folder;
  fs::path deep = folder.path();
  for (int i = 0; i < 8; ++i) {
    deep /= fs::path(u8"Ordner \u00e4\u00f6\u00fc \u4e2d\u6587 " + std::u8string(40, u8'x'));
    ASSERT_EQ(os::make_directory(deep), 0) << errno;
  }
  ASSERT_GT(deep.string().size(), 400u);
  const fs::path file = deep / fs::path(u8"\u0444\u0430\u0439\u043b");
  write_file_atomically(file, std::string_view("text"));
  EXPECT_EQ(read_text_file(file, 10), "text");
  write_file_atomically(file, std::string_view("again"));
  EXPECT_EQ(read_text_file(file, 10), "again");
  EXPECT_TRUE(remove_stale_temporaries(file).empty());
  const std::string stale = "." + file.filename().string() + ".tmp-2147483647-5";
  os::close_file(os::open_file(deep / os::path_of(stale), os::Open::write | os::Open::create));
  EXPECT_EQ(remove_stale_temporaries(file), std::vector<std::string>{stale});
  EXPECT_EQ(list_directory(deep), std::vector<std::string>{"\xd1\x84\xd0\xb0\xd0\xb9\xd0\xbb"});
  // As text, which is UTF-8.
  os::FileStatus status;
  EXPECT_EQ(os::status_of(file.string(), status), 0);
  EXPECT_EQ(status.size, 5u);
  std::FILE* stream = os::open_stream((deep / "stream").string());
  ASSERT_NE(stream, nullptr);
  std::fclose(stream);
  EXPECT_EQ(os::path_of(file.string()), file);
  EXPECT_EQ(os::remove_tree(folder.path() / *deep.lexically_relative(folder.path()).begin()), 0)
      << errno;
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(OsNames, OneProcessAtATimeHoldsADirectory) {
  const TestFolder folder;
  {
    const DirectoryLock lock(folder.path());
    EXPECT_TRUE(lock.is_held());
    const Error error = error_of([&] { DirectoryLock second(folder.path()); });
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_TRUE(mentions(error, "is in use by process")) << error.what();
  }
  const DirectoryLock again(folder.path());
  EXPECT_TRUE(again.is_held());
}

TEST(OsNames, RightsAreKnownBeforehand) {
  const TestFolder folder;
  write_bytes(folder / "file", "text");
  EXPECT_TRUE(os::can_read(folder / "file"));
  EXPECT_TRUE(os::can_make_files_in(folder.path()));
  EXPECT_FALSE(os::can_read(folder / "missing"));
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace trafo
