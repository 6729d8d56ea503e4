/* interrupt FILE PROGRAM ARGUMENTS...: starts a program in its own console, waits until FILE
 * exists, and presses Ctrl-C there. Exits with the program's exit code. */
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

int wmain(int count, wchar_t** words) {
  if (count < 3) return 100;
  /* The arguments of the program are the rest of the own command line. */
  const wchar_t* line = GetCommandLineW();
  wchar_t* rest = wcsstr(line, words[2]);
  if (rest == NULL) return 100;
  if (rest > line && rest[-1] == L'"') --rest;
  FreeConsole();
  if (!AllocConsole()) return 101;
  STARTUPINFOW start;
  ZeroMemory(&start, sizeof start);
  start.cb = sizeof start;
  PROCESS_INFORMATION process;
  if (!CreateProcessW(NULL, rest, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process)) return 102;
  SetConsoleCtrlHandler(NULL, TRUE); /* after the start: the program would inherit it */
  for (int i = 0; i < 1200 && GetFileAttributesW(words[1]) == INVALID_FILE_ATTRIBUTES; ++i) {
    if (WaitForSingleObject(process.hProcess, 100) != WAIT_TIMEOUT) return 103;
  }
  if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)) return 104;
  if (WaitForSingleObject(process.hProcess, 120000) != WAIT_OBJECT_0) return 105;
  DWORD code = 106;
  GetExitCodeProcess(process.hProcess, &code);
  return (int)code;
}
