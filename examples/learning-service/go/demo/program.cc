// The program of examples/demo as a function.
#define main demo_program
#include "../../../demo/main.cc"
#undef main

#include <exception>

extern "C" int demo_write(char* folder) try {
  char name[] = "demo-corpus";
  char* arguments[] = {name, folder, nullptr};
  return demo_program(2, arguments);
} catch (const std::exception& error) {
  std::cerr << "demo-corpus: " << error.what() << '\n';
  return 1;
}
