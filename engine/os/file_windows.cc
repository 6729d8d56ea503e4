#include "engine/os/file.h"

#include <fcntl.h>
#include <io.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "engine/os/process.h"
#include "engine/os/windows_calls.h"

namespace trafo::os {
namespace {

struct ErrorPair {
  DWORD system;
  int number;
};
constexpr ErrorPair kErrors[] = {
    {ERROR_FILE_NOT_FOUND, ENOENT},
    {ERROR_PATH_NOT_FOUND, ENOENT},
    {ERROR_INVALID_NAME, ENOENT},
    {ERROR_BAD_PATHNAME, ENOENT},
    {ERROR_BAD_NETPATH, ENOENT},
    {ERROR_INVALID_DRIVE, ENOENT},
    {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
    {ERROR_ACCESS_DENIED, EACCES},
    {ERROR_SHARING_VIOLATION, EACCES},
    {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
    {ERROR_IO_PENDING, EWOULDBLOCK},
    {ERROR_WRITE_PROTECT, EROFS},
    {ERROR_FILE_EXISTS, EEXIST},
    {ERROR_ALREADY_EXISTS, EEXIST},
    {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
    {ERROR_DIRECTORY, ENOTDIR},
    {ERROR_DISK_FULL, ENOSPC},
    {ERROR_HANDLE_DISK_FULL, ENOSPC},
    {ERROR_NOT_ENOUGH_QUOTA, ENOMEM},
    {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
    {ERROR_OUTOFMEMORY, ENOMEM},
    {ERROR_COMMITMENT_LIMIT, ENOMEM},
    {ERROR_NO_SYSTEM_RESOURCES, ENOMEM},
    {ERROR_INVALID_HANDLE, EBADF},
    {ERROR_BROKEN_PIPE, EPIPE},
    {ERROR_NO_DATA, EPIPE},
    {ERROR_NOT_SUPPORTED, ENOSYS},
    {ERROR_INVALID_FUNCTION, ENOSYS},
    {ERROR_CALL_NOT_IMPLEMENTED, ENOSYS},
    {ERROR_INVALID_PARAMETER, EINVAL},
    {ERROR_NOT_SAME_DEVICE, EXDEV},
    {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
    {ERROR_DELETE_PENDING, EACCES},
    {ERROR_CANT_RESOLVE_FILENAME, ELOOP},
};

constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

// Locks are for other programs of Trafo, and ranges that are locked cannot be read: this one is
// after the end of every file.
constexpr DWORD kLockOffsetHigh = 0x40000000;

// A descriptor above the standard streams that owns the handle.
int descriptor_of(HANDLE handle, int flags) noexcept {
  int low[kStandardError + 1], lows = 0;
  int file = _open_osfhandle(reinterpret_cast<intptr_t>(handle), flags | _O_BINARY | _O_NOINHERIT);
  if (file < 0) {
    const int reason = errno;
    CloseHandle(handle);
    errno = reason;
    return -1;
  }
  while (file >= 0 && file <= kStandardError) {
    low[lows++] = file;
    file = _dup(file);
  }
  const int reason = errno;
  for (int i = 0; i < lows; ++i) _close(low[i]);
  errno = reason;
  return file;
}

// Opens the link itself if the last part of the path is one.
HANDLE open_handle(const std::wstring& path, DWORD access, DWORD disposition, DWORD more) {
  return CreateFileW(path.c_str(), access, kShareAll, nullptr, disposition,
                     FILE_FLAG_BACKUP_SEMANTICS | more, nullptr);
}

bool is_link(const FILE_ATTRIBUTE_TAG_INFO& info) {
  return (info.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
         (info.ReparseTag == IO_REPARSE_TAG_SYMLINK ||
          info.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT);
}

bool link_of(HANDLE handle) {
  FILE_ATTRIBUTE_TAG_INFO info{};
  return GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &info, sizeof info) != 0 &&
         is_link(info);
}

bool directory_of(HANDLE handle) {
  BY_HANDLE_FILE_INFORMATION info{};
  return GetFileInformationByHandle(handle, &info) != 0 &&
         (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

DWORD access_of(Open how) {
  DWORD access = 0;
  if (has(how, Open::read)) access |= GENERIC_READ;
  if (has(how, Open::write)) access |= GENERIC_WRITE;
  return access;
}

DWORD disposition_of(Open how) {
  if (!has(how, Open::create)) return OPEN_EXISTING;
  return has(how, Open::exclusive) ? CREATE_NEW : OPEN_ALWAYS;
}

int read_status(HANDLE handle, FileStatus& status) noexcept {
  using Kind = FileStatus::Kind;
  BY_HANDLE_FILE_INFORMATION info{};
  const DWORD type = GetFileType(handle);
  if (type != FILE_TYPE_DISK) {
    status = {};
    return 0;
  }
  if (GetFileInformationByHandle(handle, &info) == 0) return fail_with_system_error(GetLastError());
  status.kind = link_of(handle)                                           ? Kind::link
                : (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? Kind::directory
                                                                          : Kind::regular;
  status.size = uint64_t{info.nFileSizeHigh} << 32 | info.nFileSizeLow;
  FILE_STANDARD_INFO standard{};
  const bool goes =
      GetFileInformationByHandleEx(handle, FileStandardInfo, &standard, sizeof standard) != 0 &&
      standard.DeletePending != 0;
  status.names = goes ? 0 : info.nNumberOfLinks;
  const uint64_t time =
      uint64_t{info.ftLastWriteTime.dwHighDateTime} << 32 | info.ftLastWriteTime.dwLowDateTime;
  status.modified_seconds = static_cast<int64_t>(time / 10'000'000);
  status.modified_nanoseconds = static_cast<int64_t>(time % 10'000'000) * 100;
  status.is_own = status.is_private = true;  // the folder's access list decides who may open it
  return 0;
}

int status_at(PathRef path, DWORD more, FileStatus& status) noexcept {
  return or_out_of_memory([&] {
    const HANDLE handle = open_handle(system_path(path), FILE_READ_ATTRIBUTES, OPEN_EXISTING, more);
    if (handle == INVALID_HANDLE_VALUE) return fail_with_system_error(GetLastError());
    const int result = read_status(handle, status);
    const int reason = errno;
    CloseHandle(handle);
    errno = reason;
    return result;
  });
}

DWORD transfer_size(size_t count) {
  return static_cast<DWORD>(std::min<size_t>(count, size_t{1} << 30));
}

}  // namespace

int fail_with_system_error(DWORD error) noexcept {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [&](const ErrorPair& each) { return each.system == error; });
  errno = found == std::end(kErrors) ? EIO : found->number;
  return -1;
}

std::wstring wide_text(const char* utf8) {
  const int count = MultiByteToWideChar(CP_UTF8, 0, utf8, -1, nullptr, 0);
  std::wstring wide(static_cast<size_t>(std::max(count, 1)), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, utf8, -1, wide.data(), count);
  wide.pop_back();
  return wide;
}

std::string utf8_text(const wchar_t* wide) {
  const int count = WideCharToMultiByte(CP_UTF8, 0, wide, -1, nullptr, 0, nullptr, nullptr);
  std::string text(static_cast<size_t>(std::max(count, 1)), '\0');
  WideCharToMultiByte(CP_UTF8, 0, wide, -1, text.data(), count, nullptr, nullptr);
  text.pop_back();
  return text;
}

std::wstring system_path(PathRef path) {
  constexpr size_t kLongest = 240;  // of MAX_PATH, with room for a name of 8.3 in a directory
  const std::wstring given = path.text() != nullptr ? wide_text(path.text()) : path.native();
  if (given.starts_with(L"\\\\?\\") || given.starts_with(L"\\\\.\\")) return given;
  const DWORD room = GetFullPathNameW(given.c_str(), 0, nullptr, nullptr);
  std::wstring full(room, L'\0');
  const DWORD count = room == 0 ? 0 : GetFullPathNameW(given.c_str(), room, full.data(), nullptr);
  full.resize(count);
  if (count < kLongest) return given;
  return full.starts_with(L"\\\\") ? L"\\\\?\\UNC\\" + full.substr(2) : L"\\\\?\\" + full;
}

HANDLE handle_of(int file) noexcept {
  return reinterpret_cast<HANDLE>(_get_osfhandle(file));
}

int open_file(PathRef path, Open how, NewFile) noexcept {
  return or_out_of_memory([&] {
    const std::wstring name = system_path(path);
    const DWORD more = has(how, Open::no_follow) ? FILE_FLAG_OPEN_REPARSE_POINT : 0;
    HANDLE handle = INVALID_HANDLE_VALUE;
    // Names of a directory are made durable through a handle that may add files.
    if (has(how, Open::directory))
      handle = open_handle(name, GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING, more);
    if (handle == INVALID_HANDLE_VALUE)
      handle = open_handle(name, access_of(how), disposition_of(how), more);
    if (handle == INVALID_HANDLE_VALUE) return fail_with_system_error(GetLastError());
    const bool is_directory = directory_of(handle);
    int error = 0;
    if (has(how, Open::no_follow) && link_of(handle))
      error = ELOOP;
    else if (has(how, Open::directory) && !is_directory)
      error = ENOTDIR;
    else if (is_directory && has(how, Open::write))
      error = EISDIR;
    if (error != 0) {
      CloseHandle(handle);
      errno = error;
      return -1;
    }
    return descriptor_of(handle, has(how, Open::append) ? _O_APPEND : 0);
  });
}

int open_nameless_file(const std::filesystem::path& prefix) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    uint64_t number = 0;
    random_bytes(&number, sizeof number);
    const std::wstring path = system_path(prefix) + std::to_wstring(number);
    const HANDLE handle =
        CreateFileW(path.c_str(), GENERIC_READ | GENERIC_WRITE | DELETE, kShareAll, nullptr,
                    CREATE_NEW, FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
    if (handle != INVALID_HANDLE_VALUE) return descriptor_of(handle, 0);
    if (GetLastError() != ERROR_FILE_EXISTS) break;
  }
  return fail_with_system_error(GetLastError());
}

int close_file(int file) noexcept {
  return _close(file);
}

int duplicate_file(int file) noexcept {
  HANDLE copy = nullptr;
  const HANDLE process = GetCurrentProcess();
  if (handle_of(file) == INVALID_HANDLE_VALUE) return -1;
  if (DuplicateHandle(process, handle_of(file), process, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS) ==
      0)
    return fail_with_system_error(GetLastError());
  return descriptor_of(copy, 0);
}

ptrdiff_t read_some(int file, void* bytes, size_t count) noexcept {
  DWORD done = 0;
  if (ReadFile(handle_of(file), bytes, transfer_size(count), &done, nullptr) != 0) return done;
  const DWORD error = GetLastError();
  if (error == ERROR_BROKEN_PIPE || error == ERROR_HANDLE_EOF) return 0;
  return fail_with_system_error(error);
}

ptrdiff_t read_at(int file, void* bytes, size_t count, uint64_t offset) noexcept {
  const HANDLE handle = handle_of(file);
  LARGE_INTEGER place{}, unused{};
  // The read moves the position, at which the next write would be.
  const bool has_place = SetFilePointerEx(handle, {}, &place, FILE_CURRENT) != 0;
  OVERLAPPED at{};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  DWORD done = 0;
  const bool read = ReadFile(handle, bytes, transfer_size(count), &done, &at) != 0;
  const DWORD error = read ? 0 : GetLastError();
  if (has_place) SetFilePointerEx(handle, place, &unused, FILE_BEGIN);
  if (!read && error != ERROR_HANDLE_EOF) return fail_with_system_error(error);
  return done;
}

ptrdiff_t write_some(int file, const void* bytes, size_t count) noexcept {
  return _write(file, bytes, transfer_size(count));
}

int wait_for_input(int file, int milliseconds) noexcept {
  const HANDLE handle = handle_of(file);
  const DWORD type = GetFileType(handle);
  if (type == FILE_TYPE_CHAR)
    return WaitForSingleObject(handle, static_cast<DWORD>(milliseconds)) == WAIT_OBJECT_0 ? 1 : 0;
  if (type != FILE_TYPE_PIPE) return 1;
  const ULONGLONG end = GetTickCount64() + static_cast<ULONGLONG>(std::max(milliseconds, 0));
  for (;;) {
    DWORD available = 0;
    // Without success the pipe has ended, which read_some() says.
    if (PeekNamedPipe(handle, nullptr, 0, nullptr, &available, nullptr) == 0 || available > 0)
      return 1;
    if (GetTickCount64() >= end) return 0;
    Sleep(1);
  }
}

int truncate_file(int file, uint64_t size) noexcept {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  const HANDLE handle = handle_of(file);
  if (SetFileInformationByHandle(handle, FileEndOfFileInfo, &end, sizeof end) == 0)
    return fail_with_system_error(GetLastError());
  return 0;
}

int seek_to_end(int file) noexcept {
  return _lseeki64(file, 0, SEEK_END) < 0 ? -1 : 0;
}

int sync_file(int file) noexcept {
  if (FlushFileBuffers(handle_of(file)) != 0) return 0;
  const DWORD error = GetLastError();
  // A directory of somebody else, or a file system whose directories cannot be flushed.
  if (directory_of(handle_of(file))) {
    errno = EINVAL;
    return -1;
  }
  return fail_with_system_error(error);
}

int lock_file(int file) noexcept {
  OVERLAPPED range{};
  range.OffsetHigh = kLockOffsetHigh;
  if (LockFileEx(handle_of(file), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
                 &range) != 0)
    return 0;
  const DWORD error = GetLastError();
  if (directory_of(handle_of(file))) {  // only files have locks
    errno = ENOSYS;
    return -1;
  }
  return fail_with_system_error(error);
}

int file_status(int file, FileStatus& status) noexcept {
  return read_status(handle_of(file), status);
}

int status_of(PathRef path, FileStatus& status) noexcept {
  return status_at(path, 0, status);
}

int link_status_of(PathRef path, FileStatus& status) noexcept {
  return status_at(path, FILE_FLAG_OPEN_REPARSE_POINT, status);
}

std::FILE* open_stream(PathRef path) noexcept {
  try {
    return _wfopen(system_path(path).c_str(), L"ab");
  } catch (...) {
    errno = ENOMEM;
    return nullptr;
  }
}

int empty_stream(std::FILE* stream) noexcept {
  const int file = _fileno(stream);
  const bool is_disk =
      GetFileType(reinterpret_cast<HANDLE>(_get_osfhandle(file))) == FILE_TYPE_DISK;
  return is_disk ? truncate_file(file, 0) : 0;
}

std::string read_system_file(const char*) {
  return {};
}

}  // namespace trafo::os
