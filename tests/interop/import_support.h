// Directories of other programs that tests change before they import them.
#pragma once

#include "tests/interop/interop_support.h"

namespace trafo::testing {

class ImportTest : public InteropTest {
 protected:
  // A directory of a random Llama model, as hf-llama writes it.
  fs::path llama(const std::string& name, const ModelConfig& config) {
    model_ = model_of(config);
    exported(*model_, ExportFormat::hf_llama, name);
    return path(name);
  }
  fs::path llama(const std::string& name) { return llama(name, llama_config(1, true)); }
  ImportedModel imported(const fs::path& directory) { return import_model(*context_, directory); }
  void refused_import(const fs::path& directory, ErrorCode code, const std::string& text) {
    const Error error = error_of([&] { imported(directory); });
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    EXPECT_TRUE(mentions(error, text)) << text << ": " << error.what();
  }
  static void edit_config(const fs::path& directory, const std::function<void(FileJson&)>& change) {
    edit_json(directory / "config.json", change);
  }

  // The matrix of the embeddings under other names, and the names of a base class.
  void expect_same_weights_with_other_names(const fs::path& directory) {
    const auto wanted = weight_bytes(*context_, *model_);
    const char* names[] = {"model.shared.weight", "model.decoder.embed_tokens.weight",
                           "model.encoder.embed_tokens.weight", "lm_head.weight"};
    std::string before = names[0];
    for (const char* name : {names[1], names[2], names[3], names[0]}) {
      edit_tensors(directory, [&](std::vector<Stored>& all) { find(all, before).name = name; });
      EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted) << name;
      before = name;
    }
    // A copy may differ from the matrix that is read.
    edit_tensors(directory, [&](std::vector<Stored>& all) {
      Stored copy = find(all, names[0]);
      find(all, names[0]).name = names[1];
      copy.name = names[2];
      copy.bytes.front() ^= std::byte{1};
      all.push_back(std::move(copy));
    });
    refused_import(directory, ErrorCode::corrupt_file, "differ");
    edit_tensors(directory, [&](std::vector<Stored>& all) {
      std::erase_if(all, [&](const Stored& tensor) { return tensor.name == names[2]; });
      find(all, names[1]).name = names[0];
      for (Stored& tensor : all)
        if (tensor.name.starts_with("model.")) tensor.name.erase(0, 6);
    });
    EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted);
    edit_tensors(directory, [&](std::vector<Stored>& all) {
      find(all, "shared.weight").name = "decoder.embed_tokens.weight";
    });
    EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), wanted);
    edit_tensors(directory, [&](std::vector<Stored>& all) {
      std::erase_if(
          all, [&](const Stored& tensor) { return tensor.name == "decoder.embed_tokens.weight"; });
    });
    refused_import(directory, ErrorCode::corrupt_file, "shared.weight");
  }

  // ---- several files ----

  static void edit_map(const fs::path& directory, const std::function<void(FileJson&)>& change) {
    edit_json(directory / kWeightList, [&](FileJson& json) { change(json["weight_map"]); });
  }

  // ---- tokenizer.json ----

  fs::path resaved(const std::string& name) {
    const fs::path directory = llama(name);
    fs::remove(directory / "tokenizer.model");
    return directory;
  }
  // Changes the tokenizer.json of a directory; what becomes of it is no tokenizer, and the note
  // says why, or an error.
  void no_tokenizer(const char* text, const std::function<void(FileJson&)>& change) {
    const fs::path directory = resaved("other");
    edit_json(directory / "tokenizer.json", change);
    const ImportedModel result = imported(directory);
    EXPECT_FALSE(result.tokenizer.has_value()) << text;
    EXPECT_TRUE(contains(result.note, text)) << text << ": " << result.note;
    fs::remove_all(directory);
  }
  void damaged_tokenizer(const char* text, const std::function<void(FileJson&)>& change) {
    const fs::path directory = resaved("damaged");
    edit_json(directory / "tokenizer.json", change);
    refused_import(directory, ErrorCode::corrupt_file, text);
    fs::remove_all(directory);
  }

  std::unique_ptr<Model> model_;
};

}  // namespace trafo::testing
