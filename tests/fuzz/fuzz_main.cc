// libFuzzer's side: fuzz_targets --target=NAME [libFuzzer's flags and folders].
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
  constexpr std::string_view kFlag = "--target=";
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
