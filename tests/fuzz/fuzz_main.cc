// libFuzzer's side: fuzz_targets --target=NAME [libFuzzer's flags and folders]. A program named
// fuzz_NAME needs no flag: fuzzing services start one program a target, without arguments of ours.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

namespace {
const trafo::fuzz::Target* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kFlag = "--target=", kPrefix = "fuzz_";
  std::string_view program = (*argv)[0];
  program.remove_prefix(program.rfind('/') + 1);  // npos + 1 is 0
  if (program.starts_with(kPrefix))
    chosen = trafo::fuzz::find_target(program.substr(kPrefix.size()));
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(kFlag))
      chosen = trafo::fuzz::find_target(argument.substr(kFlag.size()));
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "usage: fuzz_targets --target=NAME ...; the names are in targets.cc\n");
    std::exit(2);
  }
  chosen->seeds();  // makes what targets keep, which is no part of any input's time
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
