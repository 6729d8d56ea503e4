#include "commands/compression/distill_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <sstream>

#include "commands/cli_error.h"
#include "engine/os/file.h"
#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

namespace os = trafo::os;

constexpr const char* kFormat = "translate-train distill 1";

// Also true of a symbolic link that points nowhere.
bool exists(const std::string& path) {
  os::FileStatus status;
  return os::link_status_of(path, status) == 0;
}

[[noreturn]] void failed(const std::string& path) {
  throw CliError(kFailed, path + ": " + std::strerror(errno));
}

int64_t size_of(int file, const std::string& path) {
  os::FileStatus status;
  if (os::file_status(file, status) != 0) failed(path);
  return static_cast<int64_t>(status.size);
}

void refuse_existing(const std::string& path) {
  if (exists(path)) usage_error(path + ": exists already");
}

// Without a journal, what has a text in it is from somebody else.
void refuse_foreign(const std::string& part, const std::string& journal) {
  os::FileStatus status;
  if (os::link_status_of(part, status) == 0 &&
      (status.kind != os::FileStatus::Kind::regular || status.size > 0))
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
  is_locked_ = os::lock_file(source_.file) == 0;
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
    if (os::truncate_file(part->file, static_cast<uint64_t>(part->bytes)) != 0 ||
        os::seek_to_end(part->file) != 0)
      failed(part->name + ".part");
  }
}

DistillFiles::Part::~Part() {
  if (file >= 0) os::close_file(file);
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
  part.file = os::open_file(
      path, os::Open::read_write | os::Open::create | os::Open::no_follow | os::Open::no_wait);
  if (part.file < 0) usage_error(path + ": " + std::strerror(errno));
  os::FileStatus status;
  if (os::file_status(part.file, status) != 0 || status.kind != os::FileStatus::Kind::regular ||
      status.names != 1)
    usage_error(path + ": exists already and is not from distill");
}

void DistillFiles::extend(Part& part, std::string_view lines) {
  const std::string packed = part.name.ends_with(".gz") ? gzip_of(lines) : std::string();
  std::string_view bytes = part.name.ends_with(".gz") ? std::string_view(packed) : lines;
  part.bytes += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ptrdiff_t count = os::write_some(part.file, bytes.data(), bytes.size());
    if (count < 0) failed(part.name + ".part");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  if (os::sync_file(part.file) != 0) failed(part.name + ".part");
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
  if (os::rename_new(from, part.name) == 0) return;
  if (errno == EEXIST) usage_error(part.name + ": exists already");
  if (!os::is_unsupported(errno)) failed(part.name);
  // A file system that cannot refuse by itself.
  refuse_existing(part.name);
  if (os::rename_replacing(from, part.name) != 0) failed(part.name);
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
  if (os::remove_file(journal_name()) != 0 && errno != ENOENT) failed(journal_name());
}

}  // namespace translate_train
