// What lies in a run directory, found from outside: its checkpoints and where its names point.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace translate_train {

inline constexpr const char* kModelFile = "model.safetensors";

// Updates of RUN/ckpt/UPDATE that have a model, ascending.
std::vector<int64_t> checkpoints_of(const std::string& run);
// "RUN/ckpt/UPDATE" that RUN/NAME points to, NAME being "latest", "best-bleu", ...; empty: none.
std::string pointed_checkpoint(const std::string& run, const std::string& name);
// The best checkpoint by BLEU, else the latest; empty: none.
std::string usual_checkpoint(const std::string& run);

// Writes a small file whole or not at all; false: it could not be written, and is as it was.
bool replace_file(const std::string& path, std::string_view text);
// The same, or throws.
void write_file(const std::string& path, std::string_view text);

}  // namespace translate_train
