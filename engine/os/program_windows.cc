#include "engine/os/program.h"

#include <fcntl.h>
#include <io.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/os/windows_calls.h"

#include <shellapi.h>

namespace trafo::os {
namespace {

void use_utf8_arguments(int& count, char**& arguments) {
  int words = 0;
  wchar_t** const wide = CommandLineToArgvW(GetCommandLineW(), &words);
  if (wide == nullptr) return;
  static std::vector<std::string> texts;  // for the life of the process
  static std::vector<char*> pointers;
  for (int i = 0; i < words; ++i) texts.push_back(utf8_text(wide[i]));
  LocalFree(wide);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  count = words;
  arguments = pointers.data();
}

}  // namespace

void prepare_program(int& count, char**& arguments) {
  int file = 0;
  do file = _wopen(L"NUL", _O_RDWR | _O_NOINHERIT);
  while (file >= 0 && file <= 2);
  if (file >= 0) _close(file);
  for (std::FILE* stream : {stdin, stdout, stderr}) _setmode(_fileno(stream), _O_BINARY);
  SetConsoleOutputCP(CP_UTF8);
  SetConsoleCP(CP_UTF8);
  use_utf8_arguments(count, arguments);
}

}  // namespace trafo::os
