#include "commands/distill_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>

#include "commands/cli_error.h"
#include "run_dir/run_files.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

constexpr const char* kFormat = "translate-train distill 1";

// Also true of a symbolic link that points nowhere.
bool exists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

[[noreturn]] void failed(const std::string& path) {
  throw CliError(kFailed, path + ": " + std::strerror(errno));
}

int64_t size_of(int file, const std::string& path) {
  struct stat info {};
  if (fstat(file, &info) != 0) failed(path);
  return info.st_size;
}

void refuse_existing(const std::string& path) {
  if (exists(path)) usage_error(path + ": exists already");
}

// Without a journal, what has a text in it is from somebody else.
void refuse_foreign(const std::string& part, const std::string& journal) {
  struct stat info {};
  if (lstat(part.c_str(), &info) == 0 && (!S_ISREG(info.st_mode) || info.st_size > 0))
    usage_error(part + ": exists already, and there is no " + journal);
}

}  // namespace

void DistillFiles::check_names(const std::string& source, const std::string& target) {
  const std::string journal = target + ".journal";
  const std::set<std::string> names{source, target, source + ".part", target + ".part", journal};
  if (names.size() < 5)
    usage_error(
        fmt::format("{} and {} cannot be the two outputs: their names clash", source, target));
  if (exists(journal)) return;
  refuse_existing(source);
  refuse_existing(target);
  refuse_foreign(source + ".part", journal);
  refuse_foreign(target + ".part", journal);
}

DistillFiles::DistillFiles(std::string source, std::string target, const Json& settings) {
  source_.name = std::move(source);
  target_.name = std::move(target);
  check_names(source_.name, target_.name);
  const bool begun = read_journal();
  if (finished()) {
    check_settings(settings);
    return;
  }
  refuse_existing(source_.name);
  refuse_existing(target_.name);
  open(source_);
  is_locked_ = flock(source_.file, LOCK_EX | LOCK_NB) == 0;
  if (!is_locked_ && errno == EWOULDBLOCK)
    usage_error(source_part() + ": another process is writing it");
  open(target_);
  // Only now nobody else changes it.
  const bool resumed = read_journal();
  if (begun && !resumed) usage_error(journal_name() + ": another process removed it just now");
  if (!resumed) {
    check_names(source_.name, target_.name);
    journal_ = {{"format", kFormat}, {"settings", settings}, {"state", nullptr}};
    journal_["finished"] = false;
  }
  check_settings(settings);
  write_journal();
  for (Part* part : {&source_, &target_}) {
    if (size_of(part->file, part->name) < part->bytes)
      usage_error(fmt::format("{}.part: is shorter than {} says", part->name, journal_name()));
    if (ftruncate(part->file, part->bytes) != 0 || lseek(part->file, 0, SEEK_END) < 0)
      failed(part->name + ".part");
  }
}

DistillFiles::Part::~Part() {
  if (file >= 0) close(file);
}

bool DistillFiles::finished() const {
  return journal_.is_object() && journal_["finished"];
}

// False: there is none.
bool DistillFiles::read_journal() {
  const std::string name = journal_name();
  if (!exists(name)) return false;
  std::ifstream in = open_run_file(name);
  std::ostringstream text;
  text << in.rdbuf();
  try {
    journal_ = Json::parse(text.str());
    if (journal_.at("format") != kFormat || !journal_.at("settings").is_object() ||
        !journal_.at("finished").is_boolean())
      throw std::invalid_argument("another format");
    journal_.at("state");
    source_.bytes = journal_.at("source_bytes").get<int64_t>();
    target_.bytes = journal_.at("target_bytes").get<int64_t>();
  } catch (const std::exception&) {
    usage_error(name + ": is no journal of distill, or it is damaged");
  }
  if (source_.bytes < 0 || target_.bytes < 0)
    usage_error(name + ": is no journal of distill, or it is damaged");
  return true;
}

void DistillFiles::write_journal() {
  journal_["source_bytes"] = source_.bytes;
  journal_["target_bytes"] = target_.bytes;
  write_file(journal_name(), journal_.dump(1) + "\n");
}

// Another command may take over files to which nothing has been written yet.
void DistillFiles::check_settings(const Json& settings) {
  Json& begun = journal_["settings"];
  if (begun == settings) return;
  if (journal_["state"].is_null() && !finished()) {
    begun = settings;
    return;
  }
  for (const auto& [name, value] : settings.items())
    if (!begun.contains(name) || begun[name] != value)
      usage_error(fmt::format(
          "{}: {} was {} when this text was begun and is {} now; continue with the same, or remove "
          "the journal, {} and {}",
          journal_name(), name, begun.contains(name) ? begun[name].dump() : "not given",
          value.dump(), source_part(), target_part()));
  usage_error(journal_name() + ": was begun with settings that are not given now");
}

void DistillFiles::open(Part& part) {
  const std::string path = part.name + ".part";
  // O_NONBLOCK: opening a FIFO must not wait for its reader.
  part.file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (part.file < 0) usage_error(path + ": " + std::strerror(errno));
  struct stat info {};
  if (fstat(part.file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1)
    usage_error(path + ": exists already and is not from distill");
}

void DistillFiles::extend(Part& part, std::string_view lines) {
  const std::string packed = part.name.ends_with(".gz") ? gzip_of(lines) : std::string();
  std::string_view bytes = part.name.ends_with(".gz") ? std::string_view(packed) : lines;
  part.bytes += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t count = write(part.file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed(part.name + ".part");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  if (fsync(part.file) != 0) failed(part.name + ".part");
}

void DistillFiles::append(std::string_view source_lines, std::string_view target_lines,
                          Json state) {
  if (!source_lines.empty()) {
    extend(source_, source_lines);
    extend(target_, target_lines);
  }
  journal_["state"] = std::move(state);
  write_journal();
}

// Does nothing if an earlier process did it.
void DistillFiles::publish(Part& part) {
  const std::string from = part.name + ".part";
  if (!exists(from) && exists(part.name)) return;
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, part.name.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) usage_error(part.name + ": exists already");
  if (errno != EINVAL && errno != ENOSYS) failed(part.name);
  // A file system that cannot refuse by itself.
  refuse_existing(part.name);
  if (std::rename(from.c_str(), part.name.c_str()) != 0) failed(part.name);
}

void DistillFiles::finish() {
  if (!finished()) {
    // A gzip file without lines has a header nevertheless.
    for (Part* part : {&source_, &target_})
      if (part->bytes == 0 && part->name.ends_with(".gz")) extend(*part, "");
    journal_["finished"] = true;
    write_journal();
  }
  publish(source_);
  publish(target_);
  if (unlink(journal_name().c_str()) != 0 && errno != ENOENT) failed(journal_name());
}

}  // namespace translate_train
