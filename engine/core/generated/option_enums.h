// Written by scripts/generate_options.py from schema/enums.toml: change that.
// clang-format off
#pragma once

#include "engine/core/enum_names.h"

namespace trafo {

// Kinds of models. Values are part of the C ABI.
enum class Architecture : int32_t {
  // Encoder and decoder with cross-attention.
  encoder_decoder = 0,
  // `source <eos> target <eos>` in one causal stream.
  decoder_lm = 1,
  // A bidirectional stream of one text, or of two, with a head for labels or masked tokens, as
  // BERT.
  encoder = 2,
};
template <>
struct EnumNames<Architecture> {
  static constexpr std::array<const char*, 3> names{"encoder-decoder", "decoder-lm", "encoder"};
};

// The classes of transformers that an encoder is imported from and exported to. The first three
// compute the same. The names of their weights and the first position differ. Values are part of
// the C ABI.
enum class EncoderClass : int32_t {
  // BertModel and its heads.
  bert = 0,
  // RobertaModel and its heads.
  roberta = 1,
  // XLMRobertaModel and its heads.
  xlm_roberta = 2,
  // ModernBertModel and its heads: pre-norm, rotary positions, gated feed-forward blocks, a
  // window in most layers.
  modernbert = 3,
};
template <>
struct EnumNames<EncoderClass> {
  static constexpr std::array<const char*, 4> names{"bert", "roberta", "xlm-roberta", "modernbert"};
};

// Layers on top of the hidden states of an encoder. Values are part of the C ABI.
enum class EncoderHead : int32_t {
  // Nothing.
  none = 0,
  // Logits over the vocabulary, one row for each token.
  masked_lm = 1,
  // Logits over the labels, one row for each text.
  sequence = 2,
  // Logits over the labels, one row for each token.
  token = 3,
};
template <>
struct EnumNames<EncoderHead> {
  static constexpr std::array<const char*, 4> names{"none", "masked-lm", "sequence", "token"};
};

// How the hidden states of a text become one vector. Values are part of the C ABI.
enum class Pooling : int32_t {
  // The mean over all tokens, the special ones included.
  mean = 0,
  // The hidden state of the first token.
  first = 1,
};
template <>
struct EnumNames<Pooling> {
  static constexpr std::array<const char*, 2> names{"mean", "first"};
};

// Activations of feed-forward layers. Values are part of the C ABI.
enum class Activation : int32_t {
  // max(x, 0).
  relu = 0,
  // GELU, tanh form.
  gelu = 1,
  // x sigmoid(x), also called swish.
  silu = 2,
  // GELU, exact: x Phi(x) with the error function.
  gelu_erf = 3,
};
template <>
struct EnumNames<Activation> {
  static constexpr std::array<const char*, 4> names{"relu", "gelu", "silu", "gelu_erf"};
};

// The norm of a model. Values are part of the C ABI.
enum class Norm : int32_t {
  // Layer norm.
  layer = 0,
  // RMS norm, without biases.
  rms = 1,
};
template <>
struct EnumNames<Norm> {
  static constexpr std::array<const char*, 2> names{"layer", "rms"};
};

// How a model knows the position of a token. Values are part of the C ABI.
enum class Positions : int32_t {
  // Sinusoidal (encoder-decoder) or learned (decoder-lm).
  standard = 0,
  // Rotary position embedding of queries and keys. A decoder-lm only.
  rotary = 1,
};
template <>
struct EnumNames<Positions> {
  static constexpr std::array<const char*, 2> names{"standard", "rotary"};
};

// The norm of queries and keys of self-attention. Values are part of the C ABI.
enum class QkNorm : int32_t {
  // There is none.
  none = 0,
  // RMS norm of each head before the rotary positions, with one vector of weights for queries and
  // one for keys, as in Qwen3. A decoder-lm only.
  head = 1,
  // The same after the rotary positions, as in Hunyuan.
  head_after_rotary = 2,
  // RMS norm of all queries and of all keys of a token before the rotary positions, as in OLMo 2.
  // A decoder-lm only.
  whole = 3,
};
template <>
struct EnumNames<QkNorm> {
  static constexpr std::array<const char*, 4> names{"none", "head", "head-after-rotary", "whole"};
};

// How rotary positions are stretched from a number of original positions. Values are part of the
// C ABI.
enum class RopeScaling : int32_t {
  // By the turns of a pair in the original positions, as in Llama 3.1.
  llama3 = 0,
  // By the number of a pair, and queries and keys grow (YaRN, Peng et al., arXiv 2309.00071).
  yarn = 1,
};
template <>
struct EnumNames<RopeScaling> {
  static constexpr std::array<const char*, 2> names{"llama3", "yarn"};
};

// Formats of the frozen matrices of linear layers in a model that trains an adapter (QLoRA,
// Dettmers et al., arXiv 2305.14314). Values are part of the C ABI.
enum class BasePrecision : int32_t {
  // Floating point, as the other parameters.
  none = 0,
  // NormalFloat in 4 bits, in blocks of 64 with scales in 8 bits (double quantization); 4.13 bits
  // a weight.
  nf4 = 1,
  // Integers in 8 bits with a scale for each row.
  int8 = 2,
  // Integers in 4 bits with a float16 scale for 32 columns of a row; 4.5 bits a weight.
  int4 = 3,
};
template <>
struct EnumNames<BasePrecision> {
  static constexpr std::array<const char*, 4> names{"none", "nf4", "int8", "int4"};
};

// The feed-forward blocks of a model. Values are part of the C ABI.
enum class FeedForward : int32_t {
  // Two linear layers with an activation between them.
  plain = 0,
  // A gated unit with SiLU.
  swiglu = 1,
  // A gated unit with the tanh form of GELU, as in Gemma and T5 1.1.
  geglu = 2,
};
template <>
struct EnumNames<FeedForward> {
  static constexpr std::array<const char*, 3> names{"plain", "swiglu", "geglu"};
};

// How the learning rate goes after the warm-up. Values are part of the C ABI.
enum class ScheduleKind : int32_t {
  // It stays at its peak.
  constant = 0,
  // It falls on a line from its peak to 0 at update schedule_updates, which must be set.
  linear = 1,
  // It falls on half a cosine from its peak to 0 at update schedule_updates, which must be set.
  cosine = 2,
  // It falls with the square root of the update.
  inverse_sqrt = 3,
  // The schedule of the first transformer.
  noam = 4,
  // It is the smaller one of its peak and 1 / sqrt(update): Adafactor's relative step.
  relative_step = 5,
};
template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array<const char*, 6> names{"constant", "linear", "cosine", "inv-sqrt", "noam", "relative-step"};
};

// How the weights follow their gradients. Values are part of the C ABI.
enum class OptimizerKind : int32_t {
  // AdamW; with weight_decay 0 it is Adam.
  adamw = 0,
  // Stochastic gradient descent; weight_decay is added to the gradient.
  sgd = 1,
  // Muon: orthogonalized momentum for the matrices of linear layers, AdamW for all other weights.
  muon = 2,
  // Lion: the sign of a momentum; weight_decay is decoupled.
  lion = 3,
  // Adafactor: second moments of rows and columns, no first moment; weight_decay is decoupled.
  adafactor = 4,
};
template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array<const char*, 5> names{"adamw", "sgd", "muon", "lion", "adafactor"};
};

// The function that training minimises. Values are part of the C ABI.
enum class ObjectiveKind : int32_t {
  // Cross-entropy of the labels; of a model with a teacher, word-level distillation.
  cross_entropy = 0,
  // Direct Preference Optimization, on preference pairs.
  dpo = 1,
  // Odds Ratio Preference Optimization, on preference pairs, without a reference.
  orpo = 2,
  // Kahneman-Tversky Optimization, on labelled answers or preference pairs.
  kto = 3,
  // Cross-entropy of the labels that the head of an encoder gives to texts or tokens.
  classification = 4,
  // Cross-entropy of masked tokens, in an encoder with the head masked-lm, on plain text.
  masked_lm = 5,
};
template <>
struct EnumNames<ObjectiveKind> {
  static constexpr std::array<const char*, 6> names{"cross-entropy", "dpo", "orpo", "kto", "classification", "masked-lm"};
};

// Treatment of lines of plain text with more than max_length tokens, in training and validation.
// Values are part of the C ABI.
enum class LongLines : int32_t {
  // They are dropped and counted.
  drop = 0,
  // Windows of max_length tokens, for a decoder-lm.
  window = 1,
};
template <>
struct EnumNames<LongLines> {
  static constexpr std::array<const char*, 2> names{"drop", "window"};
};

// Tokens of conversations that the loss counts. Values are part of the C ABI.
enum class ChatLoss : int32_t {
  // Those that the assistant writes, the end of each answer included.
  answers = 0,
  // All but the first one.
  all = 1,
};
template <>
struct EnumNames<ChatLoss> {
  static constexpr std::array<const char*, 2> names{"answers", "all"};
};

// Storage type of the optimizer's two moments of every parameter. Values are part of the C ABI.
enum class OptimizerStates : int32_t {
  // float32: 8 bytes a parameter.
  float32 = 0,
  // Codes of a byte in blocks of 256 with a scale: 2.03 bytes a parameter.
  eight_bit = 1,
};
template <>
struct EnumNames<OptimizerStates> {
  static constexpr std::array<const char*, 2> names{"fp32", "8bit"};
};

// Type in which ranks send each other the gradient of a lane. Sums are float32 under each. Values
// are part of the C ABI.
enum class CommunicationDType : int32_t {
  // float32.
  float32 = 0,
  // bfloat16, half the bytes: the gradient of each lane is rounded to nearest even before it is
  // added.
  bfloat16 = 1,
};
template <>
struct EnumNames<CommunicationDType> {
  static constexpr std::array<const char*, 2> names{"fp32", "bf16"};
};

// Activations that backward recomputes instead of keeping them (gradient checkpointing). Results
// are the same bits under each. Values are part of the C ABI.
enum class Recompute : int32_t {
  // Nothing.
  none = 0,
  // Outputs of norms and of activations, which are large and cheap.
  selective = 1,
  // Everything inside a layer.
  full = 2,
};
template <>
struct EnumNames<Recompute> {
  static constexpr std::array<const char*, 3> names{"none", "selective", "full"};
};

// The metrics that early stopping looks at. Values are part of the C ABI.
enum class StoppingMetrics : int32_t {
  // The metric that decides which checkpoint is best.
  first = 0,
  // Stops when any metric has stalled for so long.
  any = 1,
  // Stops when all metrics have stalled for so long.
  all = 2,
};
template <>
struct EnumNames<StoppingMetrics> {
  static constexpr std::array<const char*, 3> names{"first", "any", "all"};
};

// Which model of a run directory is loaded. Values are part of the C ABI.
enum class RunModel : int32_t {
  // Of the best checkpoint by the first metric of validation.
  best = 0,
  // Of the newest checkpoint.
  last = 1,
  // The average of checkpoints (average_last, or `translate-train average`).
  averaged = 2,
};
template <>
struct EnumNames<RunModel> {
  static constexpr std::array<const char*, 3> names{"best", "last", "averaged"};
};

}  // namespace trafo
