#include "engine/core/system_file.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/io/atomic_file.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

TEST(SystemFile, IsReadToItsEndAndNoFurther) {
  const TemporaryDirectory folder;
  for (const size_t bytes : {0, 1, 65536, 150000}) {
    std::string text(bytes, 'x');
    if (bytes > 0) text.back() = '\n';
    write_file_atomically(folder / "file", text);
    EXPECT_EQ(read_system_file((folder / "file").c_str()), text) << bytes;
  }
  EXPECT_EQ(read_system_file((folder / "missing").c_str()), "");
  EXPECT_EQ(read_system_file(folder.path().c_str()), "");
}

}  // namespace
}  // namespace trafo
