// Suite 3: files of a checkpoint that were cut off or changed. Each is refused, by name, with
// little memory, and what was there before is as it was.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/core/limits.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/models/model_io.h"
#include "tests/interop/interop_support.h"
#include "tests/reliability/refusals.h"
#include "tests/reliability/suite.h"
#include "tests/support/errors.h"
#include "tests/support/memory_meter.h"
#include "tests/train/training_support.h"

namespace trafo::testing {
namespace {

namespace fs = std::filesystem;

// A file, and who reads it. The reader throws what it has against it.
struct Target {
  std::string name;
  std::string whole;
  std::function<void(const std::string& bytes)> read;
};

class Damage {
 public:
  explicit Damage(Suite& suite) : suite_(suite) {}

  // Refused, with `culprit` in the message.
  void try_one(const Target& target, const std::string& bytes, const std::string& what,
               const std::string& culprit) {
    suite_.tried();
    const std::string label = target.name + ", " + what;
    const auto refused = attempt(target, bytes, label);
    if (!refused) {
      suite_.failed(label + ": accepted");
    } else {
      const ErrorCode code = refused->code();
      suite_.require(code == ErrorCode::corrupt_file || code == ErrorCode::version ||
                         code == ErrorCode::invalid_argument || code == ErrorCode::unsupported,
                     label + ": the error is " + refused->what());
      suite_.require(mentions(*refused, culprit),
                     label + ": " + culprit + " is not named: " + refused->what());
    }
  }

  // Refused or, if it means something, accepted; within its bounds in any case.
  void try_any(const Target& target, const std::string& bytes, const std::string& what) {
    suite_.tried();
    attempt(target, bytes, target.name + ", " + what);
  }

  void every_length(const Target& target) {
    for (size_t length = target.whole.size(); length-- > 0;)
      try_one(target, target.whole.substr(0, length), concat("cut to ", length), "");
  }
  void every_bit(const Target& target, size_t begin, size_t end) {
    std::string bytes = target.whole;
    for (size_t at = begin; at < std::min(end, bytes.size()); ++at)
      for (int bit = 0; bit < 8; ++bit) {
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
        try_one(target, bytes, concat("bit ", bit, " of byte ", at), "");
        bytes[at] = target.whole[at];
      }
  }
  // `culprit_at` says what has to be named for a byte.
  void random_flips(const Target& target, int64_t count, size_t begin,
                    const std::function<std::string(size_t)>& culprit_at) {
    std::string bytes = target.whole;
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = begin + random_() % (bytes.size() - begin);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random_() % 8));
      try_one(target, bytes, concat("payload byte ", at), culprit_at(at));
      bytes[at] = target.whole[at];
    }
  }

  int64_t most_memory() const { return most_memory_; }
  double slowest() const { return slowest_; }

 private:
  std::optional<Error> attempt(const Target& target, const std::string& bytes,
                               const std::string& label) {
    std::optional<Error> refused;
    reset_memory_peak();
    const std::clock_t begin = std::clock();  // the processor's time: the machine may be busy
    try {
      target.read(bytes);
    } catch (const Error& error) {
      refused = error;
    } catch (const std::exception& error) {
      suite_.failed(label + ": an exception that is no Error: " + error.what());
    }
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (!refused) return refused;
    most_memory_ = std::max(most_memory_, memory_peak());
    slowest_ = std::max(slowest_, took);
    suite_.require(memory_peak() <= static_cast<int64_t>(bytes.size() + limits::kRefusalBytes),
                   concat(label, ": ", memory_peak(), " bytes to refuse it"));
    suite_.require(took <= kMostSeconds, concat(label, ": took ", took, " s"));
    return refused;
  }

  Suite& suite_;
  std::mt19937_64 random_{29};
  int64_t most_memory_ = 0;
  double slowest_ = 0;
};

size_t header_end(const std::string& file) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  return sizeof(size) + size;
}

std::function<std::string(size_t)> tensor_at(const std::string& file) {
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  const SafetensorsReader reader = SafetensorsReader::from_memory(bytes, "whole");
  return [infos = reader.tensors(), start = header_end(file)](size_t at) {
    for (const TensorInfo& info : infos)
      if (at - start >= info.offset && at - start < info.offset + info.bytes) return info.name;
    return std::string("no tensor");
  };
}

// With another header, whose sum is right.
std::string with_header(const std::string& file, std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  seal_text(header, header.find("crc32\":\"") + 8);
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header +
         file.substr(header_end(file));
}

// `text` with each of its numbers replaced by those that nobody expects there: use(text, what).
template <class Use>
void for_each_number(const std::string& text, Use use) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = 1; at < text.size(); ++at) {
    if (!digit(text[at]) || !std::strchr(":[, ", text[at - 1])) continue;
    size_t end = at;
    while (end < text.size() && (digit(text[end]) || text[end] == '.')) ++end;
    for (const char* number : {"0", "-1", "4194305", "2147483648", "1099511627776",
                               "9223372036854775807", "18446744073709551616", "1e300", "0.5"})
      use(text.substr(0, at) + number + text.substr(end),
          concat("the number at ", at, " is ", number));
  }
}

// The header is sealed again: somebody wants it to look right.
void try_hostile_numbers(Damage& damage, const Target& target) {
  const std::string header = target.whole.substr(8, header_end(target.whole) - 8);
  for_each_number(header, [&](const std::string& changed, const std::string& what) {
    damage.try_any(target, with_header(target.whole, changed), what);
  });
}

// The list of a model in two files, and a tokenizer.json: texts without sums, so that some changes
// mean something.
void try_imported_texts(Damage& damage, Context& context, const fs::path& directory) {
  const auto model = make_model(context, llama_config(0, true), 5);
  export_model(context, *model, tokenizer(), ExportFormat::hf_llama, directory);
  fs::remove(directory / "tokenizer.model");
  split_weights(directory);
  edit_json(directory / "tokenizer.json", [](FileJson& json) { json["normalizer"] = nullptr; });
  for (const char* name : {kWeightList, "tokenizer.json", "config.json"}) {
    const fs::path file = directory / name;
    const Target target{name, slurp(file), [&, file](const std::string& bytes) {
                          spill(file, bytes);
                          import_model(context, directory);
                        }};
    std::mt19937_64 random(7);
    const std::string& whole = target.whole;
    for (int i = 0; i < 300; ++i) {
      const size_t at = random() % whole.size();
      damage.try_any(target, whole.substr(0, at), concat("cut to ", at));
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      damage.try_any(target, bytes, concat("a bit of byte ", at));
    }
    for_each_number(whole, [&](const std::string& bytes, const std::string& what) {
      damage.try_any(target, bytes, what);
    });
    spill(file, whole);
  }
}

}  // namespace
}  // namespace trafo::testing

int main(int argc, char** argv) {
  using namespace trafo;
  using namespace trafo::testing;
  Suite suite("damaged_files");
  prefer_memory_file_system();
  const int64_t flips = is_long(argc, argv) ? 100000 : 10000;
  Damage damage(suite);
  try_costly_files(suite);
  try_costly_texts(suite);

  // A run with every file that a checkpoint can have, and the run that reads them.
  const TemporaryDirectory folder;
  const TrainingData data = copy_data(Architecture::decoder_lm);
  const ModelConfig config = tiny_config(Architecture::decoder_lm);
  TrainOptions options = quick_options();
  options.ema_alpha = 1e-2;
  std::string stream;
  {
    Process process(data, options, folder / "run", 1, config);
    process.run->run({}, nullptr, 5);
    process.run->save();
    MemorySink sink;
    process.run->write_checkpoint(sink);
    stream.assign(reinterpret_cast<const char*>(sink.bytes().data()), sink.bytes().size());
  }
  Process process(data, options, std::nullopt, 1, config);
  process.run->run({}, nullptr, 3);
  const std::vector<std::byte> weights = process.weights();
  const std::string state = timeless(process.run->state());

  const fs::path checkpoint = folder / "run/ckpt/5";
  const fs::path copy = folder / "copy";
  const auto spilled = [&](const std::string& bytes) {
    spill(copy, bytes);
    return copy;
  };
  const Target model{"model", slurp(checkpoint / kModelFile), [&](const std::string& bytes) {
                       load_model(*process.context, spilled(bytes));
                     }};
  const Target optimizer{"optimizer", slurp(checkpoint / kOptimizerFile),
                         [&](const std::string& bytes) {
                           Trainer(*process.context, *process.model, options)
                               .restore(SafetensorsReader::open(spilled(bytes)), {});
                         }};
  const Target whole_stream{"stream", stream, [&](const std::string& bytes) {
                              const auto view = std::as_bytes(std::span(bytes));
                              process.run->read_checkpoint({view.begin(), view.end()});
                            }};
  for (const Target& target : {model, optimizer}) {
    damage.every_length(target);
    damage.every_bit(target, 0, header_end(target.whole));
    damage.every_bit(target, target.whole.size() - 64, target.whole.size());
    damage.random_flips(target, flips, header_end(target.whole), tensor_at(target.whole));
    try_hostile_numbers(damage, target);
  }
  const size_t list_end = stream.find('\n', stream.find('\n') + 1) + 1;
  damage.every_bit(whole_stream, 0, list_end);
  // Its tensors are named, like the tensors of a file.
  const auto culprit_in = [](const std::string& name, const std::string& content) {
    const bool has_tensors = name.ends_with(".safetensors");
    const size_t payload = has_tensors ? header_end(content) : content.size();
    return [=, tensor = has_tensors ? tensor_at(content) : nullptr](size_t at) {
      return at < payload ? name : tensor(at);
    };
  };
  std::map<size_t, std::function<std::string(size_t)>> members;  // by where they begin
  const size_t list_begin = stream.find('\n') + 1;
  size_t begin = list_end;
  for (const auto& member :
       nlohmann::json::parse(stream.substr(list_begin, list_end - list_begin))) {
    const std::string content = stream.substr(begin, member["bytes"].get<size_t>());
    members[begin] = culprit_in(member["name"], content);
    begin += content.size();
  }
  const auto member_of_stream = [&](size_t at) {
    const auto member = std::prev(members.upper_bound(at));
    return member->second(at - member->first);
  };
  damage.random_flips(whole_stream, flips, list_end, member_of_stream);
  damage.every_length(whole_stream);
  suite.require(process.weights() == weights && timeless(process.run->state()) == state,
                "a run has changed although every checkpoint was refused");

  try_imported_texts(damage, *process.context, folder / "imported");

  // A run directory whose only checkpoint is damaged: the file is named. A process that is asked to
  // continue it refuses, which a sample of them shows.
  const CheckpointDirectory checkpoints(folder / "run");
  for (const char* name : {"manifest.json", kStateFile, kModelFile, kOptimizerFile}) {
    const fs::path file = checkpoint / name;
    const Target member{name, slurp(file), [&](const std::string& bytes) {
                          spill(file, bytes);
                          checkpoints.verify(5);
                        }};
    const bool is_text = std::string(name).ends_with(".json");
    if (is_text) damage.every_length(member);
    if (is_text) damage.every_bit(member, 0, member.whole.size());
    const auto culprit = culprit_in(name, member.whole);
    damage.random_flips(member, flips / 10, 0, culprit);
    const Target resumed{concat("resuming with ", name), member.whole,
                         [&](const std::string& bytes) {
                           spill(file, bytes);
                           Process(data, options, folder / "run", 1, config);
                         }};
    damage.random_flips(resumed, 20, 0, culprit);
    spill(file, member.whole);
  }
  Process again(data, options, folder / "run", 1, config);
  suite.require(again.run->resumed(), "the whole checkpoint does not load");

  std::printf("refused with at most %lld bytes of memory%s, in at most %.3f s\n",
              static_cast<long long>(damage.most_memory()),
              measures_memory() ? "" : " (not measured: sanitizers have their own)",
              damage.slowest());
  return suite.finish();
}
