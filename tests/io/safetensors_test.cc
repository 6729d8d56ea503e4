#include "engine/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

using Bytes = std::vector<std::byte>;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// A file with the given JSON and payload, as any other program might write it.
std::string raw_file(std::string_view json, std::string_view payload = "") {
  const uint64_t size = json.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file.append(json).append(payload);
}

SafetensorsReader open_text(std::string_view file) {
  return SafetensorsReader::from_memory(bytes_of(file), "test.safetensors");
}

// Reads everything there is in the file, as a loader would.
void load_all(std::span<const std::byte> file) {
  const auto reader = SafetensorsReader::from_memory(file, "test.safetensors");
  for (const TensorInfo& info : reader.tensors()) {
    Bytes out(info.bytes);
    reader.read(info, out);
  }
}

struct Sample {
  std::vector<float> f32{1.5f, -2.0f, 3.25f, 0.0f, 5.0f, 6.0f};
  std::vector<double> f64{3.14159, -1e300};
  std::vector<uint16_t> bf16{0x3f80, 0xc000, 0x7fc0};
  std::vector<int32_t> i32{7};
  std::vector<float> empty;

  std::vector<TensorEntry> entries() const {
    return {{"encoder.weight", DType::f32, {2, 3}, bytes_of(f32)},
            {"half", DType::bf16, {3}, bytes_of(bf16)},
            {"schluessel \"\\ \xc3\xbc", DType::f64, {2, 1}, bytes_of(f64)},
            {"scalar", DType::i32, {}, bytes_of(i32)},
            {"empty", DType::f32, {4, 0}, bytes_of(empty)}};
  }
};

const SafetensorsMetadata kMetadata{{"format", "pt"}, {"note", "line\nbreak \xe2\x82\xac"}};

void expect_sample(const SafetensorsReader& reader) {
  const Sample sample;
  const auto entries = sample.entries();
  ASSERT_EQ(reader.tensors().size(), entries.size());
  for (const TensorEntry& entry : entries) {
    const TensorInfo& info = reader.at(entry.name);
    EXPECT_EQ(info.dtype, entry.dtype);
    EXPECT_EQ(info.shape, entry.shape);
    Bytes out(info.bytes);
    reader.read(entry.name, out);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), entry.data.begin(), entry.data.end()))
        << entry.name;
  }
  EXPECT_EQ(reader.metadata(), kMetadata);
  EXPECT_TRUE(reader.has_checksums());
  reader.verify();
}

TEST(Safetensors, RoundTripInMemoryAndFile) {
  const Sample sample;
  const Bytes file = safetensors_to_memory(sample.entries(), kMetadata);
  expect_sample(SafetensorsReader::from_memory(file, "memory"));

  TemporaryDirectory directory;
  const auto path = directory / "model.safetensors";
  save_safetensors(path, sample.entries(), kMetadata);
  expect_sample(SafetensorsReader::open(path));
  expect_sample(SafetensorsReader::open_no_follow(path));
  EXPECT_EQ(read_file(path, 1 << 20), file);
}

TEST(Safetensors, NoTensorsAtAll) {
  const auto file = safetensors_to_memory({});
  const auto reader = SafetensorsReader::from_memory(file, "none");
  EXPECT_TRUE(reader.tensors().empty());
  EXPECT_TRUE(reader.has_checksums());
}

TEST(Safetensors, SameContentGivesTheSameBytesInAnyOrder) {
  const Sample sample;
  auto entries = sample.entries();
  const Bytes first = safetensors_to_memory(entries, kMetadata);
  EXPECT_EQ(safetensors_to_memory(entries, kMetadata), first);
  std::reverse(entries.begin(), entries.end());
  EXPECT_EQ(safetensors_to_memory(entries, kMetadata), first);
}

TEST(Safetensors, EveryTensorIsAlignedInTheFile) {
  const Sample sample;
  const Bytes file = safetensors_to_memory(sample.entries());
  uint64_t header_size;
  std::memcpy(&header_size, file.data(), 8);
  EXPECT_EQ(header_size % 8, 0u);
  const auto reader = SafetensorsReader::from_memory(file, "aligned");
  for (const TensorInfo& info : reader.tensors())
    EXPECT_EQ(info.offset % dtype_size(info.dtype), 0u) << info.name;
}

TEST(Safetensors, ReadChecksNameAndSize) {
  const Sample sample;
  const Bytes file = safetensors_to_memory(sample.entries());
  const auto reader = SafetensorsReader::from_memory(file, "sample");
  EXPECT_EQ(reader.find("absent"), nullptr);
  const Error absent = error_of([&] { reader.at("absent"); });
  EXPECT_EQ(absent.code(), ErrorCode::not_found);
  EXPECT_TRUE(mentions(absent, "absent") && mentions(absent, "sample")) << absent.what();
  Bytes small(23);
  EXPECT_EQ(error_of([&] { reader.read("encoder.weight", small); }).code(),
            ErrorCode::shape_mismatch);
  EXPECT_EQ(small, Bytes(23));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const Sample sample;
  const Bytes file = safetensors_to_memory(sample.entries(), kMetadata);
  for (size_t length = 0; length < file.size(); ++length) {
    const Error error = error_of([&] { load_all(std::span(file).first(length)); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << length << ": " << error.what();
    EXPECT_TRUE(mentions(error, "test.safetensors")) << error.what();
  }
  Bytes longer = file;
  longer.push_back(std::byte{0});
  EXPECT_EQ(error_of([&] { load_all(longer); }).code(), ErrorCode::corrupt_file);
}

TEST(Safetensors, TruncatedFilesOnDiskAreRefused) {
  TemporaryDirectory directory;
  const Sample sample;
  const auto path = directory / "model.safetensors";
  save_safetensors(path, sample.entries());
  const std::string whole = slurp(path);
  for (size_t length = 0; length < whole.size(); length += 13) {
    spill(path, std::string_view(whole).substr(0, length));
    const Error error = error_of([&] { SafetensorsReader::open(path); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << length;
    EXPECT_TRUE(mentions(error, path.string())) << error.what();
  }
}

TEST(Safetensors, EveryFlippedBitIsRefused) {
  const Sample sample;
  Bytes file = safetensors_to_memory(sample.entries(), kMetadata);
  ASSERT_LE(file.size(), 4096u);
  uint64_t header_size;
  std::memcpy(&header_size, file.data(), 8);
  const auto intact = SafetensorsReader::from_memory(file, "intact").tensors();
  const auto tensor_at = [&](uint64_t offset) {
    for (const TensorInfo& info : intact)
      if (offset >= info.offset && offset < info.offset + info.bytes) return info.name;
    return std::string();
  };
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    const std::byte mask{static_cast<unsigned char>(1u << (bit % 8))};
    file[bit / 8] ^= mask;
    const Error error = error_of([&] { load_all(file); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << "bit " << bit << ": " << error.what();
    EXPECT_TRUE(mentions(error, "test.safetensors")) << error.what();
    if (bit / 8 >= 8 + header_size) {
      const std::string name = concat("'", tensor_at(bit / 8 - 8 - header_size), "'");
      EXPECT_TRUE(mentions(error, name)) << "bit " << bit << ": " << error.what();
      const auto reader = SafetensorsReader::from_memory(file, "verify");
      EXPECT_TRUE(mentions(error_of([&] { reader.verify(); }), name));
    }
    file[bit / 8] ^= mask;
  }
  load_all(file);
}

TEST(Safetensors, VerifyReadsTensorsLargerThanOnePiece) {
  std::vector<float> values((3 << 20) / 4 + 5);
  std::iota(values.begin(), values.end(), 0.0f);
  const TensorEntry entry{
      "large", DType::f32, {static_cast<int64_t>(values.size())}, bytes_of(values)};
  Bytes file = safetensors_to_memory(std::span(&entry, 1));
  SafetensorsReader::from_memory(file, "large").verify();
  file[file.size() - (1 << 20)] ^= std::byte{1};
  const auto reader = SafetensorsReader::from_memory(file, "large");
  EXPECT_EQ(error_of([&] { reader.verify(); }).code(), ErrorCode::corrupt_file);
}

TEST(Safetensors, FilesFromElsewhereLoadWithoutChecksums) {
  const std::string file = raw_file(
      R"({"b":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}, "__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[0,8],"shape":[2,1],"dtype":"F32"}}   )",
      "abcdefgh\x01\x02\x03\x04");
  const auto reader = open_text(file);
  EXPECT_FALSE(reader.has_checksums());
  EXPECT_EQ(reader.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(reader.tensors().size(), 2u);
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[0].shape, (std::vector<int64_t>{2, 1}));
  int32_t value = 0;
  reader.read("b", std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 0x04030201);
  reader.verify();
  EXPECT_TRUE(open_text(raw_file("{}")).tensors().empty());
}

TEST(Safetensors, OurKeysWithoutTheirChecksumsAreDamage) {
  for (const char* json : {R"({"__metadata__":{"trafo.format":"1"}})",
                           R"({"__metadata__":{"trafo.crc32.a":"00000000"}})",
                           R"({"__metadata__":{"a":"b","trafo.header_crc32":"00000000"}})",
                           R"({"__metadata__":{"trafo.header_crc32":"00000000"}})",
                           R"({"__metadata__":{"trafo.":""}})"})
    EXPECT_EQ(error_of([&] { open_text(raw_file(json)); }).code(), ErrorCode::corrupt_file) << json;
}

TEST(Safetensors, ANewerFormatIsNamedAsSuch) {
  const Bytes file = safetensors_to_memory({});
  std::string json(reinterpret_cast<const char*>(file.data()) + 8, file.size() - 8);
  const std::string format = R"("trafo.format":"1")";
  json.replace(json.find(format), format.size(), R"("trafo.format":"2")");
  EXPECT_EQ(error_of([&] { open_text(raw_file(json)); }).code(), ErrorCode::corrupt_file);
  seal_text(json, json.find("header_crc32\":\"") + 15);
  const Error error = error_of([&] { open_text(raw_file(json)); });
  EXPECT_EQ(error.code(), ErrorCode::version) << error.what();
}

// One tensor "t" with the given fields and payload.
std::string tensor_json(std::string_view fields) {
  return concat(R"({"t":{)", fields, "}}");
}

struct Hostile {
  const char* what;
  std::string json;
  std::string payload;
};

TEST(Safetensors, HostileHeadersAreRefused) {
  const auto t = [](const char* what, std::string_view fields, std::string payload = "") {
    return Hostile{what, tensor_json(fields), std::move(payload)};
  };
  const std::string four = "abcd";
  const Hostile cases[] = {
      {"empty header", "", ""},
      {"not an object", "[]", ""},
      {"leading space", " {}", ""},
      {"byte order mark", "\xef\xbb\xbf{}", ""},
      {"garbage behind", "{}x", ""},
      {"second object", "{}{}", ""},
      {"NUL behind", std::string("{}\0garbage", 10), ""},
      {"NUL inside", std::string("{\0}", 3), ""},
      {"unfinished", "{", ""},
      {"comment", "{/* */}", ""},
      {"trailing comma", R"({"__metadata__":{},})", ""},
      {"data nobody owns", "{}", "x"},
      {"tensor is a number", R"({"t":1})", ""},
      {"tensor is null", R"({"t":null})", ""},
      {"tensor is a string", R"({"t":"F32"})", ""},
      {"tensor is a list", R"({"t":[]})", ""},
      {"tensor is empty", R"({"t":{}})", ""},
      t("no shape", R"("dtype":"F32","data_offsets":[0,4])", four),
      t("no dtype", R"("shape":[1],"data_offsets":[0,4])", four),
      t("no offsets", R"("dtype":"F32","shape":[1])", four),
      t("unknown field", R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)", four),
      t("field twice", R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])", four),
      t("shape twice", R"("dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4])", four),
      t("dtype is a number", R"("dtype":0,"shape":[1],"data_offsets":[0,4])", four),
      t("dtype is a list", R"("dtype":["F32"],"shape":[1],"data_offsets":[0,4])", four),
      t("shape is a number", R"("dtype":"F32","shape":1,"data_offsets":[0,4])", four),
      t("shape is a string", R"("dtype":"F32","shape":"1","data_offsets":[0,4])", four),
      t("shape of strings", R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])", four),
      t("nested shape", R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])", four),
      t("object in shape", R"("dtype":"F32","shape":[{}],"data_offsets":[0,4])", four),
      t("shape of true", R"("dtype":"F32","shape":[true],"data_offsets":[0,4])", four),
      t("negative dimension", R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", four),
      t("two negatives", R"("dtype":"F32","shape":[-1,-1],"data_offsets":[0,4])", four),
      t("negative zero", R"("dtype":"F32","shape":[-0],"data_offsets":[0,0])"),
      t("fraction", R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])", four),
      t("exponent", R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])", four),
      t("leading zero", R"("dtype":"F32","shape":[01],"data_offsets":[0,4])", four),
      t("beyond 64 bits", R"("dtype":"F32","shape":[18446744073709551617],"data_offsets":[0,4])",
        four),
      t("2^64 - 1", R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])", four),
      t("2^63", R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])", four),
      t("product 2^64", R"("dtype":"F32","shape":[1099511627776,4194304],"data_offsets":[0,0])"),
      t("product 2^64 + 4",
        R"("dtype":"F32","shape":[1073741825,17179869180],"data_offsets":[0,4])", four),
      t("negative offset", R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])", four),
      t("one offset", R"("dtype":"F32","shape":[1],"data_offsets":[4])", four),
      t("no offset", R"("dtype":"F32","shape":[1],"data_offsets":[])", four),
      t("three offsets", R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])", four),
      t("offsets backwards", R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", four),
      t("offsets beyond the file", R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", four),
      t("huge offsets",
        R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615])",
        four),
      t("shape larger than offsets", R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", four),
      t("shape smaller than offsets", R"("dtype":"BF16","shape":[1],"data_offsets":[0,4])", four),
      t("hole before", R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", "abcdefgh"),
      t("hole behind", R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", "abcdefgh"),
      {"hole between",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       "abcdefghijkl"},
      {"overlap",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       "abcdefghijkl"},
      {"same bytes twice",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "abcd"},
      {"empty tensor inside another",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}})",
       "abcd"},
      {"name twice",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "abcdefgh"},
      {"same name escaped",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("\u0061":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "abcdefgh"},
      {"empty name", R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four},
      {"NUL in name", R"({"a\u0000b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four},
      {"invalid UTF-8 in name",
       "{\"a\xff\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", ""},
      {"overlong UTF-8", "{\"\xc0\xaf\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
       ""},
      {"UTF-8 surrogate",
       "{\"\xed\xa0\x80\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", ""},
      {"lone escaped surrogate", R"({"\ud800":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
       ""},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", ""},
      {"metadata is a string", R"({"__metadata__":"x"})", ""},
      {"metadata of numbers", R"({"__metadata__":{"a":1}})", ""},
      {"metadata of objects", R"({"__metadata__":{"a":{}}})", ""},
      {"metadata of lists", R"({"__metadata__":{"a":[]}})", ""},
      {"metadata of null", R"({"__metadata__":{"a":null}})", ""},
      {"metadata key twice", R"({"__metadata__":{"a":"1","a":"1"}})", ""},
      {"NUL in metadata", R"({"__metadata__":{"a":"\u0000"}})", ""},
      {"deep lists", tensor_json(concat("\"shape\":", std::string(1 << 20, '['))), ""},
      {"deep objects",
       [] {
         std::string json;
         for (int i = 0; i < 200000; ++i) json += "{\"a\":";
         return json;
       }(),
       ""},
  };
  for (const Hostile& hostile : cases) {
    const Error error = error_of([&] { open_text(raw_file(hostile.json, hostile.payload)); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << hostile.what << ": " << error.what();
    EXPECT_TRUE(mentions(error, "test.safetensors")) << hostile.what << ": " << error.what();
  }
}

TEST(Safetensors, HostileHeaderLengths) {
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{limits::kHeaderBytes}, limits::kHeaderBytes + 1, uint64_t{1} << 31,
        uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0} - 7, ~uint64_t{0}}) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    file += "{}";
    EXPECT_EQ(error_of([&] { open_text(file); }).code(), ErrorCode::corrupt_file) << length;
  }
}

TEST(Safetensors, OtherDtypesAreUnsupportedAndNamed) {
  for (const char* dtype : {"F16", "I64", "BOOL", "U8", "F8_E4M3", "f32", ""}) {
    const Error error = error_of([&] {
      open_text(raw_file(
          concat(R"({"mask":{"dtype":")", dtype, R"(","shape":[1],"data_offsets":[0,4]}})"),
          "abcd"));
    });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_TRUE(mentions(error, "'mask'") && mentions(error, concat("'", dtype, "'")))
        << error.what();
  }
}

TEST(Safetensors, LimitsHoldAtAndBeyondTheirValue) {
  const auto empty = [](std::string_view name, std::string_view shape) {
    return concat("\"", name, R"(":{"dtype":"F32","shape":[)", shape, R"(],"data_offsets":[0,0]})");
  };
  const auto opens = [&](const std::string& json) {
    try {
      open_text(raw_file(json));
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
      return false;
    }
  };
  EXPECT_TRUE(opens(concat("{", empty(std::string(1024, 'n'), "0"), "}")));
  EXPECT_FALSE(opens(concat("{", empty(std::string(1025, 'n'), "0"), "}")));
  EXPECT_TRUE(opens(concat("{", empty("t", "0,1,1,1,1,1,1,1"), "}")));
  EXPECT_FALSE(opens(concat("{", empty("t", "0,1,1,1,1,1,1,1,1"), "}")));
  EXPECT_TRUE(opens(concat("{", empty("t", "1099511627776,0"), "}")));
  EXPECT_FALSE(opens(concat("{", empty("t", "1099511627777,0"), "}")));
  EXPECT_TRUE(opens(concat(R"({"__metadata__":{"a":")", std::string(65536, 'v'), "\"}}")));
  EXPECT_FALSE(opens(concat(R"({"__metadata__":{"a":")", std::string(65537, 'v'), "\"}}")));

  std::string many = concat("{", empty("t0", "0"));
  for (int i = 1; i < 65536; ++i) many += concat(",", empty(concat("t", i), "0"));
  EXPECT_TRUE(opens(many + "}"));
  EXPECT_FALSE(opens(concat(many, ",", empty("last", "0"), "}")));

  std::string padded = "{}";
  padded.resize(16 << 20, ' ');
  EXPECT_TRUE(opens(padded));
  EXPECT_FALSE(opens(padded + " "));
}

TEST(Safetensors, MessagesShowNoControlCharacters) {
  const Error error =
      error_of([] { open_text(raw_file(R"({"\u001b[31mred":{"dtype":"\u0007","shape":[]}})")); });
  EXPECT_TRUE(mentions(error, "'?[31mred'")) << error.what();
  for (const char c : error.message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
}

TEST(Safetensors, WriterRefusesWhatTheReaderWould) {
  const std::vector<float> one{1.0f};
  const auto code_of = [&](std::vector<TensorEntry> entries, SafetensorsMetadata metadata = {}) {
    return error_of([&] { safetensors_to_memory(entries, metadata); }).code();
  };
  const auto named = [&](std::string name) {
    return std::vector<TensorEntry>{{std::move(name), DType::f32, {1}, bytes_of(one)}};
  };
  const auto shaped = [&](std::vector<int64_t> shape) {
    return std::vector<TensorEntry>{{"t", DType::f32, std::move(shape), bytes_of(one)}};
  };
  const auto invalid = ErrorCode::invalid_argument;
  for (const std::string& name :
       {std::string(), std::string("__metadata__"), std::string("a\0b", 3), std::string("\xff"),
        std::string("\xc0\xaf"), std::string("\xed\xa0\x80"), std::string("\xe2\x82"),
        std::string("\xf5\x80\x80\x80"), std::string("\xf4\x90\x80\x80"), std::string("\x80"),
        std::string("\xe0\x80\x80"), std::string("\xf0\x80\x80\x80"), std::string(1025, 'n')})
    EXPECT_EQ(code_of(named(name)), invalid) << name;
  EXPECT_EQ(code_of(shaped({2})), invalid);
  EXPECT_EQ(code_of(shaped({-1, -1})), invalid);
  EXPECT_EQ(code_of(shaped({1, 1, 1, 1, 1, 1, 1, 1, 1})), invalid);
  EXPECT_EQ(code_of(shaped({int64_t{1} << 40, int64_t{1} << 40})), invalid);
  EXPECT_EQ(code_of({named("a")[0], named("a")[0]}), invalid);
  EXPECT_EQ(code_of({}, {{"trafo.anything", "x"}}), invalid);
  EXPECT_EQ(code_of({}, {{"key", "\xff"}}), invalid);
  EXPECT_EQ(code_of({}, {{std::string(1025, 'k'), ""}}), invalid);
  EXPECT_EQ(code_of({}, {{"key", std::string(65537, 'v')}}), invalid);
  EXPECT_EQ(safetensors_to_memory(named("\xf4\x8f\xbf\xbf")).size() % 4, 0u);
}

TEST(Safetensors, ALongNameSurvivesWithItsChecksum) {
  const std::vector<float> one{1.0f};
  const TensorEntry entry{std::string(1024, 'n'), DType::f32, {1}, bytes_of(one)};
  load_all(safetensors_to_memory(std::span(&entry, 1), {{std::string(1024, 'k'), "v"}}));
}

TEST(Safetensors, FilesThatAreNotThereOrNotFiles) {
  TemporaryDirectory directory;
  EXPECT_EQ(error_of([&] { SafetensorsReader::open(directory / "absent"); }).code(),
            ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { SafetensorsReader::open(directory.path()); }).code(), ErrorCode::io);
  save_safetensors(directory / "file", {});
  std::filesystem::create_symlink(directory / "file", directory / "link");
  SafetensorsReader::open(directory / "link");
  EXPECT_EQ(error_of([&] { SafetensorsReader::open_no_follow(directory / "link"); }).code(),
            ErrorCode::io);
}

TEST(Safetensors, AFileThatShrinksAfterOpeningIsRefused) {
  TemporaryDirectory directory;
  const Sample sample;
  const auto path = directory / "model.safetensors";
  save_safetensors(path, sample.entries());
  const auto reader = SafetensorsReader::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(error_of([&] { reader.verify(); }).code(), ErrorCode::corrupt_file);
  const TensorInfo& last = reader.tensors().back();
  Bytes out(last.bytes);
  EXPECT_EQ(error_of([&] { reader.read(last, out); }).code(), ErrorCode::corrupt_file);
}

}  // namespace
}  // namespace trafo
