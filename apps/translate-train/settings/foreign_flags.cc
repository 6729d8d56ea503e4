#include "settings/foreign_flags.h"

#include <string>

namespace translate_train {
namespace {

constexpr ForeignFlag kForeignFlags[] = {
    // Marian
    {"train", "--type", "every model here is a transformer: --arch encoder-decoder or decoder-lm"},
    {"train", "--num-devices", "--devices 0,1 names those that train"},
    {"train", "--mini-batch,--batch-size,--max-sentences",
     "batches are counted in target tokens: --mini-batch-words N"},
    {"train", "--optimizer-params,--adam-betas,--adam-eps",
     "they are 0.9, 0.98 and 1e-9; weight decay is --weight-decay"},
    {"train", "--lr-decay-inv-sqrt",
     "--lr-decay inv-sqrt, which falls from the end of --lr-warmup"},
    {"train", "--lr-report", "every line of the log has the learning rate"},
    {"train", "--cost-type,--criterion",
     "the loss is cross-entropy with --label-smoothing, as a mean over target tokens"},
    {"train", "--tied-embeddings,--tied-embeddings-src,--share-decoder-input-output-embed",
     "--tied-embeddings-all on or off"},
    {"train",
     "--transformer-preprocess,--transformer-postprocess,--transformer-postprocess-emb,"
     "--encoder-normalize-before,--decoder-normalize-before",
     "--transformer-norm pre or post"},
    {"train", "--decoder-embed-dim", "both sides have the same width: --dim-emb"},
    {"train", "--decoder-ffn-embed-dim", "both sides have the same width: --transformer-dim-ffn"},
    {"train", "--decoder-attention-heads", "both sides have as many: --transformer-heads"},
    {"train", "--fp16,--bf16,--memory-efficient-fp16",
     "--precision bf16, the default on a GPU, which needs no loss scale"},
    {"train", "--ddp-comm-hook", "--communication-dtype bf16"},
    {"train", "--cpu", "--device cpu"},
    {"train", "--sync-sgd,--quiet-translation,--no-epoch-checkpoints,--num-workers",
     "it is always so here, or not needed: leave it out"},
    {"train", "--log", "RUN/train.log has what the terminal shows"},
    {"train", "--valid-log", "RUN/metrics.jsonl has every validation"},
    {"train", "--valid-translation-output", "RUN/valid/UPDATE.hyp has the translations of each"},
    {"train", "--no-restore-corpus",
     "a resumed run continues in its corpus where it stopped; --pretrained-model with another "
     "--model begins anew with the weights of this one"},
    {"train", "--valid-mini-batch", "validation chooses its batches itself: leave it out"},
    {"train", "--valid-script-path,--valid-script-args",
     "no script runs: --valid-metrics bleu chrf ce-mean-words, and RUN/valid/UPDATE.hyp has the "
     "translations of each validation for other measures"},
    {"train", "--overwrite", "--keep-last N says how many checkpoints stay"},
    {"train", "--keep-best-checkpoints,--keep-last-epochs,--keep-interval-updates",
     "--keep-last N and --keep-best on or off"},
    {"train", "--best-checkpoint-metric,--maximize-best-checkpoint-metric,--eval-bleu",
     "--valid-metrics bleu chrf ce-mean-words: the first decides which checkpoint is best"},
    {"train", "--shuffle-in-ram", "--data-in-memory SIZE"},
    {"train", "--max-length-crop", "longer pairs are dropped and counted: --max-length N"},
    {"train", "--max-source-positions,--max-target-positions", "--max-length N, for both sides"},
    {"train", "--warmup-init-lr", "the warm-up begins at 0: --lr-warmup N"},
    {"train", "--gradient-checkpointing,--checkpoint-activations", "--recompute selective or full"},
    {"train", "--source-lang,--target-lang,--trainpref,--validpref,--testpref",
     "files are named whole: --train-sets SRC TRG, --valid-sets SRC TRG"},
    {"train", "--joined-dictionary,--nwordssrc,--nwordstgt",
     "one vocabulary serves both sides: --dim-vocabs N, or --vocabs FILE"},
    {"train", "--dim-rnn",
     "there are no recurrent layers: --dim-emb is the width of a transformer and "
     "--transformer-dim-ffn that inside its feed-forward"},
    {"train", "--enc-cell,--dec-cell,--enc-type,--enc-cell-depth,--dec-cell-base-depth",
     "there are no recurrent layers: --enc-depth and --dec-depth count a transformer's"},
    {"train", "--skip,--layer-normalization",
     "a transformer has residuals and norms always: --transformer-norm pre or post"},
    {"train", "--transformer-decoder-autoreg",
     "decoders have self-attention only; --dec-depth 1 decodes fast as well"},
    {"train", "--guided-alignment,--guided-alignment-weight,--guided-alignment-cost",
     "training takes no alignments; the command translate writes those of the cross-attention"},
    {"train", "--input-types", "text is all there is: --train-sets SRC TRG, or --tsv FILE"},
    {"train", "--ulr,--bert-mask-symbol",
     "embeddings are learned with the rest; --pretrained-model begins with those of a model"},
    {"train", "--all-caps-every,--english-title-case-every",
     "write such copies of the lines into a file of their own: --train-sets takes several, "
     "--data-weights says how often each is drawn"},
    {"train", "--multi-loss-type", "there is one loss, a mean over target tokens: leave it out"},
    {"train", "--after-batches", "--after Nu ends after N updates"},
    {"train", "--output-omit-bias", "--output-bias off"},
    {"train", "--no-reload", "another --model begins anew; the same one resumes"},
    {"train", "--logical-epoch,--lr-decay-strategy,--lr-decay-start,--mini-batch-warmup",
     "--lr-decay and --lr-warmup say how the learning rate moves"},
    {"train", "--mini-batch-round-up,--mini-batch-words-ref",
     "--mini-batch-words N is the largest batch in target tokens"},
    {"train", "--sentencepiece-options,--sentencepiece-max-lines",
     "translate-train vocab makes a vocabulary in other ways; --vocabs FILE takes it"},
    {"train",
     "--cost-scaling,--check-gradient-nan,--normalize-gradient,--dynamic-gradient-scaling,"
     "--gradient-norm-average-window,--fp16-scale-window,--fp16-init-scale,--min-loss-scale,"
     "--relative-paths,--no-nccl,--ddp-backend,--sqlite,--no-progress-bar,"
     "--skip-invalid-size-inputs-valid-test,--find-unused-parameters,--required-batch-size-"
     "multiple",
     "it is always so here, or not needed: leave it out"},
    {"train", "--bpe,--tokenizer,--remove-bpe",
     "text is raw here, and SentencePiece splits it: leave it out"},
    {"train", "--wandb-project,--wandb-id", "--tensorboard, or translate-train report"},
    {"train", "--user-dir", "there are no plugins: programs in C, Rust and Go use the library"},
    {"train", "--min-lr,--stop-min-lr", "--after and --early-stopping end a run"},
    {"train", "--save-interval,--validate-interval",
     "--save-freq and --valid-freq count epochs with the unit e: 1e"},
    {"train",
     "--reset-optimizer,--reset-dataloader,--reset-meters,--reset-lr-scheduler,--valid-reset-"
     "stalled",
     "a resumed run keeps its state; --pretrained-model with another --model begins anew with the "
     "weights of this one"},
    {"train", "--encoder-layerdrop,--decoder-layerdrop", "--layer-drop P, for both sides"},
    {"train", "--relu-dropout", "--transformer-dropout-ffn P"},
    {"train", "--dropout-rnn,--dropout-src,--dropout-trg",
     "--transformer-dropout, --transformer-dropout-attention and --transformer-dropout-ffn"},
    {"train",
     "--eval-bleu-args,--eval-bleu-detok,--eval-bleu-remove-bpe,--eval-bleu-print-samples,"
     "--eval-tokenized-bleu,--valid-max-length,--max-length-factor,--n-best,--allow-unk",
     "validation translates raw text with --beam-size and --normalize, and BLEU is sacreBLEU's"},
    {"train", "--distributed-world-size,--distributed-port,--distributed-init-method",
     "--devices 0,1 trains on several GPUs of a host, --nodes and --master on several hosts"},
    {"train", "--shuffle,--no-shuffle",
     "every epoch has an order of its own, which follows from --seed"},
    {"train", "--data-weighting,--data-weighting-type",
     "--data-weights W ... has a weight for each corpus, not for each line"},
    {"train", "--sentence-avg", "the loss is a mean over target tokens: leave it out"},
    {"train", "--restore-file",
     "the same command resumes a run; --pretrained-model starts from another model"},
    // decoding
    {"translate", "--models,--path", "--model RUN or FILE"},
    {"translate", "-d,--devices", "--device cuda:0 or cpu"},
    {"translate",
     "--mini-batch,--batch-size,--max-tokens,--maxi-batch-sort,--buffer-size,--workspace",
     "--mini-batch-words N tokens are decoded together"},
    {"translate", "--remove-bpe,--post-process,--sentencepiece",
     "it prints whole words: leave it out"},
    {"translate", "--max-len-a,--max-len-b,--max-length-factor", "--max-length N"},
    {"translate", "--print-alignment", "--alignment hard or soft"},
    {"translate", "--fp16", "--precision bf16, the default on a GPU"},
    {"translate", "--word-penalty",
     "--normalize A divides by length^A, and --min-length asks for so many tokens"},
    {"translate", "--force-decode,--prefix-size",
     "--prefixes FILE has the beginning of each translation"},
    {"translate", "--allow-unk", "translations never have <unk>: leave it out"},
};

}  // namespace

std::span<const ForeignFlag> foreign_flags() {
  return kForeignFlags;
}

const ForeignFlag* find_foreign_flag(std::string_view command, std::string_view flag) {
  for (const ForeignFlag& row : kForeignFlags) {
    const std::string flags = std::string(",") + row.flags + ",";
    if (row.command == command && flags.find("," + std::string(flag) + ",") != std::string::npos)
      return &row;
  }
  return nullptr;
}

}  // namespace translate_train
