#include "engine/interop/interop.h"

#include <fcntl.h>

#include "engine/interop/directory.h"
#include "engine/interop/formats.h"
#include "engine/io/atomic_file.h"
#include "engine/io/descriptor.h"
#include "engine/io/file_system.h"
#include "engine/io/temporary_name.h"

namespace trafo {
namespace {

using interop::HostModel;
using interop::kOrigin;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;

// A temporary directory beside the target. It is removed unless publish() renames it.
class UnfinishedDirectory {
 public:
  explicit UnfinishedDirectory(const fs::path& target) : target_(target) {
    if (target_.filename().empty()) target_ = target_.parent_path();  // "DIR/"
    require(!target_.filename().empty() && target_.filename() != "." && target_.filename() != "..",
            ErrorCode::invalid_argument, kOrigin, "'", target.string(),
            "' is not the name of a new directory");
    std::error_code error;
    const fs::file_status status = fs::symlink_status(target_, error);
    if (fs::exists(status))
      require(fs::is_directory(status) && list_directory(target_).empty(),
              ErrorCode::invalid_argument, kOrigin, target_.string(),
              " exists and is not an empty directory");
    const fs::path parent = target_.parent_path().empty() ? fs::path(".") : target_.parent_path();
    ensure_directory(parent);
    remove_stale_temporaries(target_);
    path_ = parent / temporary_file_name(target_.filename().string());  // unique
    make_new_directory(path_);
    try {
      lock_ = lock_temporary(try_open(path_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    } catch (...) {
      file_system::remove_tree(path_.c_str());
      throw;
    }
  }
  ~UnfinishedDirectory() {
    if (!published_) file_system::remove_tree(path_.c_str());
  }
  UnfinishedDirectory(const UnfinishedDirectory&) = delete;
  UnfinishedDirectory& operator=(const UnfinishedDirectory&) = delete;

  const fs::path& path() const { return path_; }
  void publish() {
    sync_directory(path_);
    rename_path(path_, target_);  // replaces an empty directory
    published_ = true;
    sync_directory(target_.parent_path().empty() ? fs::path(".") : target_.parent_path());
  }

 private:
  fs::path target_, path_;
  Descriptor lock_;  // see lock_temporary()
  bool published_ = false;
};

// The formats. A new one is a row here and a value of ExportFormat.
struct FormatEntry {
  ExportFormat format;
  const char* name;
  void (*write)(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory);
  // The model that was written, read from the files. `config` is that of the model.
  HostModel (*read)(const ModelConfig& config, const fs::path& directory);
};

template <interop::Imported (*Read)(const fs::path&)>
HostModel read_imported(const ModelConfig&, const fs::path& directory) {
  return Read(directory).host;
}

constexpr FormatEntry kFormats[] = {
    {ExportFormat::hf_marian, "hf-marian", interop::write_marian,
     read_imported<interop::read_marian>},
    {ExportFormat::hf_gpt2, "hf-gpt2", interop::write_gpt2, read_imported<interop::read_gpt2>},
    {ExportFormat::ctranslate2, "ctranslate2", interop::write_ctranslate2,
     interop::read_back_ctranslate2},
    {ExportFormat::hf_llama, "hf-llama", interop::write_llama, read_imported<interop::read_llama>},
    {ExportFormat::onnx, "onnx", interop::write_onnx, interop::read_back_onnx},
};

const FormatEntry* find_format(ExportFormat format) {
  for (const FormatEntry& entry : kFormats)
    if (entry.format == format) return &entry;
  return nullptr;
}

}  // namespace

const char* export_format_name(ExportFormat format) {
  const FormatEntry* entry = find_format(format);
  return entry == nullptr ? "unknown" : entry->name;
}

double export_model(Context& context, const Model& model, const Tokenizer& tokenizer,
                    ExportFormat format, const fs::path& directory) {
  const FormatEntry* entry = find_format(format);
  require(entry != nullptr, ErrorCode::invalid_argument, kOrigin, "unknown format ",
          static_cast<int32_t>(format));
  interop::check_vocabulary(model.config(), tokenizer);
  const HostModel host = interop::copy_to_host(context, model);
  UnfinishedDirectory unfinished(directory);
  entry->write(host, tokenizer, unfinished.path());
  const HostModel again = entry->read(host.config(), unfinished.path());
  const double difference = interop::logit_difference(host, again);
  require(difference <= kTolerance, ErrorCode::non_finite, kOrigin, "what was written as ",
          entry->name, " gives logits that differ from the model's by ", difference,
          "; nothing is left of it");
  unfinished.publish();
  return difference;
}

ImportedModel import_model(Context& context, const fs::path& directory) {
  const interop::ConfigReader config(directory / "config.json");
  const std::string type = config.text("model_type");
  require(type == "marian" || type == "gpt2" || type == "llama", ErrorCode::unsupported, kOrigin,
          config.label(), ": model_type is ", type.substr(0, 64),
          "; marian, gpt2 and llama can be imported");
  interop::Imported imported = type == "marian" ? interop::read_marian(directory)
                               : type == "gpt2" ? interop::read_gpt2(directory)
                                                : interop::read_llama(directory);
  return {interop::copy_from_host(context, imported.host), std::move(imported.tokenizer),
          std::move(imported.note)};
}

}  // namespace trafo
