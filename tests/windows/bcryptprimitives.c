/* bcryptprimitives.dll of Windows 10, which the runtimes of Go and Rust take random bytes from and
 * which Wine lacks before version 9. tests/tools/windows.sh puts it into such a Wine. */
#include <stddef.h>
#include <windows.h>

#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(unsigned char* bytes, size_t count) {
  return RtlGenRandom(bytes, (ULONG)count);
}
