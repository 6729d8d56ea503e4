// The configuration of ModernBertModel of transformers and its heads, for bert.cc.
#pragma once

#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"

namespace trafo::interop {

// The keys that other encoders do not have.
void put_modernbert_config(const HostModel& host, const ExportVocabulary& vocabulary, Json& json);
// The options beside class, head and labels. UNSUPPORTED names a key that no option expresses.
void read_modernbert_config(const ConfigReader& json, ModelConfig& config);

}  // namespace trafo::interop
