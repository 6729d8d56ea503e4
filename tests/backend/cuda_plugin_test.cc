// Behaviour where CUDA is asked for and is not available. TRAFO_TEST_CUDA_PLUGIN names a built
// libtrafo_cuda.so for the test that needs one.
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/ops/op_kernel.h"
#include "tests/support/temporary_directory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace trafo {
namespace {

// Sets an environment variable, or removes it, for the life of the object.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~ScopedEnvironment() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// The error of asking for device cuda:`index`; none if there is one.
std::optional<Error> error_of_asking(int32_t index = 0) {
  try {
    (void)make_context({DeviceKind::cuda, index}, 1);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

void expect_says(const std::optional<Error>& error, ErrorCode code, const std::string& part) {
  ASSERT_TRUE(error.has_value()) << "there was no error";
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_NE(error->message().find(part), std::string::npos)
      << "\"" << error->message() << "\" does not say \"" << part << "\"";
}

TEST(CudaPlugin, ErrorNamesTheFileThatIsMissing) {
  const char* path = "/nonexistent/libtrafo_cuda.so";
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", path);
  const auto error = error_of_asking();
  expect_says(error, ErrorCode::unsupported, path);
  expect_says(error, ErrorCode::unsupported, "was not found; looked for");
  std::string why;
  EXPECT_TRUE(cuda_devices(&why).empty());
  EXPECT_NE(why.find(path), std::string::npos) << why;
}

TEST(CudaPlugin, LooksOnlyWhereTheVariablePoints) {
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", "/nonexistent/libtrafo_cuda.so");
  const auto error = error_of_asking();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message().find("\n  libtrafo_cuda.so"), std::string::npos) << error->message();
}

TEST(CudaPlugin, LooksBesideTheProgramAndOnTheLoadersPath) {
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", nullptr);
  const auto error = error_of_asking();
  if (!error || error->message().find("was not found") == std::string::npos)
    GTEST_SKIP() << "there is a plugin beside this program or on the loader's path";
  expect_says(error, ErrorCode::unsupported, "/libtrafo_cuda.so");     // beside: an absolute path
  expect_says(error, ErrorCode::unsupported, "\n  libtrafo_cuda.so");  // on the loader's path
}

TEST(CudaPlugin, AFileThatCannotBeLoadedIsNotCalledMissing) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("no_library.so");
  std::ofstream(path) << "not a library";
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", path.c_str());
  const auto error = error_of_asking();
  expect_says(error, ErrorCode::unsupported, "could not be loaded");
  expect_says(error, ErrorCode::unsupported, path);
  EXPECT_EQ(error->message().find("was not found"), std::string::npos) << error->message();
}

TEST(CudaPlugin, AnotherLibraryIsNotAPlugin) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&std::abort), &info), 0);
  const std::string library = std::filesystem::canonical(info.dli_fname).string();
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", library.c_str());
  expect_says(error_of_asking(), ErrorCode::unsupported, library + " is not a Trafo CUDA plugin");
}

TEST(CudaPlugin, TakesNoRelativePath) {
  for (const char* relative : {"libm.so.6", "./libtrafo_cuda.so", "build/libtrafo_cuda.so"}) {
    const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", relative);
    expect_says(error_of_asking(), ErrorCode::unsupported, "must be an absolute path");
  }
}

// Exit status of a test in a separate process. A process that ran no test ends with 0.
constexpr int kStartedTestPassed = 42;

// Not by a return: the leak sanitizer traces the process at its end, and may not do so in a process
// with more rights.
[[noreturn]] void end_started_test() {
  std::_Exit(::testing::Test::HasFailure() ? 1 : kStartedTestPassed);
}

// Makes a child process run this test alone, also where the tests are split into shards.
[[noreturn]] void start_test(const char* program, const char* name, const char* test) {
  unsetenv("GTEST_TOTAL_SHARDS");
  unsetenv("GTEST_SHARD_INDEX");
  execl(program, name, concat("--gtest_filter=", test).c_str(), nullptr);
  _exit(127);
}

// Run by the next test in another process.
TEST(CudaPlugin, IsNotLookedForInTheCurrentDirectory) {
  if (std::getenv("TRAFO_TEST_STARTED_BY_BARE_NAME") == nullptr)
    GTEST_SKIP() << "CudaPlugin.AProgramStartedByABareName starts this";
  const auto error = error_of_asking();
  ASSERT_TRUE(error.has_value());
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(error->message().find(here), std::string::npos) << error->message();
  end_started_test();
}

TEST(CudaPlugin, AProgramStartedByABareName) {
  {
    const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", nullptr);
    const auto error = error_of_asking();
    if (!error || error->message().find("was not found") == std::string::npos)
      GTEST_SKIP() << "there is a plugin beside this program or on the loader's path";
  }
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / concat("trafo_bare_name_", getpid());
  std::filesystem::create_directories(folder);
  // A file that the loader would take argv[0] for, with a library of a stranger beside it.
  std::ofstream(folder / "program") << "no program";
  std::ofstream(folder / "libtrafo_cuda.so") << "no library";
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("TRAFO_CUDA_LIBRARY");
    setenv("TRAFO_TEST_STARTED_BY_BARE_NAME", "1", 1);
    if (chdir(folder.c_str()) != 0) _exit(127);
    start_test("/proc/self/exe", "program", "CudaPlugin.IsNotLookedForInTheCurrentDirectory");
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kStartedTestPassed);
  std::filesystem::remove_all(folder);
}

// A copy of this program that belongs to somebody else and runs with his rights: the kernel says so
// to the loader (AT_SECURE, getauxval(3)), and the variable is not read.
TEST(CudaPlugin, AProgramWithMoreRightsIgnoresTheVariable) {
  constexpr const char* kStranger = "/nonexistent/stranger.so";
  constexpr int kNoMoreRights = 77;
  constexpr uid_t kSomebodyElse = 65534;
  if (std::getenv("TRAFO_TEST_WITH_MORE_RIGHTS") != nullptr) {
    if (getauxval(AT_SECURE) == 0) std::_Exit(kNoMoreRights);
    ASSERT_STREQ(std::getenv("TRAFO_CUDA_LIBRARY"), kStranger);
    const auto error = error_of_asking();
    EXPECT_TRUE(!error || error->message().find(kStranger) == std::string::npos)
        << error->message();
    end_started_test();
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / concat("trafo_more_rights_", getpid());
  std::filesystem::create_directories(folder);
  const std::string program = (folder / "program").string();
  std::filesystem::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chown(program.c_str(), kSomebodyElse, kSomebodyElse), 0);
  ASSERT_EQ(chmod(program.c_str(), S_ISUID | 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("TRAFO_CUDA_LIBRARY", kStranger, 1);
    setenv("TRAFO_TEST_WITH_MORE_RIGHTS", "1", 1);
    start_test(program.c_str(), program.c_str(),
               "CudaPlugin.AProgramWithMoreRightsIgnoresTheVariable");
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoMoreRights)
    GTEST_SKIP() << "this file system has no set-user-ID programs";
  EXPECT_EQ(WEXITSTATUS(status), kStartedTestPassed);
}

TEST(CudaPlugin, AnEmptyVariableIsNoName) {
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", "");
  const auto error = error_of_asking();
  if (error) {
    EXPECT_EQ(error->code(), ErrorCode::unsupported) << error->what();
    EXPECT_EQ(error->message().find("\n  :"), std::string::npos) << error->message();
  }
}

// The plugin itself. Without a GPU it loads and says that there is no driver or device; with one,
// a device that is not there is refused by number.
TEST(CudaPlugin, SaysWhichDeviceIsMissing) {
  const char* plugin = std::getenv("TRAFO_TEST_CUDA_PLUGIN");
  if (!plugin || !*plugin) GTEST_SKIP() << "TRAFO_TEST_CUDA_PLUGIN names no libtrafo_cuda.so";
  const ScopedEnvironment named("TRAFO_CUDA_LIBRARY", plugin);
  std::string why;
  const auto devices = cuda_devices(&why);
  if (devices.empty()) {
    EXPECT_TRUE(why.find("driver") != std::string::npos || why.find("device") != std::string::npos)
        << why;
    const auto error = error_of_asking();
    expect_says(error, ErrorCode::unsupported, "there is no CUDA device: " + why);
    expect_says(error, ErrorCode::unsupported, plugin);
  } else {
    EXPECT_GT(devices[0].memory_bytes, 0);
    const auto error = error_of_asking();
    EXPECT_FALSE(error.has_value()) << error->what();
    expect_says(error_of_asking(4096), ErrorCode::unsupported, "there is no device cuda:4096");
  }
}

}  // namespace
}  // namespace trafo
