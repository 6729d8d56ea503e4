// Written by scripts/generate_options.py from engine/options/*.toml: change those.
// clang-format off
#include <fmt/format.h>

#include <cmath>

#include "settings/setting_types.h"

namespace translate_train {
namespace {

constexpr SettingSpec kSpecs[] = {
    {"train-sets", "-t", "", "Data", "SRC TRG ...",
     "training files, a sentence a line; plain or gzip; again for more corpora; one file alone is text for a decoder-lm",
     "", 1, 64, true, false, nullptr},
    {"tsv", "", "", "Data", "FILE|- ...",
     "instead: files of SRC<tab>TRG lines, - is standard input",
     "", 1, 64, true, false, nullptr},
    {"data-weights", "--train-weights", "", "Data", "W ...",
     "one for each corpus: how often an epoch has each of its pairs; 0.25: a quarter of them, another one each epoch (default 1)",
     "", 1, 64, true, false, nullptr},
    {"valid-sets", "", "", "Data", "SRC TRG",
     "validation files (default: held out of the training pairs by their hash: 1%, but at least 100 or, of fewer than 1000, a tenth, and at most 2000)",
     "", 1, 2, true, false, nullptr},
    {"vocabs", "-v", "", "Data", "FILE",
     "vocabulary, for both sides; twice the same, as Marian wants it, is once (default: trained on both sides)",
     "", 1, 2, true, false, nullptr},
    {"dim-vocabs", "", "", "Data", "N",
     "tokens of a new vocabulary (default: 8000, 16000, 32000 by task)",
     "", 1, 1, true, true, nullptr},
    {"vocab-kind", "", "", "Data", "NAME",
     "kind of a new vocabulary, such as byte, the 259 tokens of ByT5 (default sentencepiece)",
     "", 1, 1, true, false, nullptr},
    {"mini-batch-words", "--max-tokens", "", "Data", "N",
     "target tokens a batch (default 4096)",
     "", 1, 1, true, true, nullptr},
    {"max-length", "", "", "Data", "N",
     "longer pairs are dropped and counted, in tokens a side (default 256)",
     "", 1, 1, true, true, nullptr},
    {"maxi-batch", "", "", "Data", "N",
     "batches filled from sentences sorted by length together, 0: 262144 sentences (default 0)",
     "", 1, 1, true, false, nullptr},
    {"max-length-ratio", "", "", "Data", "R",
     "pairs with a side of more than R times the tokens of the other are dropped and counted, 0: none (default 0)",
     "", 1, 1, true, false, nullptr},
    {"drop-identical", "", "", "Data", "on|off",
     "pairs with the same text on both sides are dropped and counted (default off)",
     "on off", 0, 1, true, false, nullptr},
    {"sentencepiece-alphas", "", "", "Data", "A [A]",
     "sample the segmentation of every sentence anew in each epoch, one value or one a side: by probability^A of a unigram vocabulary (try 0.5), dropping merges with probability A of a BPE vocabulary (try 0.1), 0: always the best one (default 0)",
     "", 1, 2, true, false, "0"},
    {"mini-batch-fit", "", "", "Data", "on|off",
     "instead of --mini-batch-words: as many as the memory, or --memory-limit, has room for; a run keeps its choice (default off)",
     "on off", 0, 1, true, true, nullptr},
    {"data-in-memory", "", "", "Data", "SIZE",
     "corpora with more text stay on disk, and the results are the same (default 256MiB)",
     "", 1, 1, true, false, "256MiB"},
    {"tempdir", "-T", "", "Data", "DIR",
     "where gzip files and standard input are unpacked if they stay on disk (default: the run directory)",
     "", 1, 1, true, false, nullptr},
    {"task", "", "", "Model", "NAME",
     "tiny, student-tiny, small, iwslt, base, big, lm, gpt2 or llama: sets the defaults below (default: tiny under 100k pairs, iwslt under 1M, else base)",
     "tiny student-tiny small iwslt base big lm gpt2 llama", 1, 1, true, true, nullptr},
    {"arch", "", "", "Model", "NAME",
     "encoder-decoder or decoder-lm (default by task)",
     "encoder-decoder decoder-lm", 1, 1, true, true, nullptr},
    {"transformer-ffn-activation", "--activation-fn", "", "Model", "NAME",
     "relu, gelu, swish or gelu-erf (default by task)",
     "relu gelu swish gelu-erf", 1, 1, true, false, nullptr},
    {"enc-depth", "--encoder-layers", "", "Model", "N",
     "encoder layers (default by task)",
     "", 1, 1, true, true, nullptr},
    {"dec-depth", "--decoder-layers", "", "Model", "N",
     "decoder layers (default by task)",
     "", 1, 1, true, true, nullptr},
    {"dim-emb", "--encoder-embed-dim", "", "Model", "N",
     "width of the model (default by task)",
     "", 1, 1, true, true, nullptr},
    {"transformer-dim-ffn", "--encoder-ffn-embed-dim", "", "Model", "N",
     "width inside the feed-forward (default by task)",
     "", 1, 1, true, true, nullptr},
    {"transformer-heads", "--encoder-attention-heads", "", "Model", "N",
     "attention heads (default by task)",
     "", 1, 1, true, true, nullptr},
    {"transformer-norm", "", "", "Model", "NAME",
     "pre or post (default pre)",
     "post pre", 1, 1, true, true, nullptr},
    {"tied-embeddings-all", "--share-all-embeddings", "", "Model", "on|off",
     "one matrix for source, target and output (default on)",
     "on off", 0, 1, true, true, nullptr},
    {"transformer-dropout", "--dropout", "", "Model", "P",
     "dropout of embeddings and of every block's output (default by task)",
     "", 1, 1, true, false, nullptr},
    {"transformer-dropout-attention", "--attention-dropout", "", "Model", "P",
     "dropout of attention probabilities (default by task)",
     "", 1, 1, true, false, nullptr},
    {"transformer-dropout-ffn", "--activation-dropout", "", "Model", "P",
     "dropout after the activation of the feed-forward (default by task)",
     "", 1, 1, true, false, nullptr},
    {"transformer-kv-heads", "--kv-heads", "", "Model", "N",
     "heads of keys and values, for --task llama; 0: as many as heads (default 0)",
     "", 1, 1, true, true, nullptr},
    {"transformer-depth-scaling", "", "", "Model", "on|off",
     "divide the initial weights of layer l by the root of l: deep models begin better (default off)",
     "on off", 0, 1, true, false, nullptr},
    {"output-bias", "", "", "Model", "on|off",
     "bias of the output layer, where the model has biases; GPT-2 has none (default by task)",
     "on off", 0, 1, true, false, nullptr},
    {"transformer-tied-layers", "", "", "Model", "N ...",
     "a number for each layer of the decoder: layers with one number share their parameters, such as 1 1 3 3 (default: none are shared)",
     "", 1, 32, true, true, nullptr},
    {"transformer-tied-encoder-layers", "", "", "Model", "N ...",
     "the same for the layers of the encoder (default: none are shared)",
     "", 1, 32, true, true, nullptr},
    {"learn-rate", "--lr", "", "Training", "R",
     "peak learning rate (default by task)",
     "", 1, 1, true, false, nullptr},
    {"lr-decay", "--lr-scheduler", "", "Training", "NAME",
     "constant, linear, cosine, inv-sqrt or noam (cosine and linear end where --after does) (default inv-sqrt)",
     "constant linear cosine inv-sqrt noam", 1, 1, true, false, nullptr},
    {"lr-warmup", "--warmup-updates", "", "Training", "N",
     "updates to the peak (default by task)",
     "", 1, 1, true, false, nullptr},
    {"label-smoothing", "", "", "Training", "P",
     "share of probability for the other tokens (default 0.1)",
     "", 1, 1, true, false, nullptr},
    {"clip-norm", "", "", "Training", "X",
     "largest gradient norm, 0: any (default 1)",
     "", 1, 1, true, false, nullptr},
    {"weight-decay", "", "", "Training", "X",
     "weight decay, decoupled but for sgd (default 0)",
     "", 1, 1, true, false, nullptr},
    {"decay-norms-and-biases", "", "", "Training", "on|off",
     "off: --weight-decay is for matrices only (default on)",
     "on off", 0, 1, true, false, nullptr},
    {"optimizer", "", "", "Training", "NAME",
     "adamw, sgd, or muon: orthogonalized momentum for matrices and AdamW for the rest (default adamw)",
     "adamw sgd muon", 1, 1, true, true, nullptr},
    {"momentum", "", "", "Training", "X",
     "momentum of sgd and muon (default 0.95)",
     "", 1, 1, true, true, nullptr},
    {"nesterov", "", "", "Training", "on|off",
     "Nesterov momentum of sgd and muon (default on)",
     "on off", 0, 1, true, false, nullptr},
    {"optimizer-states", "", "", "Training", "NAME",
     "fp32 or 8bit: what the moments of AdamW are kept in, 8 or 2.03 bytes a parameter (default fp32)",
     "fp32 8bit", 1, 1, true, true, nullptr},
    {"quantize-bits", "", "", "Training", "N",
     "quantization-aware training: 8 (int8 weights) or 4 (int4 in groups of 32); 0: off (default 0)",
     "", 1, 1, true, true, nullptr},
    {"layer-drop", "", "", "Training", "P",
     "skip every layer with this probability in a batch: later, layers can be pruned (default 0)",
     "", 1, 1, true, false, nullptr},
    {"prune-sparsity", "", "", "Training", "S",
     "unstructured pruning: this share of the weights of linear layers becomes zero and stays so (default 0)",
     "", 1, 1, true, false, nullptr},
    {"prune-start", "", "", "Training", "N",
     "the update before which pruning begins (default 1)",
     "", 1, 1, true, false, nullptr},
    {"prune-end", "", "", "Training", "N",
     "the update before which --prune-sparsity is reached (default 0)",
     "", 1, 1, true, false, nullptr},
    {"prune-every", "", "", "Training", "N",
     "updates from one pruning to the next (default 100)",
     "", 1, 1, true, false, nullptr},
    {"keep-zeros", "", "", "Training", "on|off",
     "on: weights of linear layers that are zero stay zero, to fine-tune a pruned model (default off)",
     "on off", 0, 1, true, false, nullptr},
    {"teacher", "", "", "Training", "FILE|DIR",
     "word-level distillation: learn the probabilities of this trained model, too; its vocabulary is the run's",
     "", 1, 1, true, true, nullptr},
    {"teacher-weight", "", "", "Training", "W",
     "share of the teacher in the loss, 0 to 1 (default 0.5)",
     "", 1, 1, true, true, nullptr},
    {"teacher-temperature", "", "", "Training", "T",
     "temperature of both distributions: above 1, unlikely tokens count more (default 1)",
     "", 1, 1, true, false, nullptr},
    {"exponential-smoothing", "", "", "Training", "[R]",
     "validate and save an EMA of the weights, which takes the share R of every update's weights, 0: off (default 1e-4 where R is left out; else by task)",
     "", 0, 1, true, true, nullptr},
    {"ema-decay", "", "", "Training", "D",
     "fairseq's form of --exponential-smoothing: R is 1 - D",
     "", 1, 1, false, false, nullptr},
    {"optimizer-delay", "--update-freq", "", "Training", "N",
     "batches an update (default 1)",
     "", 1, 1, true, true, nullptr},
    {"lanes", "", "", "Training", "N",
     "parts of an update that ranks compute, 1: as many as ranks (default 1)",
     "", 1, 1, true, true, nullptr},
    {"communication-dtype", "", "", "Training", "NAME",
     "fp32 or bf16: what ranks send the gradient of a lane in; bf16 also rounds it where nothing is sent, so that the number of ranks changes no bit (default fp32)",
     "fp32 bf16", 1, 1, true, true, nullptr},
    {"freeze", "", "", "Training", "PATTERN ...",
     "parameters whose names match are not trained, as encoder.* or *norm*; * matches any text",
     "", 1, 64, true, true, nullptr},
    {"lora-rank", "", "", "Training", "R",
     "train a LoRA adapter of this rank instead of the weights of --pretrained-model, which stay as they are; the run directory gets it as adapter/",
     "", 1, 1, true, false, nullptr},
    {"lora-alpha", "", "", "Training", "A",
     "the adapter's product is multiplied with A/R (default: 2 R)",
     "", 1, 1, true, false, nullptr},
    {"lora-targets", "", "", "Training", "NAME ...",
     "projections that get an adapter: query key value (qkv in GPT-2's form) output gate up down (default: all that the model has)",
     "query key value qkv output gate up down", 1, 8, true, false, nullptr},
    {"seed", "", "", "Training", "N",
     "of weights, dropout and data order (default 1)",
     "", 1, 1, true, false, nullptr},
    {"phase", "", "", "Training", "N",
     "1 above that of the run in --model begins a new phase: other data, rates and limits from its newest checkpoint on (default 1)",
     "", 1, 1, true, false, nullptr},
    {"after", "-a,--max-update", "", "Training", "N[ute]",
     "stop after updates (u), target tokens (t), epochs (e); 20e,50ku: at the first of them; 0u: when early stopping says so (default 0u)",
     "", 1, 8, true, false, "0u"},
    {"after-epochs", "-e,--max-epoch", "", "Training", "N",
     "the same as --after Ne",
     "", 1, 1, false, false, nullptr},
    {"early-stopping", "--patience", "", "Training", "N",
     "stop after this many validations without a better metric, 0: never (default by task)",
     "", 1, 1, true, false, nullptr},
    {"early-stopping-on", "", "", "Training", "NAME",
     "first, any or all of --valid-metrics: which of them must be no better (default first)",
     "first any all", 1, 1, true, false, nullptr},
    {"pretrained-model", "--finetune-from-model", "", "Training", "FILE|DIR",
     "begin with the weights and the vocabulary of this model, run or import; the shape of the model is then its own",
     "", 1, 1, true, false, nullptr},
    {"restart-validation", "", "", "Validation and checkpoints", "on|off",
     "a resumed run may have other validation text or another beam: best scores and patience start anew then (default off)",
     "on off", 0, 1, false, false, nullptr},
    {"valid-freq", "--validate-interval-updates", "", "Validation and checkpoints", "N[ute]",
     "how often it validates, besides at the end (default 1000u)",
     "", 1, 1, true, false, nullptr},
    {"save-freq", "--save-interval-updates", "", "Validation and checkpoints", "N[ute]",
     "how often it saves, besides at the end (default 1000u)",
     "", 1, 1, true, false, nullptr},
    {"valid-metrics", "", "", "Validation and checkpoints", "NAME ...",
     "of bleu, chrf, ter, ce-mean-words; the first one decides (default bleu chrf ce-mean-words)",
     "bleu chrf ter ce-mean-words", 1, 16, true, false, nullptr},
    {"beam-size", "-b,--beam", "", "Validation and checkpoints", "N",
     "beam of validation; 1: greedy (default 1)",
     "", 1, 1, true, false, nullptr},
    {"normalize", "-n,--lenpen", "", "Validation and checkpoints", "A",
     "of that beam: score = log-probability / length^A (default 1)",
     "", 1, 1, true, false, nullptr},
    {"keep-best", "", "", "Validation and checkpoints", "on|off",
     "keep the best checkpoint of every metric (default on)",
     "on off", 0, 1, true, false, nullptr},
    {"keep-last", "", "", "Validation and checkpoints", "N",
     "newest checkpoints kept (default 3)",
     "", 1, 1, true, false, nullptr},
    {"average-last", "", "", "Validation and checkpoints", "N",
     "at the end, average this many of the newest checkpoints, which are kept for it, into ckpt/averaged and measure that, 0: not (default 0)",
     "", 1, 1, true, false, nullptr},
    {"device", "", "", "Machine", "NAME",
     "auto, cpu, cuda or cuda:N; auto: CUDA where there is one, else the CPU (default auto)",
     "auto cpu cuda", 1, 1, true, false, "auto"},
    {"devices", "-d", "", "Machine", "N,N ...",
     "instead of --device, several that train one model, as 0,1 or cuda:0,cuda:1; cpu,cpu: two parts of the CPU",
     "", 1, 64, true, true, nullptr},
    {"cpu-threads", "", "", "Machine", "N",
     "0: every core; never changes results (default 0)",
     "", 1, 1, true, false, "0"},
    {"precision", "", "", "Machine", "NAME",
     "auto, fp32, tf32, bf16 or fp8: what the model computes in; auto: bf16 on CUDA, else fp32; tf32: fp32 with GEMMs in TF32, on CUDA; fp8: bf16 with the output projection and wide linear layers in FP8, on CUDA; weights are kept in fp32 (default auto)",
     "auto fp32 tf32 bf16 fp8", 1, 1, true, true, "auto"},
    {"recompute", "", "", "Machine", "NAME",
     "none, selective or full: what backward computes a second time instead of keeping it; less memory, more time, the same results (default none)",
     "none selective full", 1, 1, true, true, nullptr},
    {"autotune-gemm", "", "--tune-products", "Machine", "on|off",
     "on: CUDA times the kernels of small GEMMs at the start of a run, at most 5 seconds in all, and keeps those that are 5 % faster for this run and later ones; nothing on the CPU and with several lanes (default on)",
     "on off", 0, 1, true, false, nullptr},
    {"memory-limit", "", "", "Machine", "SIZE",
     "of the device, as 800MiB or 4GiB, 0: what is free; a run that needs more is refused (default 0)",
     "", 1, 1, true, true, nullptr},
    {"workspace", "-w", "", "Machine", "SIZE",
     "Marian's name of --memory-limit; a plain number is in MiB, as there",
     "", 1, 1, false, false, nullptr},
    {"cuda-graphs", "", "", "Machine", "on|off",
     "off: training steps are issued kernel by kernel, for profiling (default on)",
     "on off", 0, 1, true, false, "on"},
    {"fused-kernels", "", "", "Machine", "on|off",
     "off: the unfused reference of every op (default on)",
     "on off", 0, 1, true, false, "on"},
    {"disp-freq", "--log-interval", "", "Output", "N[ute]",
     "how often it logs, besides each of the first 5 updates (default 20u)",
     "", 1, 1, true, false, nullptr},
    {"log-format", "", "", "Output", "NAME",
     "text or json (default text)",
     "text json", 1, 1, true, false, "text"},
    {"progress", "", "", "Output", "NAME",
     "auto or off; auto: a live line on a terminal (default auto)",
     "auto off", 1, 1, true, false, "auto"},
    {"tensorboard", "--tensorboard-logdir", "", "Output", "[DIR]",
     "also write TensorBoard's event files, into RUN/tensorboard or DIR (default off)",
     "", 0, 1, true, false, "off"},
    {"quiet", "-q", "", "Output", "on|off",
     "errors and warnings only (default off)",
     "on off", 0, 1, true, false, "off"},
    {"model", "-m,--save-dir", "", "Output", "DIR",
     "run directory (default run)",
     "", 1, 1, false, false, nullptr},
};

constexpr SettingSpec kTranslateSpecs[] = {
    {"max-length", "", "", "Text", "N",
     "longest translation in tokens, 0: twice the source and 10, at most 200 (default 0)",
     "", 1, 1, true, false, nullptr},
    {"min-length", "--min-len", "", "Text", "N",
     "tokens before a translation may end (default 0)",
     "", 1, 1, true, false, nullptr},
    {"alignment-layer", "", "", "Text", "N",
     "decoder layer of --alignment, counted from 1; 0: the last but one (default 0)",
     "", 1, 1, true, false, nullptr},
    {"end-source", "", "", "Text", "on|off",
     "off: a decoder-lm continues a line instead of translating it; no </s> follows it (default on)",
     "on off", 0, 1, true, false, nullptr},
    {"begin-source", "", "", "Text", "on|off",
     "on: <s> precedes a line, as Llama and Mistral were trained; decoder-lm (default off)",
     "on off", 0, 1, true, false, nullptr},
    {"beam-size", "-b,--beam", "", "Search", "N",
     "hypotheses kept of each sentence; 1: greedy (default 5)",
     "", 1, 1, true, false, nullptr},
    {"normalize", "-n,--lenpen", "", "Search", "A",
     "score = log-probability / length^A (default 1)",
     "", 1, 1, true, false, nullptr},
    {"repetition-penalty", "", "", "Search", "P",
     "above 1: subwords that the translation already has become less probable (default 1)",
     "", 1, 1, true, false, nullptr},
    {"no-repeat-ngram-size", "", "", "Search", "N",
     "no N subwords in a row occur twice in a translation; 0: any may (default 0)",
     "", 1, 1, true, false, nullptr},
    {"temperature", "", "", "Sampling, instead of the search", "T",
     "below 1: closer to the most probable, above: wilder (default 1)",
     "", 1, 1, true, false, nullptr},
    {"sampling-topk", "", "", "Sampling, instead of the search", "N",
     "the same as --output-sampling topk N (default 0)",
     "", 1, 1, true, false, nullptr},
    {"sampling-topp", "", "", "Sampling, instead of the search", "P",
     "the same as --output-sampling nucleus P (default 1)",
     "", 1, 1, true, false, nullptr},
    {"seed", "", "", "Sampling, instead of the search", "N",
     "the same seed draws the same of a line (default 1)",
     "", 1, 1, true, false, nullptr},
    {"mini-batch-words", "", "", "Batches", "N",
     "source tokens times beam decoded together (default 4096)",
     "", 1, 1, true, false, nullptr},
};

constexpr SettingSpec kEvalSpecs[] = {
    {"tokenize", "--tok", "", "Metrics", "NAME",
     "BLEU's words: 13a, none, zh, intl, char, flores200 or ja-mecab (default 13a)",
     "13a none zh intl char flores200 ja-mecab", 1, 1, true, false, nullptr},
    {"tokenize-model", "", "", "Metrics", "FILE",
     "the SentencePiece model of --tokenize flores200",
     "", 1, 1, true, false, nullptr},
    {"lowercase", "--lc", "", "Metrics", "on|off",
     "BLEU without case (default off)",
     "on off", 0, 1, true, false, nullptr},
    {"confidence", "", "", "Metrics", "on|off",
     "mean and 95 % interval of both scores by resampling (default off)",
     "on off", 0, 1, true, false, nullptr},
    {"resamples", "--confidence-n", "", "Metrics", "N",
     "how often lines are resampled for --confidence and --baseline (default 1000)",
     "", 1, 1, true, false, nullptr},
    {"seed", "", "", "Metrics", "N",
     "seed of the resampling (default 12345)",
     "", 1, 1, true, false, nullptr},
};

constexpr const char* kSchedule[] = {"constant|fixed", "linear", "cosine", "inv-sqrt|inverse_sqrt", "noam"};
constexpr const char* kOptimizer[] = {"adamw|adam", "sgd", "muon"};
constexpr const char* kOptimizerStates[] = {"fp32", "8bit"};
constexpr const char* kCommunicationDtype[] = {"fp32|float32", "bf16|bfloat16"};
constexpr const char* kRecompute[] = {"none", "selective", "full"};
constexpr const char* kEarlyStoppingOn[] = {"first", "any", "all"};
constexpr const char* kArchitecture[] = {"encoder-decoder", "decoder-lm"};
constexpr const char* kActivation[] = {"relu", "gelu", "swish|silu", "gelu-erf"};
constexpr const char* kPreNorm[] = {"post", "pre"};
constexpr const char* kTokenize[] = {"13a", "none", "zh", "intl", "char", "flores200", "ja-mecab"};

constexpr const char* kTasks[] = {"tiny", "student-tiny", "small", "iwslt", "base", "big", "lm", "gpt2", "llama"};

}  // namespace

std::span<const SettingSpec> setting_specs() { return kSpecs; }
std::span<const SettingSpec> translate_specs() { return kTranslateSpecs; }
std::span<const SettingSpec> eval_specs() { return kEvalSpecs; }
std::span<const char* const> task_names() { return kTasks; }

void read_options(const Settings& s, trafo_trainer_options& o) {
  if (s.has("learn-rate")) o.learning_rate = s.real("learn-rate", {"above 0 and below 1000000", 0, 1000000, false, false, false});
  if (s.has("lr-decay")) o.schedule = s.choice("lr-decay", kSchedule);
  if (s.has("lr-warmup")) o.warmup = s.integer("lr-warmup", {"at least 0", 0, 0x1p62, true, false, false});
  if (s.has("label-smoothing")) o.label_smoothing = s.real("label-smoothing", {"at least 0 and below 1", 0, 1, true, false, false});
  if (s.has("clip-norm")) o.clip_norm = s.real("clip-norm", {"at least 0", 0, HUGE_VAL, true, false, true});
  if (s.has("weight-decay")) o.weight_decay = s.real("weight-decay", {"at least 0 and below 1000000", 0, 1000000, true, false, false});
  if (s.has("decay-norms-and-biases")) o.decay_norms_and_biases = s.flag("decay-norms-and-biases");
  if (s.has("optimizer")) o.optimizer = s.choice("optimizer", kOptimizer);
  if (s.has("momentum")) o.momentum = s.real("momentum", {"at least 0 and below 1", 0, 1, true, false, false});
  if (s.has("nesterov")) o.nesterov = s.flag("nesterov");
  if (s.has("optimizer-states")) o.optimizer_states = s.choice("optimizer-states", kOptimizerStates);
  if (s.has("quantize-bits")) o.quantize_bits = s.integer("quantize-bits", {"0 to 8", 0, 8, true, true, true});
  if (s.has("layer-drop")) o.layer_drop = s.real("layer-drop", {"at least 0 and below 1", 0, 1, true, false, true});
  if (s.has("prune-sparsity")) o.prune_sparsity = s.real("prune-sparsity", {"at least 0 and below 1", 0, 1, true, false, true});
  if (s.has("prune-start")) o.prune_start = s.integer("prune-start", {"at least 1", 1, 0x1p62, true, false, false});
  if (s.has("prune-end")) o.prune_end = s.integer("prune-end", {"0 (--prune-start, all at once) or above", 0, 0x1p62, true, false, true});
  if (s.has("prune-every")) o.prune_every = s.integer("prune-every", {"at least 1", 1, 0x1p62, true, false, false});
  if (s.has("keep-zeros")) o.keep_zeros = s.flag("keep-zeros");
  if (s.has("teacher-weight")) o.teacher_weight = s.real("teacher-weight", {"at least 0 and at most 1", 0, 1, true, true, false});
  if (s.has("teacher-temperature")) o.teacher_temperature = s.real("teacher-temperature", {"above 0 and below 1000000", 0, 1000000, false, false, false});
  if (s.has("exponential-smoothing")) read_ema_alpha(s, "exponential-smoothing", o);
  if (s.has("optimizer-delay")) o.gradient_accumulation = s.integer("optimizer-delay", {"1 to 1048576", 1, 1048576, true, true, false});
  if (s.has("lanes")) o.lanes = s.integer("lanes", {"1 to 65536", 1, 65536, true, true, false});
  if (s.has("communication-dtype")) o.communication_dtype = s.choice("communication-dtype", kCommunicationDtype);
  if (s.has("seed")) o.seed = s.seed("seed");
  if (s.has("mini-batch-words")) o.batch_tokens = s.integer("mini-batch-words", {"2 to 268435456", 2, 268435456, true, true, false});
  if (s.has("max-length")) o.max_length = s.integer("max-length", {"2 to 16777216", 2, 16777216, true, true, false});
  if (s.has("maxi-batch")) o.maxi_batch = s.integer("maxi-batch", {"0 to 1048576", 0, 1048576, true, true, true});
  if (s.has("max-length-ratio")) o.max_length_ratio = s.real("max-length-ratio", {"0 (any) or at least 1 and below 1000000", 1, 1000000, true, false, true});
  if (s.has("drop-identical")) o.drop_identical = s.flag("drop-identical");
  if (s.has("sentencepiece-alphas")) read_alphas(s, "sentencepiece-alphas", o);
  if (s.has("mini-batch-fit")) o.batch_fit = s.flag("mini-batch-fit");
  if (s.has("recompute")) o.recompute = s.choice("recompute", kRecompute);
  if (s.has("autotune-gemm")) o.autotune_gemm = s.flag("autotune-gemm");
  if (s.has("memory-limit")) o.memory_limit = s.bytes("memory-limit");
  if (s.has("phase")) o.phase = s.integer("phase", {"1 to 1048576", 1, 1048576, true, true, false});
  if (s.has("restart-validation")) o.restart_validation = s.flag("restart-validation");
  if (s.has("after")) read_after(s, "after", o);
  if (s.has("early-stopping")) o.early_stopping = s.integer("early-stopping", {"0 (never) or above", 0, 0x1p62, true, false, true});
  if (s.has("early-stopping-on")) o.early_stopping_on = s.choice("early-stopping-on", kEarlyStoppingOn);
  if (s.has("valid-freq")) o.valid_freq = parse_period(s, "valid-freq", s.text("valid-freq"));
  if (s.has("save-freq")) o.save_freq = parse_period(s, "save-freq", s.text("save-freq"));
  if (s.has("disp-freq")) o.log_freq = parse_period(s, "disp-freq", s.text("disp-freq"));
  if (s.has("valid-metrics")) read_metrics(s, "valid-metrics", o);
  if (s.has("beam-size")) o.valid_beam = s.integer("beam-size", {"1 to 1024", 1, 1024, true, true, false});
  if (s.has("normalize")) o.valid_normalize = s.real("normalize", {"at least 0 and below 1000", 0, 1000, true, false, false});
  if (s.has("keep-best")) o.keep_best = s.flag("keep-best");
  if (s.has("keep-last")) o.keep_last = s.integer("keep-last", {"at least 1", 1, 0x1p62, true, false, false});
  if (s.has("average-last")) o.average_last = s.integer("average-last", {"0 to 1000", 0, 1000, true, true, true});
}

void set_defaults(Settings& s, const trafo_trainer_options& o) {
  s.set_default("learn-rate", {fmt::format("{}", o.learning_rate)});
  s.set_default("lr-decay", {first_name(kSchedule[o.schedule])});
  s.set_default("lr-warmup", {fmt::format("{}", o.warmup)});
  s.set_default("label-smoothing", {fmt::format("{}", o.label_smoothing)});
  s.set_default("clip-norm", {fmt::format("{}", o.clip_norm)});
  s.set_default("weight-decay", {fmt::format("{}", o.weight_decay)});
  s.set_default("decay-norms-and-biases", {o.decay_norms_and_biases != 0 ? "on" : "off"});
  s.set_default("optimizer", {first_name(kOptimizer[o.optimizer])});
  s.set_default("momentum", {fmt::format("{}", o.momentum)});
  s.set_default("nesterov", {o.nesterov != 0 ? "on" : "off"});
  s.set_default("optimizer-states", {first_name(kOptimizerStates[o.optimizer_states])});
  s.set_default("quantize-bits", {fmt::format("{}", o.quantize_bits)});
  s.set_default("layer-drop", {fmt::format("{}", o.layer_drop)});
  s.set_default("prune-sparsity", {fmt::format("{}", o.prune_sparsity)});
  s.set_default("prune-start", {fmt::format("{}", o.prune_start)});
  s.set_default("prune-end", {fmt::format("{}", o.prune_end)});
  s.set_default("prune-every", {fmt::format("{}", o.prune_every)});
  s.set_default("keep-zeros", {o.keep_zeros != 0 ? "on" : "off"});
  s.set_default("teacher-weight", {fmt::format("{}", o.teacher_weight)});
  s.set_default("teacher-temperature", {fmt::format("{}", o.teacher_temperature)});
  s.set_default("exponential-smoothing", {fmt::format("{}", o.ema_alpha)});
  s.set_default("optimizer-delay", {fmt::format("{}", o.gradient_accumulation)});
  s.set_default("lanes", {fmt::format("{}", o.lanes)});
  s.set_default("communication-dtype", {first_name(kCommunicationDtype[o.communication_dtype])});
  s.set_default("seed", {fmt::format("{}", o.seed)});
  s.set_default("mini-batch-words", {fmt::format("{}", o.batch_tokens)});
  s.set_default("max-length", {fmt::format("{}", o.max_length)});
  s.set_default("maxi-batch", {fmt::format("{}", o.maxi_batch)});
  s.set_default("max-length-ratio", {fmt::format("{}", o.max_length_ratio)});
  s.set_default("drop-identical", {o.drop_identical != 0 ? "on" : "off"});
  s.set_default("mini-batch-fit", {o.batch_fit != 0 ? "on" : "off"});
  s.set_default("recompute", {first_name(kRecompute[o.recompute])});
  s.set_default("autotune-gemm", {o.autotune_gemm != 0 ? "on" : "off"});
  s.set_default("memory-limit", {fmt::format("{}", o.memory_limit)});
  s.set_default("phase", {fmt::format("{}", o.phase)});
  s.set_default("restart-validation", {o.restart_validation != 0 ? "on" : "off"});
  s.set_default("early-stopping", {fmt::format("{}", o.early_stopping)});
  s.set_default("early-stopping-on", {first_name(kEarlyStoppingOn[o.early_stopping_on])});
  s.set_default("valid-freq", {period_text(o.valid_freq)});
  s.set_default("save-freq", {period_text(o.save_freq)});
  s.set_default("disp-freq", {period_text(o.log_freq)});
  s.set_default("valid-metrics", metric_names(o));
  s.set_default("beam-size", {fmt::format("{}", o.valid_beam)});
  s.set_default("normalize", {fmt::format("{}", o.valid_normalize)});
  s.set_default("keep-best", {o.keep_best != 0 ? "on" : "off"});
  s.set_default("keep-last", {fmt::format("{}", o.keep_last)});
  s.set_default("average-last", {fmt::format("{}", o.average_last)});
}

void read_options(const Settings& s, trafo_model_config& o) {
  if (s.has("arch")) o.architecture = s.choice("arch", kArchitecture);
  if (s.has("transformer-ffn-activation")) o.activation = s.choice("transformer-ffn-activation", kActivation);
  if (s.has("enc-depth")) read_encoder_layers(s, "enc-depth", o);
  if (s.has("dec-depth")) o.decoder_layers = s.integer("dec-depth", {"1 to 1024", 1, 1024, true, true, false});
  if (s.has("dim-emb")) o.width = s.integer("dim-emb", {"2 to 16777216", 2, 16777216, true, true, false});
  if (s.has("transformer-dim-ffn")) o.ffn_width = s.integer("transformer-dim-ffn", {"1 to 16777216", 1, 16777216, true, true, false});
  if (s.has("transformer-heads")) o.heads = s.integer("transformer-heads", {"1 to 16777216", 1, 16777216, true, true, false});
  if (s.has("transformer-norm")) o.pre_norm = s.choice("transformer-norm", kPreNorm);
  if (s.has("tied-embeddings-all")) o.tied_embeddings = s.flag("tied-embeddings-all");
  if (s.has("transformer-dropout")) o.dropout = s.real("transformer-dropout", {"at least 0 and below 1", 0, 1, true, false, false});
  if (s.has("transformer-dropout-attention")) o.attention_dropout = s.real("transformer-dropout-attention", {"at least 0 and below 1", 0, 1, true, false, false});
  if (s.has("transformer-dropout-ffn")) o.ffn_dropout = s.real("transformer-dropout-ffn", {"at least 0 and below 1", 0, 1, true, false, false});
  if (s.has("transformer-kv-heads")) o.kv_heads = s.integer("transformer-kv-heads", {"0 to 16777216", 0, 16777216, true, true, true});
  if (s.has("transformer-depth-scaling")) o.depth_scaled_init = s.flag("transformer-depth-scaling");
  if (s.has("output-bias")) o.output_bias = s.flag("output-bias");
  if (s.has("transformer-tied-layers")) read_tied_layers(s, "transformer-tied-layers", o.decoder_tied_layers);
  if (s.has("transformer-tied-encoder-layers")) read_tied_layers(s, "transformer-tied-encoder-layers", o.encoder_tied_layers);
}

void set_defaults(Settings& s, const trafo_model_config& o) {
  s.set_default("arch", {first_name(kArchitecture[o.architecture])});
  s.set_default("transformer-ffn-activation", {first_name(kActivation[o.activation])});
  s.set_default("enc-depth", {fmt::format("{}", o.encoder_layers)});
  s.set_default("dec-depth", {fmt::format("{}", o.decoder_layers)});
  s.set_default("dim-emb", {fmt::format("{}", o.width)});
  s.set_default("transformer-dim-ffn", {fmt::format("{}", o.ffn_width)});
  s.set_default("transformer-heads", {fmt::format("{}", o.heads)});
  s.set_default("transformer-norm", {first_name(kPreNorm[o.pre_norm])});
  s.set_default("tied-embeddings-all", {o.tied_embeddings != 0 ? "on" : "off"});
  s.set_default("transformer-dropout", {fmt::format("{}", o.dropout)});
  s.set_default("transformer-dropout-attention", {fmt::format("{}", o.attention_dropout)});
  s.set_default("transformer-dropout-ffn", {fmt::format("{}", o.ffn_dropout)});
  s.set_default("transformer-kv-heads", {fmt::format("{}", o.kv_heads)});
  s.set_default("transformer-depth-scaling", {o.depth_scaled_init != 0 ? "on" : "off"});
  s.set_default("output-bias", {o.output_bias != 0 ? "on" : "off"});
  s.set_default("transformer-tied-layers", layer_names(o.decoder_tied_layers));
  s.set_default("transformer-tied-encoder-layers", layer_names(o.encoder_tied_layers));
}

void read_options(const Settings& s, trafo_translate_options& o) {
  if (s.has("beam-size")) o.beam = s.integer("beam-size", {"1 to 4096", 1, 4096, true, true, false});
  if (s.has("normalize")) o.length_penalty = s.real("normalize", {"at least 0", 0, HUGE_VAL, true, false, true});
  if (s.has("max-length")) o.max_length = s.integer("max-length", {"0 (twice the source plus 10, at most 200) or above", 0, 0x1p62, true, false, true});
  if (s.has("min-length")) o.min_length = s.integer("min-length", {"at least 0", 0, 0x1p62, true, false, false});
  if (s.has("mini-batch-words")) o.batch_tokens = s.integer("mini-batch-words", {"at least 1", 1, 0x1p62, true, false, false});
  if (s.has("repetition-penalty")) o.repetition_penalty = s.real("repetition-penalty", {"above 0", 0, HUGE_VAL, false, false, false});
  if (s.has("no-repeat-ngram-size")) o.no_repeat_ngram_size = s.integer("no-repeat-ngram-size", {"0 (any may repeat) or above", 0, 0x1p62, true, false, true});
  if (s.has("alignment-layer")) o.alignment_layer = s.integer("alignment-layer", {"0 to 1024", 0, 1024, true, true, true});
  if (s.has("temperature")) o.temperature = s.real("temperature", {"above 0", 0, HUGE_VAL, false, false, false});
  if (s.has("sampling-topk")) o.top_k = s.integer("sampling-topk", {"0 (all) or above", 0, 0x1p62, true, false, true});
  if (s.has("sampling-topp")) o.top_p = s.real("sampling-topp", {"above 0 and at most 1", 0, 1, false, true, false});
  if (s.has("seed")) o.seed = s.seed("seed");
  if (s.has("end-source")) o.end_source = s.flag("end-source");
  if (s.has("begin-source")) o.begin_source = s.flag("begin-source");
}

void read_options(const Settings& s, trafo_evaluation_options& o) {
  if (s.has("tokenize")) o.tokenize = s.choice("tokenize", kTokenize);
  if (s.has("lowercase")) o.lowercase = s.flag("lowercase");
  if (s.has("confidence")) o.confidence = s.flag("confidence");
  if (s.has("resamples")) o.resamples = s.integer("resamples", {"1 to 1048576", 1, 1048576, true, true, false});
  if (s.has("seed")) o.seed = s.seed("seed");
}

std::span<const MemberFlag> member_flags() {
  static constexpr MemberFlag kMembers[] = {
      {"activation", "--transformer-ffn-activation"},
      {"architecture", "--arch"},
      {"attention_dropout", "--transformer-dropout-attention"},
      {"autotune_gemm", "--autotune-gemm"},
      {"average_last", "--average-last"},
      {"batch_fit", "--mini-batch-fit"},
      {"batch_tokens", "--mini-batch-words"},
      {"clip_norm", "--clip-norm"},
      {"communication_dtype", "--communication-dtype"},
      {"decay_norms_and_biases", "--decay-norms-and-biases"},
      {"decoder_layers", "--dec-depth"},
      {"decoder_tied_layers", "--transformer-tied-layers"},
      {"depth_scaled_init", "--transformer-depth-scaling"},
      {"drop_identical", "--drop-identical"},
      {"dropout", "--transformer-dropout"},
      {"early_stopping", "--early-stopping"},
      {"early_stopping_on", "--early-stopping-on"},
      {"ema_alpha", "--exponential-smoothing"},
      {"encoder_layers", "--enc-depth"},
      {"encoder_tied_layers", "--transformer-tied-encoder-layers"},
      {"ffn_dropout", "--transformer-dropout-ffn"},
      {"ffn_width", "--transformer-dim-ffn"},
      {"gradient_accumulation", "--optimizer-delay"},
      {"heads", "--transformer-heads"},
      {"keep_best", "--keep-best"},
      {"keep_last", "--keep-last"},
      {"keep_zeros", "--keep-zeros"},
      {"kv_heads", "--transformer-kv-heads"},
      {"label_smoothing", "--label-smoothing"},
      {"lanes", "--lanes"},
      {"layer_drop", "--layer-drop"},
      {"learning_rate", "--learn-rate"},
      {"log_freq", "--disp-freq"},
      {"max_length", "--max-length"},
      {"max_length_ratio", "--max-length-ratio"},
      {"maxi_batch", "--maxi-batch"},
      {"memory_limit", "--memory-limit"},
      {"momentum", "--momentum"},
      {"nesterov", "--nesterov"},
      {"optimizer", "--optimizer"},
      {"optimizer_states", "--optimizer-states"},
      {"output_bias", "--output-bias"},
      {"phase", "--phase"},
      {"pre_norm", "--transformer-norm"},
      {"prune_end", "--prune-end"},
      {"prune_every", "--prune-every"},
      {"prune_sparsity", "--prune-sparsity"},
      {"prune_start", "--prune-start"},
      {"quantize_bits", "--quantize-bits"},
      {"recompute", "--recompute"},
      {"restart_validation", "--restart-validation"},
      {"save_freq", "--save-freq"},
      {"schedule", "--lr-decay"},
      {"schedule_updates", "--after"},
      {"seed", "--seed"},
      {"teacher_temperature", "--teacher-temperature"},
      {"teacher_weight", "--teacher-weight"},
      {"tied_embeddings", "--tied-embeddings-all"},
      {"valid_beam", "--beam-size"},
      {"valid_freq", "--valid-freq"},
      {"valid_metrics", "--valid-metrics"},
      {"valid_normalize", "--normalize"},
      {"warmup", "--lr-warmup"},
      {"weight_decay", "--weight-decay"},
      {"width", "--dim-emb"},
  };
  return kMembers;
}

std::span<const MemberFlag> decoding_member_flags() {
  static constexpr MemberFlag kMembers[] = {
      {"alignment_layer", "--alignment-layer"},
      {"batch_tokens", "--mini-batch-words"},
      {"beam", "--beam-size"},
      {"begin_source", "--begin-source"},
      {"end_source", "--end-source"},
      {"length_penalty", "--normalize"},
      {"max_length", "--max-length"},
      {"min_length", "--min-length"},
      {"no_repeat_ngram_size", "--no-repeat-ngram-size"},
      {"repetition_penalty", "--repetition-penalty"},
      {"seed", "--seed"},
      {"temperature", "--temperature"},
      {"top_k", "--sampling-topk"},
      {"top_p", "--sampling-topp"},
  };
  return kMembers;
}

std::span<const Architecture> architectures() {
  static constexpr Architecture kArchitectures[] = {{"encoder-decoder", true}, {"decoder-lm", false}};
  return kArchitectures;
}

std::span<const MetricSpec> metric_specs() {
  static constexpr MetricSpec kMetrics[] = {{"bleu", "BLEU", "bleu", TRAFO_METRIC_BLEU, 2, false}, {"chrf", "chrF", "chrf", TRAFO_METRIC_CHRF, 2, false}, {"ter", "TER", "ter", TRAFO_METRIC_TER, 2, true}, {"ce-mean-words", "cross-entropy", "ce", TRAFO_METRIC_CE, 4, true}};
  return kMetrics;
}

std::span<const char* const> shape_settings() {
  static constexpr const char* kShape[] = {"arch", "transformer-ffn-activation", "enc-depth", "dec-depth", "dim-emb", "transformer-dim-ffn", "transformer-heads", "transformer-norm", "tied-embeddings-all", "transformer-kv-heads", "output-bias", "transformer-tied-layers", "transformer-tied-encoder-layers"};
  return kShape;
}

}  // namespace translate_train
