// pytorch_model.bin: what torch.save() writes is read, and nothing in it runs.
#include "engine/formats/torch/torch_file.h"

#include <numeric>

#include "engine/formats/hf/directory.h"
#include "tests/interop/import_support.h"
#include "tests/support/memory_meter.h"
#include "tests/support/torch_files.h"

namespace trafo {
namespace {

using namespace testing;

constexpr const char* kTorchFile = "pytorch_model.bin";

template <class T>
std::string bytes_of_numbers(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

class TorchWeightsTest : public ImportTest {
 protected:
  static std::vector<TorchTensor> tensors_of(const fs::path& safetensors) {
    const auto reader = SafetensorsReader::open(safetensors);
    std::vector<TorchTensor> tensors;
    for (const TensorInfo& info : reader.tensors()) {
      std::string bytes(info.bytes, '\0');
      reader.read(info, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
      tensors.push_back({info.name, "FloatStorage", info.shape, row_major(info.shape), bytes});
    }
    return tensors;
  }
  std::vector<float> floats(const interop::WeightFile& file, const std::string& name) {
    for (const TensorInfo& info : file.tensors())
      if (info.name == name) return interop::read_floats(file, info);
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  fs::path written(std::string_view bytes) {
    write_file_atomically(path(kTorchFile), bytes);
    return path(kTorchFile);
  }
  // Every tensor of the file is read, too.
  void refused(std::string_view bytes, const std::string& text,
               ErrorCode code = ErrorCode::corrupt_file) {
    const fs::path file = written(bytes);
    const Error error = error_of([&] {
      const interop::TorchFile opened(file);
      for (const TensorInfo& info : opened.tensors()) interop::read_floats(opened, info);
    });
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    EXPECT_TRUE(mentions(error, file.string())) << error.what();
    EXPECT_TRUE(mentions(error, text)) << text << ": " << error.what();
  }
  void refused_pickle(const std::string& pickle, const std::string& text,
                      ErrorCode code = ErrorCode::corrupt_file) {
    refused(zip_file({{"archive/data.pkl", pickle}, {"archive/data/0", std::string(24, '\0')}}),
            text, code);
  }

  const std::vector<float> numbers_ = {1, 2, 3, 4, 5, 6};
  const TorchTensor plain_{"w", "FloatStorage", {2, 3}, {3, 1}, bytes_of_numbers(numbers_)};
};

TEST_F(TorchWeightsTest, AModelIsWhatItsSafetensorsAre) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  exported(*model, ExportFormat::hf_marian, "torch");
  const fs::path directory = path("torch"), safetensors = directory / "model.safetensors";
  const std::vector<std::byte> wanted = weight_bytes(*context_, *imported(directory).model);
  const std::vector<TorchTensor> tensors = tensors_of(safetensors);
  const std::string whole = read_text_file(safetensors, 1 << 24);
  fs::remove(safetensors);
  for (const std::string& file :
       {zip_file(torch_parts(tensors)), zip_file(torch_parts(tensors), true),
        torch_older_file(tensors)}) {
    write_file_atomically(directory / kTorchFile, file);
    EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted);
  }
  // Two files and their list.
  fs::remove(directory / kTorchFile);
  std::vector<TorchTensor> parts[2];
  FileJson map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    parts[i % 2].push_back(tensors[i]);
    map[tensors[i].name] = i % 2 == 0 ? "a.bin" : "b.bin";
  }
  write_file_atomically(directory / "a.bin", zip_file(torch_parts(parts[0])));
  write_file_atomically(directory / "b.bin", torch_older_file(parts[1]));
  const fs::path list = directory / "pytorch_model.bin.index.json";
  write_file_atomically(list, FileJson{{"weight_map", map}}.dump());
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted);
  map[tensors[0].name] = "b.bin";
  write_file_atomically(list, FileJson{{"weight_map", map}}.dump());
  refused_import(directory, ErrorCode::corrupt_file, "has no such tensor");
  // Safetensors come first.
  write_file_atomically(safetensors, whole);
  write_file_atomically(directory / kTorchFile, std::string_view("no file of torch"));
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted);
  fs::remove(safetensors);
  refused_import(directory, ErrorCode::corrupt_file, "pytorch_model.bin is not a file of torch");
  fs::remove(directory / kTorchFile);
  fs::remove(list);
  refused_import(directory, ErrorCode::not_found, "there are no weights: no model.safetensors");
}

TEST_F(TorchWeightsTest, TypesViewsAndOrders) {
  std::vector<float> many(24);
  std::iota(many.begin(), many.end(), 0.0f);
  const std::vector<TorchTensor> tensors = {
      plain_,
      {"turned", "FloatStorage", {3, 2}, {1, 3}, plain_.bytes, 4, 0, "w"},
      {"row", "FloatStorage", {3}, {1}, plain_.bytes, 4, 3, "w"},
      {"column", "FloatStorage", {2}, {3}, plain_.bytes, 4, 1, "w"},
      {"scalar", "FloatStorage", {}, {}, plain_.bytes, 4, 5, "w"},
      {"none", "FloatStorage", {0, 4}, {9, 9}, plain_.bytes, 4, 0, "w"},
      {"cube", "FloatStorage", {4, 2, 3}, {1, 12, 4}, bytes_of_numbers(many)},
      {"double", "DoubleStorage", {2}, {1}, bytes_of_numbers<double>({0.5, -7}), 8},
      {"half", "HalfStorage", {2}, {1}, bytes_of_numbers<uint16_t>({0x3c00, 0xc000}), 2},
      {"brain", "BFloat16Storage", {2}, {1}, bytes_of_numbers<uint16_t>({0x3f80, 0xc000}), 2},
      {"long", "LongStorage", {1}, {1}, bytes_of_numbers<int64_t>({3}), 8}};
  std::vector<float> cube;
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 2; ++j)
      for (size_t k = 0; k < 3; ++k) cube.push_back(many[i + 12 * j + 4 * k]);
  for (const std::string& bytes : {zip_file(torch_parts(tensors)), torch_older_file(tensors)}) {
    const interop::TorchFile file(written(bytes));
    EXPECT_EQ(file.tensors().size(), tensors.size());
    EXPECT_EQ(floats(file, "w"), numbers_);
    EXPECT_EQ(floats(file, "turned"), (std::vector<float>{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(floats(file, "row"), (std::vector<float>{4, 5, 6}));
    EXPECT_EQ(floats(file, "column"), (std::vector<float>{2, 5}));
    EXPECT_EQ(floats(file, "scalar"), (std::vector<float>{6}));
    EXPECT_EQ(floats(file, "none"), std::vector<float>());
    EXPECT_EQ(floats(file, "cube"), cube);
    EXPECT_EQ(floats(file, "double"), (std::vector<float>{0.5, -7}));
    EXPECT_EQ(floats(file, "half"), (std::vector<float>{1, -2}));
    EXPECT_EQ(floats(file, "brain"), (std::vector<float>{1, -2}));
    const Error error = error_of([&] { floats(file, "long"); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_TRUE(mentions(error, "long is I64; weights are")) << error.what();
  }
}

TEST_F(TorchWeightsTest, NothingInAPickleRuns) {
  const fs::path touched = path("touched");
  PickleText hostile;
  hostile.raw("\x80\x02").global("os", "system").text("touch " + touched.string()).raw("\x85R.");
  refused_pickle(hostile.str(), "archive/data.pkl: the global 'os system' is not one of such",
                 ErrorCode::unsupported);
  PickleText inside;
  inside.raw("\x80\x02}").text("w").global("builtins", "eval").text("1").raw("\x85Rs.");
  refused_pickle(inside.str(), "the global 'builtins eval'", ErrorCode::unsupported);
  PickleText loaded;
  loaded.raw("\x80\x02").global("torch.storage", "_load_from_bytes");
  refused_pickle(loaded.str(), "'torch.storage _load_from_bytes'", ErrorCode::unsupported);
  // Protocols 0 and 1 make objects without a name, and 4 finds globals by texts of the stack.
  refused_pickle("\x80\x02(cos\nsystem\no.", "the global 'os system'", ErrorCode::unsupported);
  refused_pickle("(S'touch'\nios\nsystem\n.", "the opcode 0x53 at byte 1", ErrorCode::unsupported);
  refused_pickle(std::string("\x80\x02X\2\0\0\0osX\6\0\0\0system\x93.", 23), "the opcode 0x93",
                 ErrorCode::unsupported);
  refused_pickle("\x80\x04N.", "a pickle of protocol 4", ErrorCode::unsupported);
  refused_pickle("\x80\x02}}\x81.", "the opcode 0x81", ErrorCode::unsupported);
  refused_pickle("\x80\x02NNb.", "BUILD sets attributes of None", ErrorCode::unsupported);
  EXPECT_FALSE(fs::exists(touched));
}

TEST_F(TorchWeightsTest, TablesWithOtherThingsAreRefusedByName) {
  const auto table = [](const std::string& name, const std::string& value) {
    return PickleText().raw("\x80\x02}").text(name).raw(value).raw("s.").str();
  };
  const auto other = [&](const std::string& pickle, const std::string& text) {
    refused_pickle(pickle, text, ErrorCode::unsupported);
  };
  other(table("epoch", "K\3"), "the value of 'epoch' is no tensor but a number");
  other(table("state_dict", "}"), "the value of 'state_dict' is no tensor but a dict");
  other("\x80\x02].", "it holds a list");
  other("\x80\x02N.", "it holds None");
  TorchTensor wide = plain_;
  wide.shape = {100, 3};
  wide.strides = {0, 1};
  refused(zip_file(torch_parts({wide})), "elements of its storage more than once",
          ErrorCode::unsupported);
  TorchTensor typed = plain_;
  typed.storage = "ComplexFloatStorage";
  refused(zip_file(torch_parts({typed})), "the global 'torch ComplexFloatStorage'",
          ErrorCode::unsupported);
  ZipParts big = torch_parts({plain_});
  big[1].second = "big";
  refused(zip_file(big), "the byte order of its numbers is not little", ErrorCode::unsupported);
}

TEST_F(TorchWeightsTest, DamagedPicklesAreErrors) {
  const auto with = [&](auto change) {
    TorchTensor tensor = plain_;
    change(tensor);
    refused(zip_file({{"a/data.pkl", torch_pickle({tensor})}, {"a/data/w", plain_.bytes}}),
            "a tensor of the storage 'w' with 6 elements is not within it");
  };
  with([](TorchTensor& t) { t.offset = 1; });
  with([](TorchTensor& t) { t.offset = -1; });
  with([](TorchTensor& t) { t.offset = INT64_MAX; });
  with([](TorchTensor& t) { t.shape = {3, 3}; });
  with([](TorchTensor& t) { t.shape = {-2, 3}; });
  with([](TorchTensor& t) { t.shape = {int64_t{1} << 40, int64_t{1} << 40}; });
  with([](TorchTensor& t) { t.strides = {4, 1}; });
  with([](TorchTensor& t) { t.strides = {-3, 1}; });
  with([](TorchTensor& t) { t.strides = {INT64_MAX, INT64_MAX}; });
  with([](TorchTensor& t) { t.strides = {1}; });
  const auto pickle = [&](std::string_view text, const char* reason) {
    refused_pickle("\x80\x02" + std::string(text), reason);
  };
  pickle("", "the pickle ends too early");
  pickle("X", "the pickle ends too early");
  pickle({"X\xff\xff\xff\xff.", 6}, "the pickle ends too early");
  pickle({"X\1\0\0\0\xff.", 7}, "a text is not UTF-8");
  pickle(".", "it ends with 0 values");
  pickle("NN.", "it ends with 2 values");
  pickle("u.", "a mark is missing");
  pickle("(u.", "a value is missing");
  pickle("s.", "a value is missing");
  pickle("}(Nu.", "a key has no value");
  pickle("NNNs.", "None instead of a dict");
  pickle("}NNs.", "None instead of a text");
  pickle("NNR.", "None instead of a tuple");
  pickle("N)R.", "None instead of a global");
  pickle("\x85.", "a value is missing");
  pickle("h\1.", "the memo has nothing at 1");
  pickle({"Nr\0\0\0\1.", 7}, "the place 16777216 of the memo is too high");
  pickle({"\x8a\x09zzzzzzzzz.", 12}, "a number has 9 bytes");
  pickle("cos", "the name of a global has no end");
  pickle("(tQ.", "the name of a storage has no five parts");
  pickle("ctorch\nFloatStorage\n)R.", "a type of storages is called");
  pickle("ccollections\nOrderedDict\nN\x85R.", "an OrderedDict is made of arguments");
  pickle("ctorch._utils\n_rebuild_tensor_v2\n)R.", "a tensor has 0 arguments");
  pickle("ctorch._utils\n_rebuild_parameter\n)R.", "a parameter has 0 arguments");
  TorchTensor twice = plain_, other = plain_;
  other.name = "v";
  other.key = "w";
  other.storage = "IntStorage";
  refused(zip_file(torch_parts({twice, other})), "the storage 'w' has two types or sizes");
  refused(zip_file({{"a/data.pkl", torch_pickle({plain_, plain_})}, {"a/data/w", plain_.bytes}}),
          "there are two tensors named 'w'");
  TorchTensor unnamed = plain_;
  unnamed.name = "";
  unnamed.key = "w";
  refused(zip_file({{"a/data.pkl", torch_pickle({unnamed})}, {"a/data/w", plain_.bytes}}),
          "the name of a tensor is empty");
}

TEST_F(TorchWeightsTest, DamagedFilesAreErrors) {
  const std::string zip = zip_file(torch_parts({plain_})),
                    wide = zip_file(torch_parts({plain_}), true);
  const std::string older = torch_older_file({plain_});
  const auto changed = [&](std::string file, size_t place, char value, const char* text,
                           ErrorCode code = ErrorCode::corrupt_file) {
    file[place] = value;
    refused(file, text, code);
  };
  const size_t end = zip.rfind("PK\5\6"), list = zip.find("PK\1\2"), data = zip.find(plain_.bytes);
  refused("", "is not a file of torch.save()");
  refused("PK\3\4", "it has no end of the list of its entries");
  refused(zip.substr(0, zip.size() - 1), "it has no end of the list of its entries");
  refused(zip.substr(0, data) + zip.substr(data + 4), "is no entry");
  changed(zip, end + 10, '\x20', "entry 4 of its list is no entry");
  changed(zip, end + 11, '\x7f', "entry 4 of its list is no entry");
  changed(zip, end + 15, '\x7f', "would have 4 entries in a list of 21");
  changed(zip, end + 19, '\x7f', "are not in the file of");
  changed(zip, list + 8, '\1', "'archive/data.pkl' of the zip file is encrypted",
          ErrorCode::unsupported);
  changed(zip, list + 10, '\b', "'archive/data.pkl' of the zip file is compressed",
          ErrorCode::unsupported);
  changed(zip, list + 20, '\1', "'archive/data.pkl' has two sizes");
  changed(zip, list + 29, '\x7f', "entry 0 of its list is too long");
  changed(zip, list + 42, '\1', "'archive/data.pkl' is not where the list says");
  changed(zip, list + 45, '\1', "are not in the file of");
  changed(zip, list + 46 + 7, 'X', "has no entry NAME/data.pkl");
  changed(zip, data, '\7', "tensor 'w' is damaged, its checksum does not fit");
  changed(zip, zip.find("_rebuild_tensor_v2"), '-', "data.pkl is damaged, its checksum");
  const size_t wide_end = wide.rfind("PK\6\6");
  changed(wide, wide_end, 'X', "its 64-bit list is not where it says");
  changed(wide, wide_end + 39, '\1', "entries in a list of");
  changed(wide, wide_end + 47, '\1', "entries in a list of");
  changed(wide, wide_end + 55, '\1', "are not in the file of");
  changed(wide, wide.rfind("PK\6\7"), 'X', "the place of its 64-bit list is missing");
  changed(wide, wide.find("PK\1\2") + 46 + 16 + 2, '\x8', "a 64-bit field of an entry is missing");
  ZipParts parts = torch_parts({plain_});
  parts[2].second += "more";
  refused(zip_file(parts), "the storage 'w' has 28 bytes, its 6 elements need 24");
  parts[2].first = "archive/data/v";
  refused(zip_file(parts), "does not have the storage 'w' of the tensor 'w'");
  parts[2].first = "archive/data.pkl";
  refused(zip_file(parts), "it has two entries 'archive/data.pkl'");
  // Tensors that would need more memory than the file has bytes.
  std::vector<TorchTensor> many{plain_};
  many[0].bytes.resize(1 << 20);
  many[0].shape = {1 << 18};
  many[0].strides = {1};
  for (int i = 0; i < 10; ++i) {
    many.push_back(many[0]);
    many.back().name = concat("copy-", i);
    many.back().key = "w";
  }
  refused(zip_file(torch_parts(many)), "more than 8 times the bytes of the file");

  refused(older.substr(0, older.size() - 1), "ends inside the storage 'w'");
  refused(older.substr(0, older.size() - 25), "8 bytes at");
  refused(older.substr(0, 21), "the pickle ends too early");
  changed(older, older.size() - 32, '\7', "the storage 'w' has 7 elements, its table says 6");
  changed(older, older.rfind("w"), 'v', "has the storage 'v', which its table does not name");
  changed(older, older.find('\x88'), '\x89', "the byte order of its numbers is not little",
          ErrorCode::unsupported);
}

// Refusing takes at most the bytes of the file and limits::kRefusalBytes.
TEST_F(TorchWeightsTest, RefusingTakesLittleMemory) {
  constexpr size_t kMany = 1'600'000;
  const auto repeated = [](std::string_view part) {
    std::string text = "\x80\x02](";
    for (size_t i = 0; i < kMany; ++i) text += part;
    return text + "e.";
  };
  std::string spread = "\x80\x02N";
  for (uint32_t i = 0; i < 1'100'000; ++i)
    spread.append("r").append(reinterpret_cast<const char*>(&i), sizeof i);
  for (const std::string& pickle :
       {repeated("N"), repeated("}"), repeated("K\1\x85"), repeated("}NN"), spread,
        std::string("\x80\x02") + std::string(kMany, '(')}) {
    const std::string file = zip_file({{"archive/data.pkl", pickle}});
    const fs::path written_file = written(file);
    reset_memory_peak();
    const Error error = error_of([&] { interop::TorchFile{written_file}; });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
    EXPECT_LE(memory_peak(), static_cast<int64_t>(file.size() + limits::kRefusalBytes));
  }
}

}  // namespace
}  // namespace trafo
