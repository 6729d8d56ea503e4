#include "engine/os/names.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/os/windows_calls.h"

namespace trafo::os {
namespace {

constexpr DWORD kShareNames = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

// Flags of the classes FileRenameInfoEx (22) and FileDispositionInfoEx (21), which old headers
// lack.
constexpr auto kRenameInfoEx = static_cast<FILE_INFO_BY_HANDLE_CLASS>(22);
constexpr auto kDispositionInfoEx = static_cast<FILE_INFO_BY_HANDLE_CLASS>(21);
constexpr DWORD kReplaceIfExists = 1, kRenamePosix = 2;
constexpr DWORD kDelete = 1, kDeletePosix = 2, kDeleteReadOnly = 16;

class Handle {
 public:
  Handle(const std::wstring& path, DWORD access)
      : handle_(CreateFileW(path.c_str(), access, kShareNames, nullptr, OPEN_EXISTING,
                            FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, nullptr)) {}
  ~Handle() {
    if (is_open()) CloseHandle(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  bool is_open() const { return handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

// As POSIX renames: also over a file that somebody has open. False: this system cannot.
bool rename_posix(const std::wstring& from, const std::wstring& to) {
  const Handle file(from, DELETE | SYNCHRONIZE);
  if (!file.is_open()) return false;
  struct Info {  // FILE_RENAME_INFO with flags
    DWORD flags;
    HANDLE root;
    DWORD name_bytes;
    wchar_t name[1];
  };
  const size_t bytes = to.size() * sizeof(wchar_t);
  std::vector<unsigned char> room(sizeof(Info) + bytes);
  auto* info = reinterpret_cast<Info*>(room.data());
  info->flags = kReplaceIfExists | kRenamePosix;
  info->name_bytes = static_cast<DWORD>(bytes);
  std::memcpy(info->name, to.c_str(), bytes);
  return SetFileInformationByHandle(file.get(), kRenameInfoEx, info,
                                    static_cast<DWORD>(room.size())) != 0;
}

std::wstring absolute_path(const std::wstring& path) {
  const DWORD room = GetFullPathNameW(path.c_str(), 0, nullptr, nullptr);
  std::wstring full(room, L'\0');
  full.resize(GetFullPathNameW(path.c_str(), room, full.data(), nullptr));
  return full;
}

int remove_path(const std::wstring& path, bool directory) {
  {
    const Handle file(path, DELETE | SYNCHRONIZE);
    if (!file.is_open()) return fail_with_system_error(GetLastError());
    BY_HANDLE_FILE_INFORMATION info{};
    if (GetFileInformationByHandle(file.get(), &info) != 0) {
      const bool is_directory = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
      const bool is_link = (info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0;
      if (directory != is_directory && !is_link) {
        errno = directory ? ENOTDIR : EISDIR;
        return -1;
      }
      directory = is_directory;
    }
    // The name is gone at once, also if somebody has the file open.
    DWORD flags = kDelete | kDeletePosix | kDeleteReadOnly;
    if (SetFileInformationByHandle(file.get(), kDispositionInfoEx, &flags, sizeof flags) != 0)
      return 0;
    if (GetLastError() == ERROR_DIR_NOT_EMPTY) return fail_with_system_error(ERROR_DIR_NOT_EMPTY);
  }
  const BOOL removed = directory ? RemoveDirectoryW(path.c_str()) : DeleteFileW(path.c_str());
  return removed != 0 ? 0 : fail_with_system_error(GetLastError());
}

int remove_path_tree(const std::wstring& path) {
  const DWORD attributes = GetFileAttributesW(path.c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) {
    fail_with_system_error(GetLastError());
    return errno == ENOENT ? 0 : -1;
  }
  const bool is_folder = (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 &&
                         (attributes & FILE_ATTRIBUTE_REPARSE_POINT) == 0;
  if (is_folder) {
    WIN32_FIND_DATAW entry;
    const HANDLE search = FindFirstFileW((path + L"\\*").c_str(), &entry);
    if (search == INVALID_HANDLE_VALUE) return fail_with_system_error(GetLastError());
    int result = 0;
    do {
      const std::wstring_view name = entry.cFileName;
      if (name == L"." || name == L"..") continue;
      result = remove_path_tree(system_path(std::filesystem::path(path) / name));
    } while (result == 0 && FindNextFileW(search, &entry) != 0);
    const int reason = errno;
    FindClose(search);
    errno = reason;
    if (result != 0) return -1;
  }
  return remove_path(path, is_folder);
}

struct Search {
  HANDLE handle = INVALID_HANDLE_VALUE;
  WIN32_FIND_DATAW entry{};
  bool has_entry = false;
};

}  // namespace

std::filesystem::path path_of(const std::string& text) {
  return wide_text(text.c_str());
}

int rename_replacing(PathRef from, PathRef to) noexcept {
  return or_out_of_memory([&] {
    const std::wstring old_name = system_path(from), new_name = system_path(to);
    // An empty directory is replaced, and no other.
    const DWORD target = GetFileAttributesW(new_name.c_str());
    const bool replaces_folder =
        target != INVALID_FILE_ATTRIBUTES && (target & FILE_ATTRIBUTE_DIRECTORY) != 0;
    const DWORD source = GetFileAttributesW(old_name.c_str());
    if (source == INVALID_FILE_ATTRIBUTES) return fail_with_system_error(GetLastError());
    const bool is_folder = (source & FILE_ATTRIBUTE_DIRECTORY) != 0;
    if (replaces_folder && !is_folder) {
      errno = EISDIR;
      return -1;
    }
    if (replaces_folder && RemoveDirectoryW(new_name.c_str()) == 0)
      return fail_with_system_error(GetLastError());
    if (rename_posix(old_name, absolute_path(new_name))) return 0;
    if (MoveFileExW(old_name.c_str(), new_name.c_str(),
                    MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) != 0)
      return 0;
    return fail_with_system_error(GetLastError());
  });
}

int rename_new(PathRef from, PathRef to) noexcept {
  return or_out_of_memory([&] {
    if (MoveFileExW(system_path(from).c_str(), system_path(to).c_str(), MOVEFILE_WRITE_THROUGH) !=
        0)
      return 0;
    return fail_with_system_error(GetLastError());
  });
}

int remove_file(PathRef path) noexcept {
  return or_out_of_memory([&] { return remove_path(system_path(path), false); });
}

int make_directory(PathRef path) noexcept {
  return or_out_of_memory([&] {
    if (CreateDirectoryW(system_path(path).c_str(), nullptr) != 0) return 0;
    return fail_with_system_error(GetLastError());
  });
}

int remove_directory(PathRef path) noexcept {
  return or_out_of_memory([&] { return remove_path(system_path(path), true); });
}

int remove_tree(PathRef path) noexcept {
  return or_out_of_memory([&] { return remove_path_tree(system_path(path)); });
}

DirectoryReader::DirectoryReader(PathRef path) noexcept : state_(nullptr) {
  or_out_of_memory([&] {
    const std::wstring folder = system_path(path);
    const DWORD attributes = GetFileAttributesW(folder.c_str());
    if (attributes == INVALID_FILE_ATTRIBUTES) return fail_with_system_error(GetLastError());
    if ((attributes & FILE_ATTRIBUTE_DIRECTORY) == 0) {
      errno = ENOTDIR;
      return -1;
    }
    auto search = std::make_unique<Search>();
    const std::wstring all =
        folder + (folder.ends_with(L'\\') || folder.ends_with(L'/') ? L"*" : L"\\*");
    search->handle = FindFirstFileW(all.c_str(), &search->entry);
    if (search->handle == INVALID_HANDLE_VALUE && GetLastError() != ERROR_FILE_NOT_FOUND)
      return fail_with_system_error(GetLastError());
    search->has_entry = search->handle != INVALID_HANDLE_VALUE;
    state_ = search.release();
    return 0;
  });
}

DirectoryReader::~DirectoryReader() {
  auto* search = static_cast<Search*>(state_);
  if (search == nullptr) return;
  if (search->handle != INVALID_HANDLE_VALUE) FindClose(search->handle);
  delete search;
}

bool DirectoryReader::next(std::string& name) {
  Search& search = *static_cast<Search*>(state_);
  while (search.has_entry) {
    name = utf8_text(search.entry.cFileName);
    search.has_entry = FindNextFileW(search.handle, &search.entry) != 0;
    if (!search.has_entry && GetLastError() != ERROR_NO_MORE_FILES) {
      fail_with_system_error(GetLastError());
      return false;
    }
    if (name != "." && name != "..") return true;
  }
  errno = 0;
  return false;
}

bool can_read(PathRef path) noexcept {
  return or_out_of_memory([&] {
           const Handle file(system_path(path), GENERIC_READ);
           return file.is_open() ? 0 : fail_with_system_error(GetLastError());
         }) == 0;
}

bool can_make_files_in(PathRef folder) noexcept {
  return or_out_of_memory([&] {
           const Handle file(system_path(folder), FILE_ADD_FILE);
           return file.is_open() ? 0 : fail_with_system_error(GetLastError());
         }) == 0;
}

}  // namespace trafo::os
