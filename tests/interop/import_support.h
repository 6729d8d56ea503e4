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
