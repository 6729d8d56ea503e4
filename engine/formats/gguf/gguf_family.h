// Families of models in GGUF files: the tensors and keys of llama.cpp's architectures, and back.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/expressible.h"
#include "engine/formats/gguf/gguf_file.h"
#include "engine/formats/tensor_map.h"

namespace trafo::interop {

inline constexpr const char* kGgufFormat = "GGUF";

// A tensor of the file, and where it comes from.
struct GgufPlaced {
  std::string name;
  MappedTensor ours;
  int64_t head_rows = 0;    // of a head, where the two halves of each are interleaved; otherwise 0
  bool is_float32 = false;  // also where matrices are stored in fewer bits
  float factor = 1;         // times ours is the tensor; if not 1, another tensor has ours as it is
};

// The keys of a file that begin with the name of its architecture. CORRUPT_FILE names the file and
// a key that it has not.
class GgufKeys {
 public:
  explicit GgufKeys(const GgufReader& in);

  const std::string& architecture() const { return architecture_; }
  bool has(std::string_view tensor) const;
  template <class T>
  const T* find(const char* key, T /*kind*/) const {
    const GgufValue* value = find_value(concat(architecture_, ".", key));
    return value == nullptr ? nullptr : std::get_if<T>(value);
  }
  template <class T>
  T at(const char* key, T kind) const {
    const T* value = find(key, kind);
    require(value != nullptr, ErrorCode::corrupt_file, kOrigin, in_.label(), " has no ",
            architecture_, ".", key);
    return *value;
  }
  int64_t count(const char* key) const { return at(key, uint32_t{}); }

 private:
  const GgufValue* find_value(const std::string& key) const;
  const GgufReader& in_;
  std::string architecture_;
};

// Adds a key, whose name the architecture's is put before.
using AddGgufKey = std::function<void(const char* key, GgufValue value)>;

// Models that have a form. Each function gets one, and the name of its architecture.
struct GgufFamily {
  struct Architecture {
    const char* name;
    Form form;
  };
  std::vector<Architecture> architectures;
  // Throws UNSUPPORTED with the name of a setting that no form says.
  void (*check)(const ModelSpec& spec, std::string_view name);
  // token_embd.weight is the first.
  std::vector<GgufPlaced> (*tensors)(const ModelConfig& config, const ModelSpec& spec,
                                     std::string_view name);
  // Adds the keys that the families do not share.
  void (*add_keys)(const ModelSpec& spec, std::string_view name, const AddGgufKey& add);
  // The model that the file describes, by the keys that llama.cpp reads. Shared keys are read.
  void (*describe)(const GgufKeys& keys, ModelConfig& config);
};

const GgufFamily& gguf_llama();
const GgufFamily& gguf_gpt2();
const GgufFamily& gguf_t5();

// Numbers by which llama.cpp divides the angle of each pair of a head: the positions of Llama 3.
// Empty: no angle is divided, or the metadata say by how much.
std::vector<float> gguf_rope_divisors(const ModelSpec& spec);

}  // namespace trafo::interop
