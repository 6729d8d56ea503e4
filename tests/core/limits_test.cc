// Every bound of engine/core/limits.h: at it, above it, and at the largest number that the place
// can hold. The files are forged: what they claim is in their headers, not on a disk.
#include "engine/core/limits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/core/checked.h"
#include "engine/core/strings/json.h"
#include "engine/core/wire_format.h"
#include "engine/data/corpus.h"
#include "engine/decode/lexical_table.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/io/checksum.h"
#include "engine/io/manifest.h"
#include "engine/io/safetensors.h"
#include "engine/models/model_config.h"
#include "engine/text/tokenizer/sentencepiece/spm_model.h"
#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/checkpoint/state.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

constexpr const char* kLargest = "18446744073709551615";  // 2^64 - 1

// The error of reading, or "" if it goes through.
template <class Function>
std::string refusal(Function&& function) {
  try {
    function();
    return "";
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::corrupt_file ||
                error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::io)
        << error.what();
    return error.message();
  }
}
#define EXPECT_TAKEN(...) EXPECT_EQ(refusal([&] { __VA_ARGS__; }), "")
#define EXPECT_REFUSED(part, ...)                                        \
  do {                                                                   \
    const std::string said = refusal([&] { __VA_ARGS__; });              \
    EXPECT_NE(said.find(part), std::string::npos) << "'" << said << "'"; \
  } while (false)

std::string little_endian(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

void read_file_of(const std::string& file) {
  SafetensorsReader::from_memory(std::as_bytes(std::span(file.data(), file.size())), "forged");
}
void read_header(const std::string& header, size_t payload = 0) {
  read_file_of(little_endian(header.size()) + header + std::string(payload, '\0'));
}
std::string tensor(const std::string& name, const std::string& shape,
                   const std::string& begin = "0", const std::string& end = "0") {
  return concat('"', name, R"(":{"dtype":"F32","shape":[)", shape, R"(],"data_offsets":[)", begin,
                ",", end, "]}");
}

TEST(Limits, HeaderBytes) {
  const auto padded = [](uint64_t size) { return concat("{}", std::string(size - 2, ' ')); };
  EXPECT_TAKEN(read_header(padded(limits::kHeaderBytes)));
  EXPECT_REFUSED("the limit is 16777216", read_header(padded(limits::kHeaderBytes + 1)));
  EXPECT_REFUSED("the header would have", read_file_of(little_endian(UINT64_MAX) + "{}"));
  EXPECT_REFUSED("the file has 10", read_file_of(little_endian(3) + "{}"));
}

TEST(Limits, Tensors) {
  const auto many = [](size_t count) {
    std::string header = "{";
    for (size_t i = 0; i < count; ++i) header += concat(i ? "," : "", tensor(concat("t", i), "0"));
    return header + "}";
  };
  EXPECT_TAKEN(read_header(many(limits::kTensors)));
  EXPECT_REFUSED("more than 65536 tensors", read_header(many(limits::kTensors + 1)));
}

TEST(Limits, MetadataPairs) {
  const auto many = [](size_t count) {
    std::string header = R"({"__metadata__":{)";
    for (size_t i = 0; i < count; ++i) header += concat(i ? "," : "", '"', i, R"(":"")");
    return header + "}}";
  };
  EXPECT_TAKEN(read_header(many(limits::kMetadataPairs)));
  EXPECT_REFUSED("more than 131072", read_header(many(limits::kMetadataPairs + 1)));
}

TEST(Limits, Rank) {
  const auto ones = [](size_t rank) {
    std::string shape = "0";
    for (size_t i = 1; i < rank; ++i) shape += ",1";
    return concat("{", tensor("t", shape), "}");
  };
  EXPECT_TAKEN(read_header(ones(limits::kRank)));
  EXPECT_REFUSED("more than 8 dimensions", read_header(ones(limits::kRank + 1)));
  EXPECT_REFUSED("more than 8 dimensions", read_header(ones(100000)));
}

TEST(Limits, DimensionAndBytes) {
  const auto shaped = [](const std::string& shape) { return concat("{", tensor("t", shape), "}"); };
  EXPECT_TAKEN(read_header(shaped(concat("0,", limits::kDimension))));
  EXPECT_REFUSED("the limit is 2^40", read_header(shaped(concat("0,", limits::kDimension + 1))));
  EXPECT_REFUSED("the limit is 2^40", read_header(shaped(concat("0,", kLargest))));
  EXPECT_REFUSED("overflows",
                 read_header(shaped(concat(limits::kDimension, ",", limits::kDimension))));
  // Against what is left in the file.
  const auto ending = [](const std::string& shape, const std::string& end) {
    return concat("{", tensor("t", shape, "0", end), "}");
  };
  EXPECT_TAKEN(read_header(ending("2", "8"), 8));
  EXPECT_REFUSED("the file has 8 bytes of data", read_header(ending("3", "12"), 8));
  EXPECT_REFUSED("the file has 8 bytes of data", read_header(ending("2", kLargest), 8));
  EXPECT_EQ(try_mul(INT64_MAX, int64_t{1}), INT64_MAX);
  EXPECT_EQ(try_mul(INT64_MAX, int64_t{2}), std::nullopt);
}

TEST(Limits, NamesAndMetadataValues) {
  const auto named = [](size_t bytes) {
    return concat("{", tensor(std::string(bytes, 'n'), "0"), "}");
  };
  EXPECT_TAKEN(read_header(named(limits::kNameBytes)));
  EXPECT_REFUSED("1 to 1024", read_header(named(limits::kNameBytes + 1)));
  EXPECT_REFUSED("1 to 1024", read_header(named(0)));
  EXPECT_REFUSED("1 to 1024", read_header(named(limits::kHeaderBytes / 2)));
  const auto value = [](size_t bytes) {
    return concat(R"({"__metadata__":{"k":")", std::string(bytes, 'v'), "\"}}");
  };
  EXPECT_TAKEN(read_header(value(limits::kMetadataValueBytes)));
  EXPECT_REFUSED("the limit is 65536", read_header(value(limits::kMetadataValueBytes + 1)));
  EXPECT_REFUSED("the limit is 65536", read_header(value(limits::kHeaderBytes / 2)));
}

Json parse_forged(const std::string& text) {
  return parse_json(text, "test", "forged");
}

TEST(Limits, JsonDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TAKEN(parse_forged(nested(limits::kNesting)));
  EXPECT_REFUSED("more than 16 deep", parse_forged(nested(limits::kNesting + 1)));
  EXPECT_REFUSED("more than 16 deep", parse_forged(nested(limits::kConfigBytes / 2)));
  std::string objects;
  for (int i = 0; i < 17; ++i) objects += R"({"a":)";
  EXPECT_REFUSED("more than 16 deep", parse_forged(objects + "1" + std::string(17, '}')));
}

TEST(Limits, JsonBytesAndMembers) {
  EXPECT_TAKEN(parse_forged(concat("1", std::string(limits::kConfigBytes - 1, ' '))));
  EXPECT_REFUSED("the limit is 1048576",
                 parse_forged(concat("1", std::string(limits::kConfigBytes, ' '))));
  const auto members = [](size_t count) {
    std::string text = "{";
    for (size_t i = 0; i < count; ++i) text += concat(i ? "," : "", '"', i, "\":1");
    return text + "}";
  };
  EXPECT_TAKEN(parse_forged(members(limits::kMembers)));
  EXPECT_REFUSED("more than 65536 members", parse_forged(members(limits::kMembers + 1)));
  EXPECT_REFUSED("a key twice", parse_forged(R"({"a":1,"a":1})"));
  EXPECT_TAKEN(parse_forged(R"([{"a":1},{"a":1}])"));
  EXPECT_REFUSED("NUL", parse_forged(std::string("1\0", 2)));
  EXPECT_REFUSED("not valid JSON", parse_forged("1e999"));
  EXPECT_REFUSED("not valid JSON at byte", parse_forged("{"));
  EXPECT_REFUSED("not valid JSON at byte", parse_forged("\"\xff\""));
}

TEST(Limits, JsonNumbers) {
  const auto take = [](const std::string& number, auto value) {
    const Json json = parse_forged("{\"n\":" + number + "}");
    JsonFields(json, "test", "forged").take("n", value);
    return value;
  };
  EXPECT_EQ(take("9223372036854775807", int64_t{0}), INT64_MAX);
  EXPECT_EQ(take("-9223372036854775808", int64_t{0}), INT64_MIN);
  EXPECT_EQ(take(kLargest, uint64_t{0}), UINT64_MAX);
  EXPECT_EQ(take("3", 0.0), 3.0);
  EXPECT_TRUE(take("true", false));
  EXPECT_REFUSED("fits", take("9223372036854775808", int64_t{0}));
  EXPECT_REFUSED("fits", take(kLargest, int64_t{0}));
  EXPECT_REFUSED("fits", take("-1", uint64_t{0}));
  EXPECT_REFUSED("not an integer", take("18446744073709551616", uint64_t{0}));
  EXPECT_REFUSED("not an integer", take("1.5", int64_t{0}));
  EXPECT_REFUSED("not an integer", take("1e300", int64_t{0}));
  EXPECT_REFUSED("not an integer", take("true", int64_t{0}));
  EXPECT_REFUSED("not a number", take("null", 0.0));
  EXPECT_REFUSED("not true or false", take("1", false));
  EXPECT_REFUSED("not a text", take("1", std::string()));
  EXPECT_REFUSED("no JSON object", JsonFields(parse_forged("[]"), "test", "forged"));
  EXPECT_REFUSED("there is no m", JsonFields(parse_forged("{}"), "test", "forged").at("m"));
}

TEST(Limits, TrainingState) {
  const std::string good = encode_state({}, {1, "", R"({"batch_tokens":4096})"});
  const auto with = [&](const std::string& field, const std::string& value) {
    nlohmann::json json = nlohmann::json::parse(good);
    json[field] = nlohmann::json::parse(value);
    decode_state(json.dump(), "state.json");
  };
  EXPECT_TAKEN(decode_state(good, "state.json"));
  for (const char* field : {"update", "forward_passes", "skipped", "next_batch", "next_in_window",
                            "target_tokens", "stalled", "epoch_dropped_long"}) {
    EXPECT_TAKEN(with(field, std::to_string(limits::kCount)));
    EXPECT_REFUSED(field, with(field, std::to_string(limits::kCount + 1)));
    EXPECT_REFUSED(field, with(field, std::to_string(INT64_MAX)));
    EXPECT_REFUSED(field, with(field, kLargest));
    EXPECT_REFUSED(field, with(field, "-1"));
    EXPECT_REFUSED(field, with(field, "1.5"));
  }
  nlohmann::json cut = nlohmann::json::parse(good);
  cut["epoch_cut"] = 1;
  cut["epoch_windows"] = -1;
  EXPECT_REFUSED("epoch_windows", decode_state(cut.dump(), "state.json"));
  EXPECT_REFUSED("epoch_windows", with("epoch_cut", "1"));
  EXPECT_TAKEN(with("epoch", std::to_string(limits::kEpochs)));
  EXPECT_REFUSED("epoch", with("epoch", std::to_string(limits::kEpochs + 1)));
  EXPECT_REFUSED("epoch", with("epoch", std::to_string(INT64_MAX)));
  EXPECT_REFUSED("train_seconds", with("train_seconds", "-1"));
  EXPECT_REFUSED("best", with("best", "{}"));
  EXPECT_REFUSED("no JSON object", with("best", "[1]"));
  EXPECT_REFUSED("best", with("best", R"([{"metric":"bleu","value":1,"update":-1}])"));
  EXPECT_REFUSED("stalled_by_metric", with("stalled_by_metric", R"({"bleu":-1})"));
  EXPECT_REFUSED("options", with("options", "[]"));
  EXPECT_REFUSED("hexadecimal", with("corpus", "\"xyz\""));
  // Deep nesting would exhaust the stack where it is written again, as here: 200 is not.
  EXPECT_REFUSED("more than 16 deep", with("options", concat(R"({"a":)", std::string(200, '['),
                                                             std::string(200, ']'), "}")));
}

TEST(Limits, ModelConfiguration) {
  const auto with = [](const std::string& field, const std::string& value) {
    nlohmann::json json = nlohmann::json::parse(to_json(ModelConfig{}));
    json["vocabulary"] = 100;
    json[field] = nlohmann::json::parse(value);
    model_config_from_json(json.dump());
  };
  const std::pair<const char*, int64_t> bounds[] = {
      {"vocabulary", limits::kVocabulary},    {"encoder_layers", limits::kLayers},
      {"decoder_layers", limits::kLayers},    {"width", limits::kModelDimension},
      {"ffn_width", limits::kModelDimension}, {"max_positions", limits::kModelDimension}};
  for (const auto& [field, limit] : bounds) {
    EXPECT_TAKEN(with(field, std::to_string(limit)));
    EXPECT_REFUSED(field, with(field, std::to_string(limit + 1)));
    EXPECT_REFUSED(field, with(field, std::to_string(INT64_MAX)));
    EXPECT_REFUSED(field, with(field, kLargest));
    EXPECT_REFUSED(field, with(field, "1e300"));
    EXPECT_REFUSED(field, with(field, "64.5"));
  }
}

TEST(Limits, FilesOfACheckpoint) {
  const auto manifest = [](size_t count, uint64_t bytes) {
    std::vector<ManifestEntry> files;
    for (size_t i = 0; i < count; ++i) files.push_back({concat("f", i), bytes, "00000000"});
    return parse_manifest(encode_manifest(7, files), 7, "manifest.json").size();
  };
  EXPECT_EQ(manifest(limits::kCheckpointFiles, UINT64_MAX), limits::kCheckpointFiles);
  EXPECT_REFUSED("more than 1024", manifest(limits::kCheckpointFiles + 1, 1));

  const auto stream = [](const std::string& list) {
    const std::string text = "trafo checkpoint 1\n" + list + "\n";
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    CheckpointStream({bytes.begin(), bytes.end()});
  };
  const auto files = [](size_t count) {
    std::string list = "[";
    for (size_t i = 0; i < count; ++i)
      list += concat(i ? "," : "", R"({"name":"f","bytes":0,"crc32":"00000000"})");
    return list + "]";
  };
  EXPECT_TAKEN(stream(files(limits::kCheckpointFiles)));
  EXPECT_REFUSED("at most 1024 files", stream(files(limits::kCheckpointFiles + 1)));
  EXPECT_REFUSED("ends in its list",
                 stream(concat("[", std::string(limits::kConfigBytes, ' '), "]")));
  EXPECT_REFUSED("ends in f", stream(R"([{"name":"f","bytes":1,"crc32":"00000000"}])"));
  EXPECT_REFUSED("ends in f",
                 stream(concat(R"([{"name":"f","bytes":)", kLargest, R"(,"crc32":"00000000"}])")));
  EXPECT_REFUSED("not allowed", stream(R"([{"name":"../f","bytes":0,"crc32":"00000000"}])"));
  EXPECT_REFUSED("no list", stream("{}"));
}

// A SentencePiece model of one subword.
std::string subword(std::string_view text) {
  WireWriter piece, model;
  piece.bytes(1, text);
  model.bytes(1, piece.message());
  return model.message();
}

TEST(Limits, SubwordBytes) {
  const auto check = [](const std::string& model) { check_spm_model(model, "forged"); };
  EXPECT_TAKEN(check(subword(std::string(limits::kSubwordBytes, 'p'))));
  EXPECT_REFUSED("the limit is 1024", check(subword(std::string(limits::kSubwordBytes + 1, 'p'))));
  // Lengths of 2^63 and of 2^64 - 1 bytes.
  EXPECT_REFUSED("truncated", check("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"));
  EXPECT_REFUSED("truncated", check("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
  EXPECT_REFUSED("too long", check("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
  EXPECT_REFUSED("bad field number", check(std::string("\0\0", 2)));
  EXPECT_REFUSED("bad wire type 3", check("\x0b"));
  EXPECT_REFUSED("same text", check(subword("a") + subword("a")));
  EXPECT_REFUSED("stands for a byte", check(std::string("\x0a\x05\x0a\x01x\x18\x06")));
}

TEST(Limits, Subwords) {
  const auto many = [](int count) {
    std::string model;
    model.reserve(static_cast<size_t>(count) * 8);
    for (int i = 0; i < count; ++i) {
      std::string text;
      for (int shift = 0; shift < 24; shift += 6)
        text += static_cast<char>('0' + (i >> shift & 63));
      model += subword(text);
    }
    return model;
  };
  EXPECT_TAKEN(check_spm_model(many(limits::kVocabulary), "forged"));
  EXPECT_REFUSED("more than 4194304 subwords",
                 check_spm_model(many(limits::kVocabulary + 1), "forged"));
}

TEST(Limits, LineBytes) {
  const TemporaryDirectory directory;
  const auto read = [&](size_t bytes, const char* end) {
    const std::string path = (directory.path() / "text").string();
    std::ofstream(path) << "first\n" << std::string(bytes, 'x') << end;
    return read_lines(path).size();
  };
  for (const char* end : {"\n", "\r\n", ""}) {
    EXPECT_EQ(read(limits::kLineBytes, end), 2u);
    EXPECT_REFUSED(":2: the line is longer than 1048576 bytes", read(limits::kLineBytes + 1, end));
  }
  // As long as one likes, and without an end: given up after the limit.
  EXPECT_REFUSED("longer than", LineReader("/dev/zero").next(*std::make_unique<std::string>()));
}

TEST(Limits, LinesOfALexicalTable) {
  TokenizerTrainOptions options;
  options.vocab_size = 20;
  options.hard_vocab_limit = false;
  const std::vector<std::string> lines = {"a b c", "c b a"};
  const Tokenizer tokenizer = Tokenizer::train(std::span<const std::string>(lines), options);
  const auto read = [&](const std::string& first) {
    std::istringstream in(concat(first, "\n", tokenizer.token(4), " ", tokenizer.token(5), " 0.5"));
    LexicalTable::read(in, "table", tokenizer);
  };
  const std::string start = "x y 0.", digits(limits::kLineBytes - start.size(), '1');
  EXPECT_TAKEN(read(start + digits));
  EXPECT_REFUSED("table:1: the line is longer than", read(start + digits + "1"));
  EXPECT_REFUSED("table:1: the line is longer than", read(std::string(8 << 20, 'x')));
  EXPECT_REFUSED("table:1 wants", read("x y inf"));
  EXPECT_REFUSED("table:1 wants", read("x y nan"));
  EXPECT_REFUSED("table:1 wants", read("x y -1"));
}

}  // namespace
}  // namespace trafo
