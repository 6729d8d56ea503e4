#include "tests/reliability/refusals.h"

#include <zlib.h>

#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <vector>

#include "engine/core/limits.h"
#include "engine/core/wire_format.h"
#include "engine/data/corpus.h"
#include "engine/data/text_corpus.h"
#include "engine/decode/lexical_table.h"
#include "engine/formats/peft/peft.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/checkpoint/state.h"
#include "engine/train/step/gemm_cache.h"
#include "tests/interop/interop_support.h"
#include "tests/support/memory_meter.h"

namespace trafo::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// `unit` again and again, numbered where it has a '#', to about this many bytes.
std::string filled(const std::string& begin, const std::string& unit, size_t bytes,
                   const std::string& end = "") {
  std::string text = begin;
  const size_t mark = unit.find('#');
  for (size_t i = 0; text.size() + unit.size() + end.size() + 8 < bytes; ++i)
    text +=
        mark == unit.npos ? unit : unit.substr(0, mark) + std::to_string(i) + unit.substr(mark + 1);
  return text + end;
}

std::string with_length(const std::string& header) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
}

class Refusals {
 public:
  Refusals(Suite& suite) : suite_(suite) {}

  // `what`: the reader, a comma and what is wrong. `bytes`: of the files that are read.
  // `may_be_taken`: what may be read to its end, too.
  void expect(const std::string& what, size_t bytes, const std::function<void()>& read,
              bool may_be_taken = false) {
    suite_.tried();
    bool refused = false;
    const std::clock_t begin = std::clock();
    reset_memory_peak();
    try {
      read();
    } catch (const Error& error) {
      refused = true;
      suite_.require(error.code() != ErrorCode::internal, what + ": " + error.what());
    } catch (const std::exception& error) {
      suite_.failed(what + ": an exception that is no Error: " + error.what());
    }
    const int64_t peak = memory_peak();
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    suite_.require(took <= kMostSeconds, concat(what, ": took ", took, " s"));
    if (!refused) return suite_.require(may_be_taken, what + ": taken");
    const auto most = static_cast<int64_t>(bytes + limits::kRefusalBytes);
    suite_.require(peak <= most, concat(what, ": ", peak, " bytes to refuse ", bytes));
    Cost& cost = costs_[what.substr(0, what.find(','))];
    ++cost.refused;
    cost.above_size = std::max(cost.above_size, peak - static_cast<int64_t>(bytes));
  }

  // The files that each reader refused, and the most memory above a file's size.
  void print() const {
    std::printf("%-24s %8s  MiB above the size of the file%s\n", "reader", "refused",
                measures_memory() ? "" : " (not measured: sanitizers have their own allocator)");
    for (const auto& [reader, cost] : costs_)
      std::printf("%-24s %8d  %.1f\n", reader.c_str(), cost.refused,
                  static_cast<double>(cost.above_size) / static_cast<double>(kMiB));
  }

 private:
  struct Cost {
    int refused = 0;
    int64_t above_size = 0;  // negative: less than the file
  };

  Suite& suite_;
  std::map<std::string, Cost> costs_;
};

// JSON that takes many times its size where it becomes values, at the limits of a configuration and
// above them, right until its last byte.
std::vector<std::pair<std::string, std::string>> json_texts(size_t bytes) {
  const size_t some = std::min<size_t>(bytes, 60000 * 8);
  return {{"lists", filled("[", "[],", bytes, "]")},
          {"lists in an object", filled("{\"a\":[", "[],", bytes, "]]")},
          {"objects", filled("{\"a\":[", "{\"\":0},", bytes, "]]")},
          {"members", filled("{", "\"#\":0,", some, "]")},
          {"long text", "{\"a\":\"" + std::string(bytes - 16, 'x') + "\"]"},
          {"escapes", filled("{\"a\":\"", "\\u0001", bytes, "\"]")},
          {"depth", std::string(bytes, '[')}};
}

void try_safetensors(Refusals& refusals, Context& context) {
  const auto read = [&](const std::string& what, const std::string& header) {
    const std::string file = with_length(header);
    refusals.expect("safetensors, " + what, file.size(), [&] {
      load_model(context,
                 SafetensorsReader::from_memory(std::as_bytes(std::span(file)), "hostile"));
    });
  };
  const std::string tensor = R"("#":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)";
  read("tensors", filled("{", tensor, 65536 * tensor.size(), "]"));
  read("more tensors than there may be", filled("{", tensor, 16 * kMiB, "]"));
  read("metadata", filled("{\"__metadata__\":{", "\"#\":\"\",", 16 * kMiB, "]"));
  read("dimensions", filled("{\"a\":{\"dtype\":\"F32\",\"shape\":[", "1,", 16 * kMiB, "]"));
  read("a large tensor",
       R"({"a":{"dtype":"F32","shape":[1048576,1048576],"data_offsets":[0,4398046511104]}})");
  for (const auto& [what, text] : json_texts(16 * kMiB)) read(what, text);
}

void try_checkpoint(Refusals& refusals) {
  for (const auto& [what, text] : json_texts(limits::kConfigBytes)) {
    const TemporaryDirectory run;
    const CheckpointDirectory checkpoints(run.path());
    fs::create_directories(checkpoints.path(1));
    spill(checkpoints.path(1) / "manifest.json", text);
    refusals.expect("manifest, " + what, text.size(), [&] { checkpoints.verify(1); });
    refusals.expect("training state, " + what, text.size(), [&] { decode_state(text, "hostile"); });
    refusals.expect("model configuration, " + what, text.size(),
                    [&] { model_config_from_json(text); });
    const std::string stream = "trafo checkpoint 1\n" + text + "\n";
    const auto bytes = std::as_bytes(std::span(stream));
    refusals.expect("checkpoint stream, " + what, stream.size(), [&] {
      CheckpointStream({bytes.begin(), bytes.end()});
    });
  }
  for (const std::string& text :
       {filled("trafo-gemm-cache 1 00000000\ncard\n", "1 2 3 4 5 6 7 8\n", 16 * kMiB),
        "trafo-gemm-cache 1 00000000\n" + std::string(16 * kMiB, 'x'),
        "trafo-gemm-cache 1 00000000\ncard\n" + std::string(16 * kMiB, '\n')})
    refusals.expect("GEMM cache, 16 MiB of it", text.size(),
                    [&] { decode_gemm_cache(text, "hostile"); });
}

void try_texts(Refusals& refusals, const fs::path& file) {
  const std::string line(32 * kMiB, 'x');
  spill(file, line);
  const auto read_line = [&] {
    std::string read;
    LineReader reader(file);
    while (reader.next(read)) {
    }
  };
  refusals.expect("line reader, a line without end", line.size(), read_line);
  gzFile packed = gzopen(file.c_str(), "wb");  // 32 MiB of it in 32 KiB
  gzwrite(packed, line.data(), static_cast<unsigned>(line.size()));
  gzclose(packed);
  refusals.expect("line reader, a packed line without end", fs::file_size(file), read_line);
  refusals.expect("corpus, a packed pair without end", fs::file_size(file),
                  [&] { load_tsv(file.string()); });
  const std::string pair = std::string(200, 'a') + "\t" + std::string(200, 'b') + "\n";
  packed = gzopen(file.c_str(), "wb");  // it is text until its last line
  for (int i = 0; i < 200'000; ++i)
    gzwrite(packed, pair.data(), static_cast<unsigned>(pair.size()));
  gzwrite(packed, "\xff\n", 2);
  gzclose(packed);
  LoadOptions limited;
  limited.memory_bytes = int64_t{8} << 20;
  refusals.expect("corpus, 80 MB packed for 8 MiB of memory", fs::file_size(file),
                  [&] { load_tsv(file.string(), limited); });
  const std::string table =
      filled("", concat(tokenizer().token(4), " ", tokenizer().token(5), " 1\n"), 24 * kMiB, "x");
  for (const std::string& text : {table, line}) {
    spill(file, text);
    refusals.expect("lexical table, 24 or 32 MiB", text.size(), [&] {
      std::ifstream in(file, std::ios::binary);
      LexicalTable::read(in, file, tokenizer());
    });
  }
}

std::string field(uint32_t number, const std::string& bytes) {
  WireWriter message;
  message.bytes(number, bytes);
  return message.message();
}

void try_sentencepiece(Refusals& refusals) {
  const std::string_view good = tokenizer().serialized();
  const std::string subword("\x0a\x05\x0a\x03", 4);
  for (const auto& [what, bytes] : std::vector<std::pair<const char*, std::string>>{
           {"empty subwords", filled("", std::string("\x0a\x00", 2), 16 * kMiB, "x")},
           {"subwords", filled("", subword + "###", 16 * kMiB, "x")},
           {"a good one with more behind it",
            filled(std::string(good), std::string("\x0a\x00", 2), 8 * kMiB)},
           {"a length beyond the end", std::string("\x0a\xff\xff\xff\xff\x7f", 6)},
           {"groups", std::string(4 * kMiB, '\x0b')}})
    refusals.expect(concat("SentencePiece, ", what), bytes.size(),
                    [&] { Tokenizer::from_bytes(bytes, "hostile"); });

  for (const size_t bytes : {limits::kMappedBytes + 1, kMiB, 16 * kMiB}) {
    const std::string model = model_of_a_long_letter(bytes);
    refusals.expect(concat("SentencePiece, a letter of ", bytes, " bytes"), model.size(),
                    [&] { Tokenizer::from_bytes(model, "hostile"); });
  }
  const std::string self_test = field(1, field(1, std::string(16 * kMiB, 'q')) + field(2, "x"));
  const std::string model = concat(good, field(4, self_test));
  refusals.expect(
      "SentencePiece, a self-test of 16 MiB", model.size(),
      [&] { Tokenizer::from_bytes(model, "hostile"); }, true);
}

// Each file of a directory of another program in turn.
// Vocabularies and merges of a tokenizer.json, as many and as small as they come.
std::vector<std::pair<std::string, std::string>> tokenizer_texts() {
  const std::string unigram = "{\"model\":{\"type\":\"Unigram\",\"vocab\":[";
  const std::string bpe = "{\"model\":{\"type\":\"BPE\",\"vocab\":{";
  const std::string few = bpe + "\"a\":0,\"aa\":1},\"merges\":[";
  return {{"subwords with scores", filled(unigram, "[\"#\",0],", 8 * kMiB, "]")},
          {"more subwords than there may be", filled(unigram, "[\"#\",0],", 16 * kMiB, "]")},
          {"subwords", filled(bpe, "\"#\":7,", 8 * kMiB, "]")},
          {"long subwords", filled(bpe, "\"" + std::string(1000, 'x') + "#\":7,", 23 * kMiB, "]")},
          {"merges", filled(few, "\"a a\",", 6 * kMiB, "]}}")},
          {"pairs of merges", filled(few, "[\"a\",\"a\"],", 8 * kMiB, "]}}")},
          {"more merges than there may be", filled(few, "\"a a\",", 16 * kMiB, "]}}")},
          {"added tokens", filled("{\"model\":{\"vocab\":{}},\"added_tokens\":[", "{},", 8 * kMiB)},
          {"white space alone", std::string(25 * kMiB, ' ')},
          {"brackets alone", std::string(25 * kMiB, '[')},
          {"one number", std::string(25 * kMiB, '7')},
          {"one string", "\"" + std::string(25 * kMiB, 'x') + "\""},
          {"a file beyond the limit", std::string(65 * kMiB, ' ')}};
}

// Each file of a directory becomes each text in turn.
void try_directory(Refusals& refusals, const std::string& name, const fs::path& directory,
                   const std::function<void()>& read) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  for (const fs::path& file : files) {
    const std::string content = slurp(file), file_name = file.filename().string();
    auto texts = json_texts(4 * kMiB);
    for (auto& small : json_texts(limits::kConfigBytes)) texts.push_back(small);
    texts.emplace_back("subwords", filled("", std::string("\x0a\x00", 2), 8 * kMiB, "x"));
    texts.emplace_back("lengths", std::string(kMiB, '\xff'));
    texts.emplace_back("small numbers", filled("", std::string("\x06\x00\x00\x00", 4), kMiB));
    if (name == "resaved" && file_name == "tokenizer.json")
      for (auto& text : tokenizer_texts()) texts.push_back(std::move(text));
    for (const auto& [what, text] : texts) {
      spill(file, text);
      refusals.expect(concat(name, ", ", file_name, ", ", what), text.size(), read, true);
    }
    spill(file, content);
  }
}

void try_imports(Refusals& refusals, Context& context, const fs::path& folder) {
  struct Form {
    ExportFormat format;
    Architecture architecture;
    bool pre_norm;
  };
  const auto directory_of = [&](const Form& form, const fs::path& directory) {
    const auto model = make_model(context,
                                  form.format == ExportFormat::hf_llama
                                      ? llama_config(0, true)
                                      : config_of(form.architecture, form.pre_norm),
                                  5);
    export_model(context, *model, tokenizer(), form.format, directory);
  };
  const auto try_model = [&](const std::string& name, const fs::path& directory) {
    try_directory(refusals, name, directory, [&] { import_model(context, directory); });
  };
  for (const Form& form : {Form{ExportFormat::hf_marian, Architecture::encoder_decoder, false},
                           Form{ExportFormat::hf_pegasus, Architecture::encoder_decoder, true},
                           Form{ExportFormat::hf_gpt2, Architecture::decoder_lm, true},
                           Form{ExportFormat::hf_llama, Architecture::decoder_lm, true},
                           Form{ExportFormat::ctranslate2, Architecture::encoder_decoder, false}}) {
    const fs::path directory = folder / enum_name(form.format);
    directory_of(form, directory);
    try_model(enum_name(form.format), directory);
  }
  // As transformers saves a large model: a list of weight files, and no tokenizer.model.
  const fs::path resaved = folder / "resaved";
  directory_of({ExportFormat::hf_llama, Architecture::decoder_lm, true}, resaved);
  fs::remove(resaved / "tokenizer.model");
  split_weights(resaved);
  try_model("resaved", resaved);
}

void try_adapters(Refusals& refusals, Context& context, const fs::path& directory) {
  const auto model = make_model(context, llama_config(0, true), 5);
  add_adapter(context, *model, {}, 7);
  save_adapter(context, *model, directory);
  remove_adapter(context, *model);
  try_directory(refusals, "adapter of PEFT", directory, [&] {
    load_adapter(context, *model, directory);
    remove_adapter(context, *model);
  });
}

}  // namespace

std::string model_of_a_long_letter(size_t bytes) {
  // A trie of one block of 256 units.
  std::vector<uint32_t> trie(257, 0);
  trie[0] = 1024;  // bytes of the units
  trie[1 + 0x61] = 0x61u | 1u << 8 | (0x61u ^ 0x80u) << 10;
  trie[1 + 0x80] = 1u << 31;
  const std::string units(reinterpret_cast<const char*>(trie.data()), 4 * trie.size());
  return concat(tokenizer().serialized(),
                field(3, field(2, concat(units, std::string(bytes, 'b'), '\0'))));
}

void try_costly_files(Suite& suite) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const TemporaryDirectory folder;
  tokenizer();
  Refusals refusals(suite);
  try_safetensors(refusals, *context);
  try_checkpoint(refusals);
  try_texts(refusals, folder / "file");
  try_sentencepiece(refusals);
  try_imports(refusals, *context, folder.path());
  try_adapters(refusals, *context, folder / "adapter");
  refusals.print();
}

}  // namespace trafo::testing
