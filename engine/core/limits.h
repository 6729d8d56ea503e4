// Bounds on what a file may ask for. A file may be hostile, so each count and size in it is
// compared with these limits, and with the bytes that are left, before anything of that size is
// allocated. Refusing a file takes at most its own size plus kRefusalBytes of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trafo::limits {

inline constexpr uint64_t kRefusalBytes = 64u << 20;

// safetensors
inline constexpr uint64_t kHeaderBytes = 16u << 20;
inline constexpr size_t kTensors = 65536;
inline constexpr size_t kMetadataPairs = 2 * kTensors;
inline constexpr size_t kRank = 8;
inline constexpr int64_t kDimension = int64_t{1} << 40;
inline constexpr size_t kNameBytes = 1024;  // of a tensor; metadata keys also have our prefix
inline constexpr size_t kMetadataValueBytes = 64u << 10;

// JSON: configurations, manifests, training states
inline constexpr uint64_t kConfigBytes = 1u << 20;
inline constexpr int kNesting = 16;
inline constexpr size_t kMembers = 65536;         // of one object
inline constexpr size_t kCheckpointFiles = 1024;  // of a manifest or a stream

// training state
inline constexpr int64_t kCount = int64_t{1} << 53;  // updates, tokens, ...: exact in a double
inline constexpr int64_t kEpochs = int64_t{1} << 30;

// vocabularies and text
inline constexpr int kVocabulary = 1 << 22;
// SentencePiece builds the trie of the subwords with one recursion per byte.
inline constexpr int kSubwordBytes = 1 << 10;
inline constexpr size_t kMappedBytes = 1 << 10;  // text of one entry of a character map
// The normal form of a text has at most kNormalizedGrowth times its bytes and at most
// kNormalizedExtra bytes more. Up to kNormalizedFree bytes are always allowed.
inline constexpr size_t kNormalizedGrowth = 16;
inline constexpr size_t kNormalizedExtra = 4u << 20;
inline constexpr size_t kNormalizedFree = 64u << 10;
inline constexpr size_t kTrainingSentenceBytes = 4192;    // SentencePiece skips longer ones
inline constexpr size_t kDecodedBytes = 64u << 20;        // by a model with a denormalizer
inline constexpr uint64_t kTokenizerBytes = 256u << 20;   // vocabulary file of another program
inline constexpr uint64_t kVocabularyBytes = 256u << 20;  // vocab.json of another program
inline constexpr size_t kLineBytes = size_t{1} << 20;     // the default of a setting
inline constexpr int kTextOffsetBits = 43;                // a corpus on disk: 8 TiB

// model configurations
inline constexpr int64_t kModelDimension = int64_t{1} << 24;  // width, ffn_width, positions
inline constexpr int64_t kLayers = 1024;
inline constexpr int64_t kTiedLayers = 32;  // of a stack whose layers share parameters

}  // namespace trafo::limits
