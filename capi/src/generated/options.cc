// Written by scripts/generate_options.py from schema/*.toml: change those.
// clang-format off
#include "capi/src/options.h"

#include "capi/src/option_types.h"
#include "engine/compress/quantize.h"
#include "engine/compress/sparsify.h"
#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/generated/option_enums.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/data/corpus.h"
#include "engine/decode/hypothesis.h"
#include "engine/formats/generated/export_enums.h"
#include "engine/metrics/generated/metric_enums.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/text/tokenizer/generated/frame_token.h"
#include "engine/text/tokenizer/train_options.h"
#include "engine/train/run/event.h"
#include "engine/train/run/period.h"

using namespace trafo;
using namespace trafo::capi;

static_assert(static_cast<int32_t>(Architecture::encoder_decoder) == TRAFO_ENCODER_DECODER);
static_assert(static_cast<int32_t>(Architecture::decoder_lm) == TRAFO_DECODER_LM);
static_assert(static_cast<int32_t>(Architecture::encoder) == TRAFO_ENCODER);
static_assert(static_cast<int32_t>(EncoderClass::bert) == TRAFO_ENCODER_CLASS_BERT);
static_assert(static_cast<int32_t>(EncoderClass::roberta) == TRAFO_ENCODER_CLASS_ROBERTA);
static_assert(static_cast<int32_t>(EncoderClass::xlm_roberta) == TRAFO_ENCODER_CLASS_XLM_ROBERTA);
static_assert(static_cast<int32_t>(EncoderClass::modernbert) == TRAFO_ENCODER_CLASS_MODERNBERT);
static_assert(static_cast<int32_t>(EncoderHead::none) == TRAFO_ENCODER_HEAD_NONE);
static_assert(static_cast<int32_t>(EncoderHead::masked_lm) == TRAFO_ENCODER_HEAD_MASKED_LM);
static_assert(static_cast<int32_t>(EncoderHead::sequence) == TRAFO_ENCODER_HEAD_SEQUENCE);
static_assert(static_cast<int32_t>(EncoderHead::token) == TRAFO_ENCODER_HEAD_TOKEN);
static_assert(static_cast<int32_t>(Pooling::mean) == TRAFO_POOLING_MEAN);
static_assert(static_cast<int32_t>(Pooling::first) == TRAFO_POOLING_FIRST);
static_assert(static_cast<int32_t>(Activation::relu) == TRAFO_RELU);
static_assert(static_cast<int32_t>(Activation::gelu) == TRAFO_GELU);
static_assert(static_cast<int32_t>(Activation::silu) == TRAFO_SILU);
static_assert(static_cast<int32_t>(Activation::gelu_erf) == TRAFO_GELU_ERF);
static_assert(static_cast<int32_t>(Comparison::equal) == TRAFO_EQUAL);
static_assert(static_cast<int32_t>(Comparison::not_equal) == TRAFO_NOT_EQUAL);
static_assert(static_cast<int32_t>(Comparison::less) == TRAFO_LESS);
static_assert(static_cast<int32_t>(Comparison::less_equal) == TRAFO_LESS_EQUAL);
static_assert(static_cast<int32_t>(Comparison::greater) == TRAFO_GREATER);
static_assert(static_cast<int32_t>(Comparison::greater_equal) == TRAFO_GREATER_EQUAL);
static_assert(static_cast<int32_t>(Reduction::none) == TRAFO_REDUCE_NONE);
static_assert(static_cast<int32_t>(Reduction::sum) == TRAFO_REDUCE_SUM);
static_assert(static_cast<int32_t>(Reduction::mean) == TRAFO_REDUCE_MEAN);
static_assert(static_cast<int32_t>(Norm::layer) == TRAFO_NORM_LAYER);
static_assert(static_cast<int32_t>(Norm::rms) == TRAFO_NORM_RMS);
static_assert(static_cast<int32_t>(Positions::standard) == TRAFO_POSITIONS_STANDARD);
static_assert(static_cast<int32_t>(Positions::rotary) == TRAFO_POSITIONS_ROTARY);
static_assert(static_cast<int32_t>(QkNorm::none) == TRAFO_QK_NORM_NONE);
static_assert(static_cast<int32_t>(QkNorm::head) == TRAFO_QK_NORM_HEAD);
static_assert(static_cast<int32_t>(QkNorm::head_after_rotary) == TRAFO_QK_NORM_HEAD_AFTER_ROTARY);
static_assert(static_cast<int32_t>(QkNorm::whole) == TRAFO_QK_NORM_WHOLE);
static_assert(static_cast<int32_t>(RopeScaling::llama3) == TRAFO_ROPE_SCALING_LLAMA3);
static_assert(static_cast<int32_t>(RopeScaling::yarn) == TRAFO_ROPE_SCALING_YARN);
static_assert(static_cast<int32_t>(BasePrecision::none) == TRAFO_BASE_PRECISION_NONE);
static_assert(static_cast<int32_t>(BasePrecision::nf4) == TRAFO_BASE_PRECISION_NF4);
static_assert(static_cast<int32_t>(BasePrecision::int8) == TRAFO_BASE_PRECISION_INT8);
static_assert(static_cast<int32_t>(BasePrecision::int4) == TRAFO_BASE_PRECISION_INT4);
static_assert(static_cast<int32_t>(FeedForward::plain) == TRAFO_FFN_PLAIN);
static_assert(static_cast<int32_t>(FeedForward::swiglu) == TRAFO_FFN_SWIGLU);
static_assert(static_cast<int32_t>(FeedForward::geglu) == TRAFO_FFN_GEGLU);
static_assert(static_cast<int32_t>(ScheduleKind::constant) == TRAFO_SCHEDULE_CONSTANT);
static_assert(static_cast<int32_t>(ScheduleKind::linear) == TRAFO_SCHEDULE_LINEAR);
static_assert(static_cast<int32_t>(ScheduleKind::cosine) == TRAFO_SCHEDULE_COSINE);
static_assert(static_cast<int32_t>(ScheduleKind::inverse_sqrt) == TRAFO_SCHEDULE_INVERSE_SQRT);
static_assert(static_cast<int32_t>(ScheduleKind::noam) == TRAFO_SCHEDULE_NOAM);
static_assert(static_cast<int32_t>(ScheduleKind::relative_step) == TRAFO_SCHEDULE_RELATIVE_STEP);
static_assert(static_cast<int32_t>(OptimizerKind::adamw) == TRAFO_OPTIMIZER_ADAMW);
static_assert(static_cast<int32_t>(OptimizerKind::sgd) == TRAFO_OPTIMIZER_SGD);
static_assert(static_cast<int32_t>(OptimizerKind::muon) == TRAFO_OPTIMIZER_MUON);
static_assert(static_cast<int32_t>(OptimizerKind::lion) == TRAFO_OPTIMIZER_LION);
static_assert(static_cast<int32_t>(OptimizerKind::adafactor) == TRAFO_OPTIMIZER_ADAFACTOR);
static_assert(static_cast<int32_t>(ObjectiveKind::cross_entropy) == TRAFO_OBJECTIVE_CROSS_ENTROPY);
static_assert(static_cast<int32_t>(ObjectiveKind::dpo) == TRAFO_OBJECTIVE_DPO);
static_assert(static_cast<int32_t>(ObjectiveKind::orpo) == TRAFO_OBJECTIVE_ORPO);
static_assert(static_cast<int32_t>(ObjectiveKind::kto) == TRAFO_OBJECTIVE_KTO);
static_assert(static_cast<int32_t>(ObjectiveKind::classification) == TRAFO_OBJECTIVE_CLASSIFICATION);
static_assert(static_cast<int32_t>(ObjectiveKind::masked_lm) == TRAFO_OBJECTIVE_MASKED_LM);
static_assert(static_cast<int32_t>(FrameToken::off) == TRAFO_FRAME_OFF);
static_assert(static_cast<int32_t>(FrameToken::on) == TRAFO_FRAME_ON);
static_assert(static_cast<int32_t>(FrameToken::by_model) == TRAFO_FRAME_BY_MODEL);
static_assert(static_cast<int32_t>(LongLines::drop) == TRAFO_LONG_LINES_DROP);
static_assert(static_cast<int32_t>(LongLines::window) == TRAFO_LONG_LINES_WINDOW);
static_assert(static_cast<int32_t>(ChatLoss::answers) == TRAFO_CHAT_LOSS_ANSWERS);
static_assert(static_cast<int32_t>(ChatLoss::all) == TRAFO_CHAT_LOSS_ALL);
static_assert(static_cast<int32_t>(OptimizerStates::float32) == TRAFO_OPTIMIZER_STATES_FLOAT32);
static_assert(static_cast<int32_t>(OptimizerStates::eight_bit) == TRAFO_OPTIMIZER_STATES_8BIT);
static_assert(static_cast<int32_t>(CommunicationDType::float32) == TRAFO_COMMUNICATION_FLOAT32);
static_assert(static_cast<int32_t>(CommunicationDType::bfloat16) == TRAFO_COMMUNICATION_BFLOAT16);
static_assert(static_cast<int32_t>(Recompute::none) == TRAFO_RECOMPUTE_NONE);
static_assert(static_cast<int32_t>(Recompute::selective) == TRAFO_RECOMPUTE_SELECTIVE);
static_assert(static_cast<int32_t>(Recompute::full) == TRAFO_RECOMPUTE_FULL);
static_assert(static_cast<int32_t>(StoppingMetrics::first) == TRAFO_STOPPING_FIRST);
static_assert(static_cast<int32_t>(StoppingMetrics::any) == TRAFO_STOPPING_ANY);
static_assert(static_cast<int32_t>(StoppingMetrics::all) == TRAFO_STOPPING_ALL);
static_assert(static_cast<int32_t>(RunModel::best) == TRAFO_RUN_BEST);
static_assert(static_cast<int32_t>(RunModel::last) == TRAFO_RUN_LAST);
static_assert(static_cast<int32_t>(RunModel::averaged) == TRAFO_RUN_AVERAGED);
static_assert(static_cast<int32_t>(BleuTokenizer::mteval_13a) == TRAFO_TOKENIZE_13A);
static_assert(static_cast<int32_t>(BleuTokenizer::none) == TRAFO_TOKENIZE_NONE);
static_assert(static_cast<int32_t>(BleuTokenizer::zh) == TRAFO_TOKENIZE_ZH);
static_assert(static_cast<int32_t>(BleuTokenizer::intl) == TRAFO_TOKENIZE_INTL);
static_assert(static_cast<int32_t>(BleuTokenizer::character) == TRAFO_TOKENIZE_CHAR);
static_assert(static_cast<int32_t>(BleuTokenizer::flores200) == TRAFO_TOKENIZE_FLORES200);
static_assert(static_cast<int32_t>(BleuTokenizer::ja_mecab) == TRAFO_TOKENIZE_JA_MECAB);
static_assert(static_cast<int32_t>(ExportFormat::hf_marian) == TRAFO_EXPORT_HF_MARIAN);
static_assert(static_cast<int32_t>(ExportFormat::hf_gpt2) == TRAFO_EXPORT_HF_GPT2);
static_assert(static_cast<int32_t>(ExportFormat::ctranslate2) == TRAFO_EXPORT_CTRANSLATE2);
static_assert(static_cast<int32_t>(ExportFormat::hf_llama) == TRAFO_EXPORT_HF_LLAMA);
static_assert(static_cast<int32_t>(ExportFormat::onnx) == TRAFO_EXPORT_ONNX);
static_assert(static_cast<int32_t>(ExportFormat::gguf) == TRAFO_EXPORT_GGUF);
static_assert(static_cast<int32_t>(ExportFormat::hf_compressed) == TRAFO_EXPORT_HF_COMPRESSED);
static_assert(static_cast<int32_t>(ExportFormat::hf_pegasus) == TRAFO_EXPORT_HF_PEGASUS);
static_assert(static_cast<int32_t>(ExportFormat::hf_m2m100) == TRAFO_EXPORT_HF_M2M100);
static_assert(static_cast<int32_t>(ExportFormat::hf_mbart) == TRAFO_EXPORT_HF_MBART);
static_assert(static_cast<int32_t>(ExportFormat::hf_bart) == TRAFO_EXPORT_HF_BART);
static_assert(static_cast<int32_t>(ExportFormat::hf_t5) == TRAFO_EXPORT_HF_T5);
static_assert(static_cast<int32_t>(ExportFormat::hf_bert) == TRAFO_EXPORT_HF_BERT);
static_assert(static_cast<int32_t>(ExportWeights::by_format) == TRAFO_EXPORT_WEIGHTS_BY_FORMAT);
static_assert(static_cast<int32_t>(ExportWeights::float32) == TRAFO_EXPORT_WEIGHTS_FLOAT32);
static_assert(static_cast<int32_t>(ExportWeights::float16) == TRAFO_EXPORT_WEIGHTS_FLOAT16);
static_assert(static_cast<int32_t>(ExportWeights::bfloat16) == TRAFO_EXPORT_WEIGHTS_BFLOAT16);
static_assert(static_cast<int32_t>(ExportWeights::int16) == TRAFO_EXPORT_WEIGHTS_INT16);
static_assert(static_cast<int32_t>(ExportWeights::int8) == TRAFO_EXPORT_WEIGHTS_INT8);
static_assert(static_cast<int32_t>(ExportWeights::q8_0) == TRAFO_EXPORT_WEIGHTS_Q8_0);
static_assert(static_cast<int32_t>(ExportWeights::q4_0) == TRAFO_EXPORT_WEIGHTS_Q4_0);
static_assert(static_cast<int32_t>(ExportWeights::int4) == TRAFO_EXPORT_WEIGHTS_INT4);
static_assert(static_cast<int32_t>(QuantizeMethod::nearest) == TRAFO_QUANTIZE_NEAREST);
static_assert(static_cast<int32_t>(QuantizeMethod::gptq) == TRAFO_QUANTIZE_GPTQ);
static_assert(static_cast<int32_t>(CorpusFormat::automatic) == TRAFO_CORPUS_AUTO);
static_assert(static_cast<int32_t>(CorpusFormat::text) == TRAFO_CORPUS_TEXT);
static_assert(static_cast<int32_t>(CorpusFormat::json_lines) == TRAFO_CORPUS_JSON_LINES);
static_assert(static_cast<int32_t>(CorpusFormat::chats) == TRAFO_CORPUS_CHATS);
static_assert(static_cast<int32_t>(CorpusFormat::csv) == TRAFO_CORPUS_CSV);
static_assert(static_cast<int32_t>(CorpusFormat::llm_c) == TRAFO_CORPUS_LLM_C);
static_assert(static_cast<int32_t>(CorpusFormat::nanogpt) == TRAFO_CORPUS_NANOGPT);
static_assert(static_cast<int32_t>(CorpusFormat::megatron) == TRAFO_CORPUS_MEGATRON);
static_assert(static_cast<int32_t>(PruneScore::magnitude) == TRAFO_PRUNE_MAGNITUDE);
static_assert(static_cast<int32_t>(PruneScore::wanda) == TRAFO_PRUNE_WANDA);
static_assert(static_cast<int32_t>(SparsityPattern::unstructured) == TRAFO_SPARSITY_UNSTRUCTURED);
static_assert(static_cast<int32_t>(SparsityPattern::two_of_four) == TRAFO_SPARSITY_2_4);
static_assert(static_cast<int32_t>(Normalization::nmt_nfkc) == TRAFO_NORMALIZATION_NMT_NFKC);
static_assert(static_cast<int32_t>(Normalization::nfkc) == TRAFO_NORMALIZATION_NFKC);
static_assert(static_cast<int32_t>(Normalization::nmt_nfkc_cf) == TRAFO_NORMALIZATION_NMT_NFKC_CF);
static_assert(static_cast<int32_t>(Normalization::nfkc_cf) == TRAFO_NORMALIZATION_NFKC_CF);
static_assert(static_cast<int32_t>(Normalization::identity) == TRAFO_NORMALIZATION_IDENTITY);
static_assert(static_cast<int32_t>(PeriodUnit::updates) == TRAFO_UNIT_UPDATES);
static_assert(static_cast<int32_t>(PeriodUnit::tokens) == TRAFO_UNIT_TOKENS);
static_assert(static_cast<int32_t>(PeriodUnit::epochs) == TRAFO_UNIT_EPOCHS);
static_assert(static_cast<int32_t>(FinishReason::end) == TRAFO_FINISH_END);
static_assert(static_cast<int32_t>(FinishReason::length) == TRAFO_FINISH_LENGTH);
static_assert(static_cast<int32_t>(FinishReason::blocked) == TRAFO_FINISH_BLOCKED);
static_assert(static_cast<int32_t>(FinishReason::stop) == TRAFO_FINISH_STOP);
static_assert(static_cast<int32_t>(TrainEventKind::started) == TRAFO_EVENT_STARTED);
static_assert(static_cast<int32_t>(TrainEventKind::resumed) == TRAFO_EVENT_RESUMED);
static_assert(static_cast<int32_t>(TrainEventKind::checkpoint_refused) == TRAFO_EVENT_CHECKPOINT_REFUSED);
static_assert(static_cast<int32_t>(TrainEventKind::log) == TRAFO_EVENT_LOG);
static_assert(static_cast<int32_t>(TrainEventKind::skipped) == TRAFO_EVENT_SKIPPED);
static_assert(static_cast<int32_t>(TrainEventKind::epoch) == TRAFO_EVENT_EPOCH);
static_assert(static_cast<int32_t>(TrainEventKind::validated) == TRAFO_EVENT_VALIDATED);
static_assert(static_cast<int32_t>(TrainEventKind::saved) == TRAFO_EVENT_SAVED);
static_assert(static_cast<int32_t>(TrainEventKind::finished) == TRAFO_EVENT_FINISHED);
static_assert(static_cast<int32_t>(TrainEventKind::stopped) == TRAFO_EVENT_STOPPED);
static_assert(static_cast<int32_t>(TrainEventKind::validating) == TRAFO_EVENT_VALIDATING);
static_assert(static_cast<int32_t>(TrainEventKind::averaged) == TRAFO_EVENT_AVERAGED);
static_assert(static_cast<int32_t>(TrainEventKind::gemm_autotuned) == TRAFO_EVENT_GEMM_AUTOTUNED);
static_assert(static_cast<int32_t>(TrainEventKind::warning) == TRAFO_EVENT_WARNING);
static_assert(static_cast<int32_t>(StopReason::none) == TRAFO_STOP_NONE);
static_assert(static_cast<int32_t>(StopReason::limit) == TRAFO_STOP_LIMIT);
static_assert(static_cast<int32_t>(StopReason::early_stopping) == TRAFO_STOP_EARLY);
static_assert(static_cast<int32_t>(StopReason::callback) == TRAFO_STOP_CALLBACK);
static_assert(static_cast<int32_t>(StopReason::cancelled) == TRAFO_STOP_CANCELLED);
static_assert(static_cast<int32_t>(StopReason::paused) == TRAFO_STOP_PAUSED);
static_assert(static_cast<int32_t>(Work::read_text) == TRAFO_WORK_READ_TEXT);
static_assert(static_cast<int32_t>(Work::gather_text) == TRAFO_WORK_GATHER_TEXT);
static_assert(static_cast<int32_t>(Work::learn_vocabulary) == TRAFO_WORK_LEARN_VOCABULARY);
static_assert(static_cast<int32_t>(Work::encode_text) == TRAFO_WORK_ENCODE_TEXT);
static_assert(static_cast<int32_t>(Work::score) == TRAFO_WORK_SCORE);
static_assert(static_cast<int32_t>(Work::translate) == TRAFO_WORK_TRANSLATE);
static_assert(static_cast<int32_t>(Work::validate) == TRAFO_WORK_VALIDATE);
static_assert(static_cast<int32_t>(Work::evaluate) == TRAFO_WORK_EVALUATE);
static_assert(static_cast<int32_t>(Work::resample) == TRAFO_WORK_RESAMPLE);
static_assert(static_cast<int32_t>(Work::convert_weights) == TRAFO_WORK_CONVERT_WEIGHTS);
static_assert(static_cast<int32_t>(Work::calibrate) == TRAFO_WORK_CALIBRATE);
static_assert(static_cast<int32_t>(Work::compress) == TRAFO_WORK_COMPRESS);
static_assert(static_cast<int32_t>(Work::learn_shortlist) == TRAFO_WORK_LEARN_SHORTLIST);
static_assert(static_cast<int32_t>(ErrorCode::ok) == TRAFO_OK);
static_assert(static_cast<int32_t>(ErrorCode::invalid_argument) == TRAFO_INVALID_ARGUMENT);
static_assert(static_cast<int32_t>(ErrorCode::shape_mismatch) == TRAFO_SHAPE_MISMATCH);
static_assert(static_cast<int32_t>(ErrorCode::dtype_mismatch) == TRAFO_DTYPE_MISMATCH);
static_assert(static_cast<int32_t>(ErrorCode::out_of_memory) == TRAFO_OUT_OF_MEMORY);
static_assert(static_cast<int32_t>(ErrorCode::out_of_device_memory) == TRAFO_OUT_OF_DEVICE_MEMORY);
static_assert(static_cast<int32_t>(ErrorCode::not_found) == TRAFO_NOT_FOUND);
static_assert(static_cast<int32_t>(ErrorCode::io) == TRAFO_IO);
static_assert(static_cast<int32_t>(ErrorCode::corrupt_file) == TRAFO_CORRUPT_FILE);
static_assert(static_cast<int32_t>(ErrorCode::unsupported) == TRAFO_UNSUPPORTED);
static_assert(static_cast<int32_t>(ErrorCode::cancelled) == TRAFO_CANCELLED);
static_assert(static_cast<int32_t>(ErrorCode::device_lost) == TRAFO_DEVICE_LOST);
static_assert(static_cast<int32_t>(ErrorCode::non_finite) == TRAFO_NON_FINITE);
static_assert(static_cast<int32_t>(ErrorCode::version) == TRAFO_VERSION);
static_assert(static_cast<int32_t>(ErrorCode::internal) == TRAFO_INTERNAL);
static_assert(static_cast<int32_t>(ErrorCode::peer_lost) == TRAFO_PEER_LOST);
static_assert(static_cast<int32_t>(DeviceKind::cpu) == TRAFO_DEVICE_CPU);
static_assert(static_cast<int32_t>(DeviceKind::cuda) == TRAFO_DEVICE_CUDA);
static_assert(static_cast<int32_t>(DType::f32) == TRAFO_FLOAT32);
static_assert(static_cast<int32_t>(DType::f64) == TRAFO_FLOAT64);
static_assert(static_cast<int32_t>(DType::bf16) == TRAFO_BFLOAT16);
static_assert(static_cast<int32_t>(DType::i32) == TRAFO_INT32);

trafo_model_config trafo::capi::to_c(const ModelConfig& o) {
  trafo_model_config c{};
  c.struct_size = sizeof c;
  c.architecture = static_cast<int32_t>(o.architecture);
  c.activation = static_cast<int32_t>(o.activation);
  c.vocabulary = o.vocabulary;
  c.encoder_layers = o.encoder_layers;
  c.decoder_layers = o.decoder_layers;
  c.width = o.width;
  c.ffn_width = o.ffn_width;
  c.heads = o.heads;
  c.max_positions = o.max_positions;
  c.pre_norm = o.pre_norm ? 1 : 0;
  c.tied_embeddings = o.tied_embeddings ? 1 : 0;
  c.dropout = o.dropout;
  c.attention_dropout = o.attention_dropout;
  c.ffn_dropout = o.ffn_dropout;
  c.norm_epsilon = o.norm_epsilon;
  c.norm = static_cast<int32_t>(o.norm);
  c.positions = static_cast<int32_t>(o.positions);
  c.fairseq_positions = o.fairseq_positions ? 1 : 0;
  c.learned_positions = o.learned_positions ? 1 : 0;
  c.ffn = static_cast<int32_t>(o.ffn);
  c.biases = o.biases ? 1 : 0;
  c.kv_heads = o.kv_heads;
  c.rope_theta = o.rope_theta;
  c.depth_scaled_init = o.depth_scaled_init ? 1 : 0;
  c.output_bias = o.output_bias ? 1 : 0;
  c.head_width = o.head_width;
  c.qkv_biases = o.qkv_biases ? 1 : 0;
  c.attention_output_bias = o.attention_output_bias ? 1 : 0;
  c.ffn_biases = o.ffn_biases ? 1 : 0;
  c.rope_factor = o.rope_factor;
  c.rope_original_positions = o.rope_original_positions;
  c.rope_low_turns = o.rope_low_turns;
  c.rope_high_turns = o.rope_high_turns;
  c.encoder_ffn_width = o.encoder_ffn_width;
  c.encoder_heads = o.encoder_heads;
  layers_to_c(o.decoder_tied_layers, c.decoder_tied_layers);
  layers_to_c(o.encoder_tied_layers, c.encoder_tied_layers);
  c.qk_norm = static_cast<int32_t>(o.qk_norm);
  c.rope_scaling = static_cast<int32_t>(o.rope_scaling);
  c.rope_magnitude = o.rope_magnitude;
  c.norm_outputs = o.norm_outputs ? 1 : 0;
  c.no_rope_interval = o.no_rope_interval;
  c.embedding_scale = o.embedding_scale;
  c.attention_scale = o.attention_scale;
  c.residual_scale = o.residual_scale;
  c.logits_divisor = o.logits_divisor;
  c.sliding_window = o.sliding_window;
  c.full_attention_interval = o.full_attention_interval;
  c.rope_local_theta = o.rope_local_theta;
  c.attention_soft_cap = o.attention_soft_cap;
  c.logits_soft_cap = o.logits_soft_cap;
  c.sandwich_norm = o.sandwich_norm ? 1 : 0;
  c.relative_buckets = o.relative_buckets;
  c.relative_distance = o.relative_distance;
  c.separate_output = o.separate_output ? 1 : 0;
  c.encoder_class = static_cast<int32_t>(o.encoder_class);
  c.encoder_head = static_cast<int32_t>(o.encoder_head);
  c.classifier_pooling = static_cast<int32_t>(o.classifier_pooling);
  c.labels = o.labels;
  c.token_types = o.token_types;
  c.classifier_dropout = o.classifier_dropout;
  c.pooler = o.pooler ? 1 : 0;
  c.rope_query_growth = o.rope_query_growth;
  c.source_vocabulary = o.source_vocabulary;
  c.base_precision = static_cast<int32_t>(o.base_precision);
  c.precision = TRAFO_FLOAT32;
  return c;
}

ModelConfig trafo::capi::from_c(const Call& call, const trafo_model_config& c) {
  ModelConfig o;
  o.architecture = static_cast<Architecture>(c.architecture);
  o.activation = static_cast<Activation>(c.activation);
  o.vocabulary = c.vocabulary;
  o.encoder_layers = c.encoder_layers;
  o.decoder_layers = c.decoder_layers;
  o.width = c.width;
  o.ffn_width = c.ffn_width;
  o.heads = c.heads;
  o.max_positions = c.max_positions;
  o.pre_norm = call.flag(c.pre_norm, "pre_norm");
  o.tied_embeddings = call.flag(c.tied_embeddings, "tied_embeddings");
  o.dropout = c.dropout;
  o.attention_dropout = c.attention_dropout;
  o.ffn_dropout = c.ffn_dropout;
  o.norm_epsilon = c.norm_epsilon;
  o.norm = static_cast<Norm>(c.norm);
  o.positions = static_cast<Positions>(c.positions);
  o.fairseq_positions = call.flag(c.fairseq_positions, "fairseq_positions");
  o.learned_positions = call.flag(c.learned_positions, "learned_positions");
  o.ffn = static_cast<FeedForward>(c.ffn);
  o.biases = call.flag(c.biases, "biases");
  o.kv_heads = c.kv_heads;
  o.rope_theta = c.rope_theta;
  o.depth_scaled_init = call.flag(c.depth_scaled_init, "depth_scaled_init");
  o.output_bias = call.flag(c.output_bias, "output_bias");
  o.head_width = c.head_width;
  o.qkv_biases = call.flag(c.qkv_biases, "qkv_biases");
  o.attention_output_bias = call.flag(c.attention_output_bias, "attention_output_bias");
  o.ffn_biases = call.flag(c.ffn_biases, "ffn_biases");
  o.rope_factor = c.rope_factor;
  o.rope_original_positions = c.rope_original_positions;
  o.rope_low_turns = c.rope_low_turns;
  o.rope_high_turns = c.rope_high_turns;
  o.encoder_ffn_width = c.encoder_ffn_width;
  o.encoder_heads = c.encoder_heads;
  o.decoder_tied_layers = to_layers(call, c.decoder_tied_layers, "decoder_tied_layers");
  o.encoder_tied_layers = to_layers(call, c.encoder_tied_layers, "encoder_tied_layers");
  o.qk_norm = static_cast<QkNorm>(c.qk_norm);
  o.rope_scaling = static_cast<RopeScaling>(c.rope_scaling);
  o.rope_magnitude = c.rope_magnitude;
  o.norm_outputs = call.flag(c.norm_outputs, "norm_outputs");
  o.no_rope_interval = c.no_rope_interval;
  o.embedding_scale = c.embedding_scale;
  o.attention_scale = c.attention_scale;
  o.residual_scale = c.residual_scale;
  o.logits_divisor = c.logits_divisor;
  o.sliding_window = c.sliding_window;
  o.full_attention_interval = c.full_attention_interval;
  o.rope_local_theta = c.rope_local_theta;
  o.attention_soft_cap = c.attention_soft_cap;
  o.logits_soft_cap = c.logits_soft_cap;
  o.sandwich_norm = call.flag(c.sandwich_norm, "sandwich_norm");
  o.relative_buckets = c.relative_buckets;
  o.relative_distance = c.relative_distance;
  o.separate_output = call.flag(c.separate_output, "separate_output");
  o.encoder_class = static_cast<EncoderClass>(c.encoder_class);
  o.encoder_head = static_cast<EncoderHead>(c.encoder_head);
  o.classifier_pooling = static_cast<Pooling>(c.classifier_pooling);
  o.labels = c.labels;
  o.token_types = c.token_types;
  o.classifier_dropout = c.classifier_dropout;
  o.pooler = call.flag(c.pooler, "pooler");
  o.rope_query_growth = c.rope_query_growth;
  o.source_vocabulary = c.source_vocabulary;
  o.base_precision = static_cast<BasePrecision>(c.base_precision);
  return o;
}

trafo_trainer_options trafo::capi::to_c(const TrainOptions& o) {
  trafo_trainer_options c{};
  c.struct_size = sizeof c;
  c.learning_rate = o.learning_rate;
  c.schedule = static_cast<int32_t>(o.schedule);
  c.warmup = o.warmup;
  c.schedule_updates = o.schedule_updates;
  c.label_smoothing = o.label_smoothing;
  c.clip_norm = o.clip_norm;
  c.weight_decay = o.weight_decay;
  c.decay_norms_and_biases = o.decay_norms_and_biases ? 1 : 0;
  c.optimizer = static_cast<int32_t>(o.optimizer);
  c.momentum = o.momentum;
  c.nesterov = o.nesterov ? 1 : 0;
  c.beta1 = o.beta1;
  c.beta2 = o.beta2;
  c.epsilon = o.epsilon;
  c.optimizer_states = static_cast<int32_t>(o.optimizer_states);
  c.decay_rate = o.decay_rate;
  c.clip_threshold = o.clip_threshold;
  c.scale_parameter = o.scale_parameter ? 1 : 0;
  c.square_epsilon = o.square_epsilon;
  c.scale_epsilon = o.scale_epsilon;
  c.tf32 = o.tf32 ? 1 : 0;
  c.fp8 = o.fp8 ? 1 : 0;
  c.quantize_bits = o.quantize_bits;
  c.layer_drop = o.layer_drop;
  c.prune_sparsity = o.prune_sparsity;
  c.prune_start = o.prune_start;
  c.prune_end = o.prune_end;
  c.prune_every = o.prune_every;
  c.keep_zeros = o.keep_zeros ? 1 : 0;
  c.teacher_weight = o.teacher_weight;
  c.teacher_temperature = o.teacher_temperature;
  c.objective = static_cast<int32_t>(o.objective);
  c.mask_probability = o.mask_probability;
  c.dpo_beta = o.dpo_beta;
  c.dpo_label_smoothing = o.dpo_label_smoothing;
  c.orpo_beta = o.orpo_beta;
  c.kto_beta = o.kto_beta;
  c.kto_desirable_weight = o.kto_desirable_weight;
  c.kto_undesirable_weight = o.kto_undesirable_weight;
  c.ema_alpha = o.ema_alpha;
  c.gradient_accumulation = o.gradient_accumulation;
  c.lanes = o.lanes;
  c.communication_dtype = static_cast<int32_t>(o.communication_dtype);
  c.seed = o.seed;
  c.batch_tokens = o.batch_tokens;
  c.max_length = o.max_length;
  c.long_lines = static_cast<int32_t>(o.long_lines);
  c.chat_loss = static_cast<int32_t>(o.chat_loss);
  c.window_stride = o.window_stride;
  c.maxi_batch = o.maxi_batch;
  c.max_length_ratio = o.max_length_ratio;
  c.drop_identical = o.drop_identical ? 1 : 0;
  c.begin_source = static_cast<int32_t>(o.begin_source);
  c.end_source = static_cast<int32_t>(o.end_source);
  c.source_alpha = o.source_alpha;
  c.target_alpha = o.target_alpha;
  c.batch_fit = o.batch_fit ? 1 : 0;
  c.recompute = static_cast<int32_t>(o.recompute);
  c.autotune_gemm = o.autotune_gemm ? 1 : 0;
  c.memory_limit = o.memory_limit;
  c.phase = o.phase;
  c.restart_validation = o.restart_validation ? 1 : 0;
  c.after_updates = o.after_updates;
  c.after_epochs = o.after_epochs;
  c.after_tokens = o.after_tokens;
  c.early_stopping = o.early_stopping;
  c.early_stopping_on = static_cast<int32_t>(o.early_stopping_on);
  c.max_non_finite_steps = o.max_non_finite_steps;
  c.valid_freq = to_c(o.valid_freq);
  c.save_freq = to_c(o.save_freq);
  c.log_freq = to_c(o.log_freq);
  c.log_first = o.log_first;
  c.valid_metrics = metric_bits(o.valid_metrics);
  c.first_metric = first_bit(o.valid_metrics);
  c.valid_beam = o.valid_beam;
  c.valid_normalize = o.valid_normalize;
  c.keep_best = o.keep_best ? 1 : 0;
  c.keep_last = o.keep_last;
  c.average_last = o.average_last;
  return c;
}

TrainOptions trafo::capi::from_c(const Call& call, const trafo_trainer_options& c) {
  call.reserved(c.reserved, "reserved");
  call.reserved(c.reserved2, "reserved2");
  call.reserved(c.reserved3, "reserved3");
  call.reserved(c.reserved4, "reserved4");
  TrainOptions o;
  o.learning_rate = c.learning_rate;
  o.schedule = static_cast<ScheduleKind>(c.schedule);
  o.warmup = c.warmup;
  o.schedule_updates = c.schedule_updates;
  o.label_smoothing = c.label_smoothing;
  o.clip_norm = c.clip_norm;
  o.weight_decay = c.weight_decay;
  o.decay_norms_and_biases = call.flag(c.decay_norms_and_biases, "decay_norms_and_biases");
  o.optimizer = static_cast<OptimizerKind>(c.optimizer);
  o.momentum = c.momentum;
  o.nesterov = call.flag(c.nesterov, "nesterov");
  o.beta1 = c.beta1;
  o.beta2 = c.beta2;
  o.epsilon = c.epsilon;
  o.optimizer_states = static_cast<OptimizerStates>(c.optimizer_states);
  o.decay_rate = c.decay_rate;
  o.clip_threshold = c.clip_threshold;
  o.scale_parameter = call.flag(c.scale_parameter, "scale_parameter");
  o.square_epsilon = c.square_epsilon;
  o.scale_epsilon = c.scale_epsilon;
  o.tf32 = call.flag(c.tf32, "tf32");
  o.fp8 = call.flag(c.fp8, "fp8");
  o.quantize_bits = c.quantize_bits;
  o.layer_drop = c.layer_drop;
  o.prune_sparsity = c.prune_sparsity;
  o.prune_start = c.prune_start;
  o.prune_end = c.prune_end;
  o.prune_every = c.prune_every;
  o.keep_zeros = call.flag(c.keep_zeros, "keep_zeros");
  o.teacher_weight = c.teacher_weight;
  o.teacher_temperature = c.teacher_temperature;
  o.objective = static_cast<ObjectiveKind>(c.objective);
  o.mask_probability = c.mask_probability;
  o.dpo_beta = c.dpo_beta;
  o.dpo_label_smoothing = c.dpo_label_smoothing;
  o.orpo_beta = c.orpo_beta;
  o.kto_beta = c.kto_beta;
  o.kto_desirable_weight = c.kto_desirable_weight;
  o.kto_undesirable_weight = c.kto_undesirable_weight;
  o.ema_alpha = c.ema_alpha;
  o.gradient_accumulation = c.gradient_accumulation;
  o.lanes = c.lanes;
  o.communication_dtype = static_cast<CommunicationDType>(c.communication_dtype);
  o.seed = c.seed;
  o.batch_tokens = c.batch_tokens;
  o.max_length = c.max_length;
  o.long_lines = static_cast<LongLines>(c.long_lines);
  o.chat_loss = static_cast<ChatLoss>(c.chat_loss);
  o.window_stride = c.window_stride;
  o.maxi_batch = c.maxi_batch;
  o.max_length_ratio = c.max_length_ratio;
  o.drop_identical = call.flag(c.drop_identical, "drop_identical");
  o.begin_source = static_cast<FrameToken>(c.begin_source);
  o.end_source = static_cast<FrameToken>(c.end_source);
  o.source_alpha = c.source_alpha;
  o.target_alpha = c.target_alpha;
  o.batch_fit = call.flag(c.batch_fit, "batch_fit");
  o.recompute = static_cast<Recompute>(c.recompute);
  o.autotune_gemm = call.flag(c.autotune_gemm, "autotune_gemm");
  o.memory_limit = c.memory_limit;
  o.phase = c.phase;
  o.restart_validation = call.flag(c.restart_validation, "restart_validation");
  o.after_updates = c.after_updates;
  o.after_epochs = c.after_epochs;
  o.after_tokens = c.after_tokens;
  o.early_stopping = c.early_stopping;
  o.early_stopping_on = static_cast<StoppingMetrics>(c.early_stopping_on);
  o.max_non_finite_steps = c.max_non_finite_steps;
  o.valid_freq = to_period(call, c.valid_freq, "valid_freq");
  o.save_freq = to_period(call, c.save_freq, "save_freq");
  o.log_freq = to_period(call, c.log_freq, "log_freq");
  o.log_first = c.log_first;
  o.valid_metrics = to_metrics(call, c.valid_metrics, c.first_metric);
  o.valid_beam = c.valid_beam;
  o.valid_normalize = c.valid_normalize;
  o.keep_best = call.flag(c.keep_best, "keep_best");
  o.keep_last = c.keep_last;
  o.average_last = c.average_last;
  return o;
}

trafo_translate_options trafo::capi::to_c(const TranslateOptions& o) {
  trafo_translate_options c{};
  c.struct_size = sizeof c;
  c.beam = o.decode.beam;
  c.n_best = o.decode.n_best;
  c.length_penalty = o.decode.length_penalty;
  c.max_length = 0;
  c.min_length = o.decode.min_length;
  c.batch_tokens = o.decode.batch_tokens;
  c.repetition_penalty = o.decode.repetition_penalty;
  c.presence_penalty = o.decode.presence_penalty;
  c.frequency_penalty = o.decode.frequency_penalty;
  c.no_repeat_ngram_size = o.decode.no_repeat_ngram_size;
  c.word_scores = o.decode.word_scores ? 1 : 0;
  c.alignment = o.decode.alignment ? 1 : 0;
  c.alignment_layer = o.decode.alignment_layer;
  c.distinct = o.distinct ? 1 : 0;
  c.truncate = o.truncate ? 1 : 0;
  c.window_length = o.window_length;
  c.window_stride = o.window_stride;
  c.sampling = o.decode.sampling.on ? 1 : 0;
  c.temperature = o.decode.sampling.temperature;
  c.top_k = o.decode.sampling.top_k;
  c.top_p = o.decode.sampling.top_p;
  c.min_p = o.decode.sampling.min_p;
  c.seed = o.decode.sampling.seed;
  c.first_line = o.decode.sampling.first_line;
  c.shortlist_first = o.shortlist.first;
  c.shortlist_best = o.shortlist.best;
  c.end_source = static_cast<int32_t>(o.end_source);
  c.begin_source = static_cast<int32_t>(o.begin_source);
  return c;
}

TranslateOptions trafo::capi::from_c(const Call& call, const trafo_translate_options& c) {
  call.reserved(c.reserved, "reserved");
  TranslateOptions o;
  o.decode.beam = c.beam;
  o.decode.n_best = c.n_best;
  o.decode.length_penalty = c.length_penalty;
  o.decode.min_length = c.min_length;
  o.decode.batch_tokens = c.batch_tokens;
  o.decode.repetition_penalty = c.repetition_penalty;
  o.decode.presence_penalty = c.presence_penalty;
  o.decode.frequency_penalty = c.frequency_penalty;
  o.decode.no_repeat_ngram_size = c.no_repeat_ngram_size;
  o.decode.word_scores = call.flag(c.word_scores, "word_scores");
  o.decode.alignment = call.flag(c.alignment, "alignment");
  o.decode.alignment_layer = c.alignment_layer;
  o.distinct = call.flag(c.distinct, "distinct");
  o.truncate = call.flag(c.truncate, "truncate");
  o.window_length = c.window_length;
  o.window_stride = c.window_stride;
  o.decode.sampling.on = call.flag(c.sampling, "sampling");
  o.decode.sampling.temperature = c.temperature;
  o.decode.sampling.top_k = c.top_k;
  o.decode.sampling.top_p = c.top_p;
  o.decode.sampling.min_p = c.min_p;
  o.decode.sampling.seed = c.seed;
  o.decode.sampling.first_line = c.first_line;
  o.shortlist.first = c.shortlist_first;
  o.shortlist.best = c.shortlist_best;
  o.end_source = static_cast<FrameToken>(c.end_source);
  o.begin_source = static_cast<FrameToken>(c.begin_source);
  return o;
}

trafo_evaluation_options trafo::capi::to_c(const EvaluationOptions& o) {
  trafo_evaluation_options c{};
  c.struct_size = sizeof c;
  c.tokenize = static_cast<int32_t>(o.tokenize);
  c.lowercase = o.lowercase ? 1 : 0;
  c.confidence = o.confidence ? 1 : 0;
  c.resamples = o.resamples;
  c.seed = o.seed;
  return c;
}

EvaluationOptions trafo::capi::from_c(const Call& call, const trafo_evaluation_options& c) {
  call.reserved(c.reserved, "reserved");
  EvaluationOptions o;
  o.tokenize = static_cast<BleuTokenizer>(c.tokenize);
  o.lowercase = call.flag(c.lowercase, "lowercase");
  o.confidence = call.flag(c.confidence, "confidence");
  o.resamples = c.resamples;
  o.seed = c.seed;
  return o;
}

namespace {

constexpr Preset kPresets[] = {
  {"tiny",
   [](trafo_model_config& c) {
     c.vocabulary = 8000;
     c.encoder_layers = 4;
     c.decoder_layers = 4;
     c.width = 128;
     c.ffn_width = 256;
     c.heads = 4;
     c.dropout = 0.3;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.005;
     c.warmup = 1000;
   }},
  {"student-tiny",
   [](trafo_model_config& c) {
     c.vocabulary = 8000;
     c.encoder_layers = 6;
     c.decoder_layers = 2;
     c.width = 128;
     c.ffn_width = 256;
     c.heads = 4;
     c.dropout = 0.3;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.005;
     c.warmup = 1000;
     c.ema_alpha = 0.0001;
   }},
  {"small",
   [](trafo_model_config& c) {
     c.vocabulary = 8000;
     c.encoder_layers = 4;
     c.decoder_layers = 4;
     c.width = 256;
     c.ffn_width = 1024;
     c.heads = 4;
     c.dropout = 0.3;
     c.ffn_dropout = 0.3;
     c.attention_dropout = 0.1;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.003;
     c.warmup = 1000;
     c.ema_alpha = 0.0001;
   }},
  {"iwslt",
   [](trafo_model_config& c) {
     c.vocabulary = 16000;
     c.encoder_layers = 6;
     c.decoder_layers = 6;
     c.width = 512;
     c.ffn_width = 1024;
     c.heads = 4;
     c.dropout = 0.3;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.0005;
     c.warmup = 4000;
     c.ema_alpha = 0.0001;
   }},
  {"base",
   [](trafo_model_config& c) {
     c.vocabulary = 32000;
     c.encoder_layers = 6;
     c.decoder_layers = 6;
     c.width = 512;
     c.ffn_width = 2048;
     c.heads = 8;
     c.dropout = 0.1;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.0007;
     c.warmup = 4000;
     c.ema_alpha = 0.0001;
   }},
  {"big",
   [](trafo_model_config& c) {
     c.vocabulary = 32000;
     c.encoder_layers = 6;
     c.decoder_layers = 6;
     c.width = 1024;
     c.ffn_width = 4096;
     c.heads = 16;
     c.dropout = 0.3;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.0005;
     c.warmup = 4000;
     c.ema_alpha = 0.0001;
   }},
  {"lm",
   [](trafo_model_config& c) {
     c.vocabulary = 8000;
     c.architecture = TRAFO_DECODER_LM;
     c.activation = TRAFO_GELU;
     c.decoder_layers = 4;
     c.width = 256;
     c.ffn_width = 1024;
     c.heads = 8;
     c.dropout = 0.2;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.001;
     c.warmup = 1000;
   }},
  {"gpt2",
   [](trafo_model_config& c) {
     c.vocabulary = 32000;
     c.architecture = TRAFO_DECODER_LM;
     c.activation = TRAFO_GELU;
     c.decoder_layers = 12;
     c.width = 768;
     c.ffn_width = 3072;
     c.heads = 12;
     c.dropout = 0.1;
     c.output_bias = 0;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.0006;
     c.warmup = 2000;
   }},
  {"llama",
   [](trafo_model_config& c) {
     c.vocabulary = 8000;
     c.architecture = TRAFO_DECODER_LM;
     c.activation = TRAFO_SILU;
     c.norm = TRAFO_NORM_RMS;
     c.positions = TRAFO_POSITIONS_ROTARY;
     c.ffn = TRAFO_FFN_SWIGLU;
     c.biases = 0;
     c.decoder_layers = 4;
     c.width = 256;
     c.ffn_width = 768;
     c.heads = 8;
     c.dropout = 0.2;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.001;
     c.warmup = 1000;
   }},
  {"qwen3",
   [](trafo_model_config& c) {
     c.vocabulary = 8000;
     c.architecture = TRAFO_DECODER_LM;
     c.activation = TRAFO_SILU;
     c.norm = TRAFO_NORM_RMS;
     c.positions = TRAFO_POSITIONS_ROTARY;
     c.ffn = TRAFO_FFN_SWIGLU;
     c.biases = 0;
     c.qk_norm = TRAFO_QK_NORM_HEAD;
     c.decoder_layers = 4;
     c.width = 256;
     c.ffn_width = 768;
     c.heads = 8;
     c.dropout = 0.2;
   },
   [](trafo_trainer_options& c) {
     c.early_stopping = 10;
     c.log_first = 5;
     c.learning_rate = 0.001;
     c.warmup = 1000;
   }},
};

}  // namespace

std::span<const Preset> trafo::capi::presets() { return kPresets; }
