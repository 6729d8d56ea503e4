// The steps of steps.js on this machine: native OUT PAIRS LINES THREADS narrow|wide
// narrow: with the vectors of WebAssembly, which have 128 bits and no fused multiply-add.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "hwy/highway.h"

extern "C" {
#include "examples/browser/engine.h"
}

namespace {

std::string losses;

[[noreturn]] void end(const std::string& why) {
  std::fprintf(stderr, "native: %s\n", why.c_str());
  std::exit(1);
}

void must(int status) {
  if (status != 0) end(page_error());
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) end(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Call>
double seconds(Call call) {
  const auto begin = std::chrono::steady_clock::now();
  must(call());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

extern "C" void page_event(double update, double loss) {
  char text[32];  // as JavaScript writes it
  losses += std::to_string(static_cast<int>(update)) + ' ';
  losses.append(text, std::to_chars(text, text + sizeof text, loss).ptr) += '\n';
}

int main(int count, char** arguments) {
  if (count != 6) end("usage: native OUT PAIRS LINES THREADS narrow|wide");
  const std::string out = arguments[1], pairs = arguments[2], kind = arguments[5];
  const int threads = std::atoi(arguments[4]);
  if (kind == "narrow") hwy::DisableTargets(~int64_t{HWY_SSE4 | HWY_SSSE3});
  for (const char* folder : {"model", "whole"}) {
    std::filesystem::create_directories(out + "/" + folder);
    must(page_create((out + "/" + folder).c_str(), pairs.c_str(), 200, threads));
  }
  const auto train = [&](const char* folder, const char* run, int updates) {
    return page_train((out + "/" + folder).c_str(), pairs.c_str(), (out + "/" + run).c_str(),
                      updates, 0.005, threads);
  };
  must(train("model", "run", 20));
  must(train("model", "run", 40));
  const std::string cut = losses;
  losses.clear();
  const double trained = seconds([&] { return train("whole", "whole_run", 40); });
  if (losses != cut) end("a run in two parts has other losses than a run in one");
  const std::string text = content(arguments[3]);
  for (const int beam : {1, 4}) {
    const auto translate = [&] {
      return page_translate((out + "/model").c_str(), text.c_str(), beam, threads);
    };
    must(translate());
    const double spent = seconds(translate);
    std::ofstream(out + "/beam" + std::to_string(beam) + ".txt", std::ios::binary) << page_output();
    std::printf("beam %d: %.0f tokens/s\n", beam, page_output_tokens() / spent);
  }
  std::printf("training: %.1f updates/s\n", 40 / trained);
  std::ofstream(out + "/losses.txt", std::ios::binary) << losses;
  return 0;
}
