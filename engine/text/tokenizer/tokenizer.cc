#include "engine/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "engine/core/argument_error.h"
#include "engine/core/limits.h"
#include "engine/core/open_error.h"
#include "engine/core/status.h"
#include "engine/core/strings/quote.h"
#include "engine/core/strings/utf8.h"
#include "engine/os/file.h"
#include "engine/text/tokenizer/check_text.h"
#include "engine/text/tokenizer/marked_tokens.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"

namespace trafo {
namespace {

struct FileToRead {
  explicit FileToRead(const std::string& name) : fd(os::open_file(name, os::Open::read)) {
    if (fd < 0) fail_to_open(kTokenizerOrigin, name, errno);
  }
  ~FileToRead() { os::close_file(fd); }
  FileToRead(const FileToRead&) = delete;
  FileToRead& operator=(const FileToRead&) = delete;

  const int fd;
};

std::string read_vocabulary(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  require(!std::filesystem::is_directory(status), ErrorCode::invalid_argument, kTokenizerOrigin,
          name, ": is a directory");
  require(!std::filesystem::is_character_file(status) && !std::filesystem::is_block_file(status) &&
              !std::filesystem::is_socket(status),
          ErrorCode::invalid_argument, kTokenizerOrigin, name, ": is no regular file and no pipe");
  const auto check_size = [&](uint64_t bytes) {
    require(bytes <= limits::kTokenizerBytes, ErrorCode::corrupt_file, kTokenizerOrigin, name,
            ": not a usable vocabulary: it has more than ", limits::kTokenizerBytes, " bytes");
  };
  if (std::filesystem::is_regular_file(status))
    if (const auto size = std::filesystem::file_size(file, error); !error) check_size(size);
  const FileToRead stream(name);
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ptrdiff_t count = os::read_some(stream.fd, buffer, sizeof buffer);
    require(count >= 0, ErrorCode::io, kTokenizerOrigin, name,
            ": cannot be read: ", std::strerror(errno));
    if (count == 0) break;
    bytes.append(buffer, static_cast<size_t>(count));
    check_size(bytes.size());
  }
  return bytes;
}

}  // namespace

void check_text(std::string_view text, std::string_view what) {
  const size_t bad = find_invalid_utf8(text);
  require(bad == kValidUtf8, ErrorCode::invalid_argument, kTokenizerOrigin, what,
          ": invalid UTF-8 at byte ", bad + 1);
  require(text.find('\0') == std::string_view::npos, ErrorCode::invalid_argument, kTokenizerOrigin,
          what, ": NUL byte");
}

Tokenizer::Tokenizer(std::shared_ptr<const Model> model)
    : model_(std::move(model)),
      source_language_(model_->text_begin()),
      target_language_(model_->text_begin()) {}

Tokenizer Tokenizer::train(std::span<const std::string> sentences,
                           const TokenizerTrainOptions& options) {
  const std::vector<std::string_view> views(sentences.begin(), sentences.end());
  return train(std::span<const std::string_view>(views), options);
}

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::path found =
      std::filesystem::is_directory(file, error) ? vocabulary_file(file) : file;
  std::vector<CompanionFile> companions;
  for (const TokenizerKind& kind : tokenizer_kinds()) {
    if (found.filename() != kind.file) continue;
    for (const std::string_view name : kind.companions) {
      const std::filesystem::path path = found.parent_path() / name;
      if (std::filesystem::exists(path, error))
        companions.push_back({std::string(name), read_vocabulary(path), path.string()});
    }
    break;  // kinds with files of this name have the same companions
  }
  return from_bytes(read_vocabulary(found), found.string(), std::move(companions));
}

std::string_view Tokenizer::kind() const noexcept {
  return model_->kind();
}

const std::string& Tokenizer::serialized() const noexcept {
  return model_->serialized();
}

const std::vector<CompanionFile>& Tokenizer::companions() const noexcept {
  return companions_ ? *companions_ : model_->companions();
}

Tokenizer Tokenizer::with_companion(CompanionFile file) const {
  std::vector<CompanionFile> files = companions();
  std::erase_if(files, [&](const CompanionFile& old) { return old.name == file.name; });
  files.push_back(std::move(file));
  Tokenizer changed = *this;
  changed.companions_ = std::make_shared<const std::vector<CompanionFile>>(std::move(files));
  return changed;
}

// The special tokens that texts may name.
struct Tokenizer::SpecialNames {
  NamedTokens names;
  std::shared_ptr<const Model> rest;  // Model::after_special(); may be null

  // Replaces ids by those of the parts of a text. encode(is_rest, text, part_ids) encodes a part
  // with the model or, after a special token, with `rest`.
  template <class Encode>
  void encode(const Model& model, std::string_view text, std::vector<int32_t>& ids,
              Encode&& encode_part) const {
    ids.clear();
    std::vector<int32_t> part_ids;
    bool follows = false;
    for (const NamedTokens::Part& part : names.split(text)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        follows = true;
        continue;
      }
      encode_part(follows && rest != nullptr && !model.begins_anew(part.text), part.text, part_ids);
      ids.insert(ids.end(), part_ids.begin(), part_ids.end());
    }
  }
};

Tokenizer Tokenizer::parsing_special() const {
  Tokenizer parsing = *this;
  parsing.special_ = std::make_shared<const SpecialNames>(
      SpecialNames{NamedTokens(model_->special_names()), model_->after_special()});
  return parsing;
}

Tokenizer Tokenizer::for_targets() const {
  Tokenizer targets = *this;
  if (const std::shared_ptr<const Model> model = model_->for_targets()) {
    targets.model_ = model;
    if (special_) targets = targets.parsing_special();
  }
  targets.of_targets_ = true;
  return targets;
}

Tokenizer Tokenizer::for_sources() const {
  Tokenizer sources = *this;
  if (const std::shared_ptr<const Model> model = model_->for_sources()) sources.model_ = model;
  return sources;
}

int32_t Tokenizer::source_vocab_size() const noexcept {
  const std::shared_ptr<const Model> sources = model_->for_sources();
  return sources ? sources->vocab_size() : vocab_size();
}

bool Tokenizer::has_separate_sources() const noexcept {
  return model_->for_sources() != nullptr;
}

std::vector<std::string> Tokenizer::languages() const {
  const auto [bos, eos, pad, unk] = special_tokens();
  std::vector<std::string> names;
  for (NamedToken& token : model_->special_names())
    if (token.is_special && !token.name.starts_with('<') && token.id != bos && token.id != eos &&
        token.id != pad && token.id != unk)
      names.push_back(std::move(token.name));
  return names;
}

Tokenizer Tokenizer::with_languages(std::string_view source, std::string_view target) const {
  const std::vector<std::string> known = languages();
  const auto find = [&](std::string_view code, const char* argument) {
    for (const std::string& name : {std::string(code), concat("__", code, "__")})
      if (std::find(known.begin(), known.end(), name) != known.end()) return id(name);
    constexpr size_t kShown = 8;
    std::string some;
    for (size_t i = 0; i < std::min(known.size(), kShown); ++i)
      some.append(i == 0 ? "" : ", ").append(known[i]);
    refuse_argument(kTokenizerOrigin, argument, " is ", quote(code.substr(0, 64)),
                    known.empty()
                        ? ", and the vocabulary has no languages"
                        : concat(", the vocabulary has ", known.size(), " languages: ", some,
                                 known.size() > kShown ? ", ..." : ""));
  };
  Tokenizer chosen = *this;
  chosen.source_language_ = find(source, "source_language");
  chosen.target_language_ = find(target, "target_language");
  return chosen;
}

void Tokenizer::add_language(std::vector<int32_t>& ids) const {
  if (language() >= 0 && (of_targets_ || !ids.empty())) ids.insert(ids.begin(), language());
}

uint64_t Tokenizer::reading() const noexcept {
  const auto number = [](int32_t id) { return static_cast<uint64_t>(id + 1); };
  return (parses_special() ? 1 : 0) + 2 * number(source_language_) +
         (number(target_language_) << 32);
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_text(text, "text to encode");
  if (special_)
    special_->encode(*model_, text, ids,
                     [&](bool is_rest, std::string_view part, std::vector<int32_t>& part_ids) {
                       (is_rest ? *special_->rest : *model_).encode_part(part, part_ids);
                     });
  else
    model_->encode(text, ids);
  add_language(ids);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < vocab_size(), ErrorCode::invalid_argument, kTokenizerOrigin,
            "token ", i, " is ", ids[i], ", the vocabulary has ", vocab_size(), " tokens");
  return model_->decode(ids);
}

std::string Tokenizer::continuation(std::span<const int32_t> before,
                                    std::span<const int32_t> ids) const {
  std::vector<int32_t> whole(before.begin(), before.end());
  whole.insert(whole.end(), ids.begin(), ids.end());
  const std::string begin = decode(before), text = decode(whole);
  return text.starts_with(begin) ? text.substr(begin.size()) : decode(ids);
}

size_t Tokenizer::open_tail(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) model_->check_id(id);
  return model_->open_tail(ids);
}

int32_t Tokenizer::vocab_size() const noexcept {
  return model_->vocab_size();
}

const std::string& Tokenizer::token(int32_t id) const {
  model_->check_id(id);
  return model_->token(id);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  model_->check_id(id);
  return model_->token_bytes(id);
}

std::string Tokenizer::Model::token_bytes(int32_t /*id*/) const {
  fail(ErrorCode::unsupported, kTokenizerOrigin,
       "the bytes of a token of a vocabulary of the kind ", kind(),
       " depend on the tokens around it");
}

bool Tokenizer::continues_character(int32_t id) const {
  model_->check_id(id);
  return model_->continues_character(id);
}

int32_t Tokenizer::id(std::string_view token) const {
  return model_->id(token);
}

SpecialTokens Tokenizer::special_tokens() const noexcept {
  return model_->special_tokens();
}

const std::vector<int32_t>& Tokenizer::further_end_ids() const noexcept {
  return model_->further_end_ids();
}

bool Tokenizer::bos_is_subword() const noexcept {
  return model_->bos_is_subword();
}

void Tokenizer::encode_marked(std::string_view text, std::span<const TextSpan> parts,
                              std::vector<int32_t>& ids, std::vector<uint8_t>& marked) const {
  check_text(text, "text to encode");
  if (!special_) return parsing_special().encode_marked(text, parts, ids, marked);
  marked.clear();
  ids.clear();
  bool follows = false;
  std::vector<int32_t> part_ids;
  for (const NamedTokens::Part& part : special_->names.split(text)) {
    const bool rest = follows && special_->rest != nullptr && !model_->begins_anew(part.text);
    const Model& model = rest ? *special_->rest : *model_;
    if (part.id >= 0)
      part_ids.assign(1, part.id), follows = true;
    else
      model.encode_part(part.text, part_ids);
    mark_tokens(model, part.text, static_cast<size_t>(part.text.data() - text.data()), parts,
                part_ids, marked);
    ids.insert(ids.end(), part_ids.begin(), part_ids.end());
  }
}

// Samples the parts of a text between special tokens.
class Tokenizer::PartSampler final : public SubwordSampler {
 public:
  explicit PartSampler(const Tokenizer& tokenizer)
      : model_(*tokenizer.model_), special_(*tokenizer.special_), whole_(model_.part_sampler()) {
    if (special_.rest) rest_ = special_.rest->part_sampler();
  }
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const override {
    check_text(text, "text to encode");
    special_.encode(model_, text, ids,
                    [&](bool is_rest, std::string_view part, std::vector<int32_t>& part_ids) {
                      (is_rest ? *rest_ : *whole_).sample(part, alpha, rng, part_ids);
                    });
  }

 private:
  const Model& model_;
  const SpecialNames& special_;
  std::unique_ptr<const SubwordSampler> whole_, rest_;
};

// Puts the language in front of the subwords of another sampler.
class Tokenizer::LanguageSampler final : public SubwordSampler {
 public:
  LanguageSampler(Tokenizer tokenizer, std::unique_ptr<const SubwordSampler> subwords)
      : tokenizer_(std::move(tokenizer)), subwords_(std::move(subwords)) {}
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const override {
    subwords_->sample(text, alpha, rng, ids);
    tokenizer_.add_language(ids);
  }

 private:
  const Tokenizer tokenizer_;
  std::unique_ptr<const SubwordSampler> subwords_;
};

std::unique_ptr<const SubwordSampler> Tokenizer::sampler() const {
  std::unique_ptr<const SubwordSampler> sampler =
      special_ ? std::make_unique<PartSampler>(*this) : model_->sampler();
  if (language() < 0) return sampler;
  return std::make_unique<LanguageSampler>(*this, std::move(sampler));
}

const SentencePieceModel* Tokenizer::as_sentencepiece() const noexcept {
  return model_->as_sentencepiece();
}

void Tokenizer::Model::check_id(int32_t id) const {
  require(id >= 0 && id < vocab_size(), ErrorCode::invalid_argument, kTokenizerOrigin, "token ", id,
          " is out of range, the vocabulary has ", vocab_size(), " tokens");
}

std::string Tokenizer::Model::with_tokens(std::span<const std::string> /*tokens*/,
                                          bool /*special*/) const {
  fail(ErrorCode::unsupported, kTokenizerOrigin, "a ", kind(),
       " vocabulary takes no more tokens: its file lists those that its kind has");
}

bool Tokenizer::Model::has_text(std::string_view text) const {
  const int32_t found = id(text);
  return found >= 0 && token(found) == text;
}

std::unique_ptr<const SubwordSampler> Tokenizer::Model::part_sampler() const {
  return sampler();
}

std::unique_ptr<const SubwordSampler> Tokenizer::Model::sampler() const {
  fail(ErrorCode::unsupported, kTokenizerOrigin, "subword sampling: a ", kind(),
       " vocabulary has one segmentation of a text only");
}

}  // namespace trafo
