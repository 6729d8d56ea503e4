#include "engine/core/file_memory.h"

#include <algorithm>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/scratch_directory.h"

namespace trafo {
namespace {

TEST(FileMemory, KeepsWhatIsWrittenWhileItHasNoPages) {
  const ScratchDirectory folder;
  constexpr size_t kBytes = 3 * 4096 + 17;
  auto* const begin = static_cast<std::byte*>(allocate_in_file(folder.path(), kBytes));
  EXPECT_TRUE(std::all_of(begin, begin + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  for (size_t i = 0; i < kBytes; ++i) begin[i] = static_cast<std::byte>(i % 251);
  release_file_memory();
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(begin[i], static_cast<std::byte>(i % 251)) << i;
  const std::byte other{};
  EXPECT_TRUE(lies_in_file(begin) && lies_in_file(begin + kBytes - 1));
  EXPECT_FALSE(lies_in_file(begin - 1) || lies_in_file(begin + kBytes) || lies_in_file(&other));
  free_in_file(begin);
  EXPECT_FALSE(lies_in_file(begin));
}

TEST(FileMemory, CopiesOfBytes) {
  const ScratchDirectory folder;
  const std::vector<std::byte> bytes(5000, std::byte{7});
  FileBytes copy(folder.path(), bytes), none(folder.path(), {});
  EXPECT_TRUE(std::ranges::equal(copy.span(), bytes) && lies_in_file(copy.span().data()));
  EXPECT_TRUE(none.span().empty());
  none = std::move(copy);
  EXPECT_TRUE(std::ranges::equal(none.span(), bytes));
}

TEST(FileMemory, SaysWhyThereIsNone) {
  const ScratchDirectory folder;
  expect_error(ErrorCode::out_of_memory, "nowhere",
               [&] { allocate_in_file(folder / "nowhere", 8); });
  expect_error(ErrorCode::out_of_memory, "1152921504606846976 bytes",
               [&] { allocate_in_file(folder.path(), size_t{1} << 60); });
}

}  // namespace
}  // namespace trafo
