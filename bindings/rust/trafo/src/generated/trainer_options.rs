// Written by scripts/generate_options.py from schema/training.toml: change that.
/// A metric of validations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// Corpus BLEU.
    Bleu,
    /// Corpus chrF2.
    Chrf,
    /// Translation edit rate: edits for each word of the reference, in per cent.
    Ter,
    /// Cross-entropy for each label.
    Ce,
    /// Of DPO and ORPO: share of the pairs whose chosen answer has the higher reward. Of KTO: share of the answers
    /// whose reward is on the right side of the KL term.
    RewardAccuracy,
    /// Of DPO, ORPO and KTO: difference between the mean rewards of chosen and rejected answers.
    RewardMargin,
    /// Of classification: share of the labels that have the highest logit.
    Accuracy,
}
impl Metric {
    const ALL: [Metric; 7] = [Metric::Bleu, Metric::Chrf, Metric::Ter, Metric::Ce, Metric::RewardAccuracy, Metric::RewardMargin, Metric::Accuracy];
    pub(crate) fn bit(self) -> i32 {
        match self {
            Metric::Bleu => sys::TRAFO_METRIC_BLEU,
            Metric::Chrf => sys::TRAFO_METRIC_CHRF,
            Metric::Ter => sys::TRAFO_METRIC_TER,
            Metric::Ce => sys::TRAFO_METRIC_CE,
            Metric::RewardAccuracy => sys::TRAFO_METRIC_REWARD_ACCURACY,
            Metric::RewardMargin => sys::TRAFO_METRIC_REWARD_MARGIN,
            Metric::Accuracy => sys::TRAFO_METRIC_ACCURACY,
        }
    }
}
named! { Metric:
    Bleu = "bleu",
    Chrf = "chrf",
    Ter = "ter",
    Ce = "ce-mean-words",
    RewardAccuracy = "reward-accuracy",
    RewardMargin = "reward-margin",
    Accuracy = "accuracy",
}
/// How the learning rate goes after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// It stays at its peak.
    Constant,
    /// It falls on a line from its peak to 0 at update schedule_updates, which must be set.
    Linear,
    /// It falls on half a cosine from its peak to 0 at update schedule_updates, which must be set.
    Cosine,
    /// It falls with the square root of the update.
    InverseSqrt,
    /// The schedule of the first transformer.
    Noam,
    /// It is the smaller one of its peak and 1 / sqrt(update): Adafactor's relative step.
    RelativeStep,
}
impl Schedule {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Schedule::Constant => sys::TRAFO_SCHEDULE_CONSTANT,
            Schedule::Linear => sys::TRAFO_SCHEDULE_LINEAR,
            Schedule::Cosine => sys::TRAFO_SCHEDULE_COSINE,
            Schedule::InverseSqrt => sys::TRAFO_SCHEDULE_INVERSE_SQRT,
            Schedule::Noam => sys::TRAFO_SCHEDULE_NOAM,
            Schedule::RelativeStep => sys::TRAFO_SCHEDULE_RELATIVE_STEP,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_SCHEDULE_LINEAR => Schedule::Linear,
            sys::TRAFO_SCHEDULE_COSINE => Schedule::Cosine,
            sys::TRAFO_SCHEDULE_INVERSE_SQRT => Schedule::InverseSqrt,
            sys::TRAFO_SCHEDULE_NOAM => Schedule::Noam,
            sys::TRAFO_SCHEDULE_RELATIVE_STEP => Schedule::RelativeStep,
            _ => Schedule::Constant,
        }
    }
}
named! { Schedule:
    Constant = "constant" | "fixed",
    Linear = "linear",
    Cosine = "cosine",
    InverseSqrt = "inv-sqrt" | "inverse_sqrt",
    Noam = "noam",
    RelativeStep = "relative-step" | "relative_step",
}
/// How the weights follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptimizerKind {
    /// AdamW; with weight_decay 0 it is Adam.
    Adamw,
    /// Stochastic gradient descent; weight_decay is added to the gradient.
    Sgd,
    /// Muon: orthogonalized momentum for the matrices of linear layers, AdamW for all other weights.
    Muon,
    /// Lion: the sign of a momentum; weight_decay is decoupled.
    Lion,
    /// Adafactor: second moments of rows and columns, no first moment; weight_decay is decoupled.
    Adafactor,
}
impl OptimizerKind {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            OptimizerKind::Adamw => sys::TRAFO_OPTIMIZER_ADAMW,
            OptimizerKind::Sgd => sys::TRAFO_OPTIMIZER_SGD,
            OptimizerKind::Muon => sys::TRAFO_OPTIMIZER_MUON,
            OptimizerKind::Lion => sys::TRAFO_OPTIMIZER_LION,
            OptimizerKind::Adafactor => sys::TRAFO_OPTIMIZER_ADAFACTOR,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_OPTIMIZER_SGD => OptimizerKind::Sgd,
            sys::TRAFO_OPTIMIZER_MUON => OptimizerKind::Muon,
            sys::TRAFO_OPTIMIZER_LION => OptimizerKind::Lion,
            sys::TRAFO_OPTIMIZER_ADAFACTOR => OptimizerKind::Adafactor,
            _ => OptimizerKind::Adamw,
        }
    }
}
named! { OptimizerKind:
    Adamw = "adamw" | "adam",
    Sgd = "sgd",
    Muon = "muon",
    Lion = "lion",
    Adafactor = "adafactor",
}
/// Storage type of the optimizer's two moments of every parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptimizerStates {
    /// float32: 8 bytes a parameter.
    Float32,
    /// Codes of a byte in blocks of 256 with a scale: 2.03 bytes a parameter.
    EightBit,
}
impl OptimizerStates {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            OptimizerStates::Float32 => sys::TRAFO_OPTIMIZER_STATES_FLOAT32,
            OptimizerStates::EightBit => sys::TRAFO_OPTIMIZER_STATES_8BIT,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_OPTIMIZER_STATES_8BIT => OptimizerStates::EightBit,
            _ => OptimizerStates::Float32,
        }
    }
}
named! { OptimizerStates:
    Float32 = "fp32" | "float32",
    EightBit = "8bit" | "eight_bit",
}
/// The function that training minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Objective {
    /// Cross-entropy of the labels; of a model with a teacher, word-level distillation.
    CrossEntropy,
    /// Direct Preference Optimization, on preference pairs.
    Dpo,
    /// Odds Ratio Preference Optimization, on preference pairs, without a reference.
    Orpo,
    /// Kahneman-Tversky Optimization, on labelled answers or preference pairs.
    Kto,
    /// Cross-entropy of the labels that the head of an encoder gives to texts or tokens.
    Classification,
    /// Cross-entropy of masked tokens, in an encoder with the head masked-lm, on plain text.
    MaskedLm,
}
impl Objective {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Objective::CrossEntropy => sys::TRAFO_OBJECTIVE_CROSS_ENTROPY,
            Objective::Dpo => sys::TRAFO_OBJECTIVE_DPO,
            Objective::Orpo => sys::TRAFO_OBJECTIVE_ORPO,
            Objective::Kto => sys::TRAFO_OBJECTIVE_KTO,
            Objective::Classification => sys::TRAFO_OBJECTIVE_CLASSIFICATION,
            Objective::MaskedLm => sys::TRAFO_OBJECTIVE_MASKED_LM,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_OBJECTIVE_DPO => Objective::Dpo,
            sys::TRAFO_OBJECTIVE_ORPO => Objective::Orpo,
            sys::TRAFO_OBJECTIVE_KTO => Objective::Kto,
            sys::TRAFO_OBJECTIVE_CLASSIFICATION => Objective::Classification,
            sys::TRAFO_OBJECTIVE_MASKED_LM => Objective::MaskedLm,
            _ => Objective::CrossEntropy,
        }
    }
}
named! { Objective:
    CrossEntropy = "cross-entropy" | "cross_entropy",
    Dpo = "dpo",
    Orpo = "orpo",
    Kto = "kto",
    Classification = "classification",
    MaskedLm = "masked-lm" | "masked_lm",
}
/// Type in which ranks send each other the gradient of a lane. Sums are float32 under each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommunicationDType {
    /// float32.
    Float32,
    /// bfloat16, half the bytes: the gradient of each lane is rounded to nearest even before it is added.
    Bfloat16,
}
impl CommunicationDType {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            CommunicationDType::Float32 => sys::TRAFO_COMMUNICATION_FLOAT32,
            CommunicationDType::Bfloat16 => sys::TRAFO_COMMUNICATION_BFLOAT16,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_COMMUNICATION_BFLOAT16 => CommunicationDType::Bfloat16,
            _ => CommunicationDType::Float32,
        }
    }
}
named! { CommunicationDType:
    Float32 = "fp32" | "float32",
    Bfloat16 = "bf16" | "bfloat16",
}
/// Treatment of lines of plain text with more than max_length tokens, in training and validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LongLines {
    /// They are dropped and counted.
    Drop,
    /// Windows of max_length tokens, for a decoder-lm.
    Window,
}
impl LongLines {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            LongLines::Drop => sys::TRAFO_LONG_LINES_DROP,
            LongLines::Window => sys::TRAFO_LONG_LINES_WINDOW,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_LONG_LINES_WINDOW => LongLines::Window,
            _ => LongLines::Drop,
        }
    }
}
named! { LongLines:
    Drop = "drop",
    Window = "window",
}
/// Tokens of conversations that the loss counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChatLoss {
    /// Those that the assistant writes, the end of each answer included.
    Answers,
    /// All but the first one.
    All,
}
impl ChatLoss {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            ChatLoss::Answers => sys::TRAFO_CHAT_LOSS_ANSWERS,
            ChatLoss::All => sys::TRAFO_CHAT_LOSS_ALL,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_CHAT_LOSS_ALL => ChatLoss::All,
            _ => ChatLoss::Answers,
        }
    }
}
named! { ChatLoss:
    Answers = "answers",
    All = "all",
}
/// Whether a special token is beside a source or a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrameToken {
    /// It is not there.
    Off,
    /// It is there.
    On,
    /// As the model was trained; of an imported decoder-lm, as its own files say.
    #[default]
    ByModel,
}
impl FrameToken {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            FrameToken::Off => sys::TRAFO_FRAME_OFF,
            FrameToken::On => sys::TRAFO_FRAME_ON,
            FrameToken::ByModel => sys::TRAFO_FRAME_BY_MODEL,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_FRAME_ON => FrameToken::On,
            sys::TRAFO_FRAME_BY_MODEL => FrameToken::ByModel,
            _ => FrameToken::Off,
        }
    }
}
named! { FrameToken:
    Off = "off",
    On = "on",
    ByModel = "model" | "by_model",
}
/// Activations that backward recomputes instead of keeping them (gradient checkpointing). Results are the same bits
/// under each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recompute {
    /// Nothing.
    None,
    /// Outputs of norms and of activations, which are large and cheap.
    Selective,
    /// Everything inside a layer.
    Full,
}
impl Recompute {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Recompute::None => sys::TRAFO_RECOMPUTE_NONE,
            Recompute::Selective => sys::TRAFO_RECOMPUTE_SELECTIVE,
            Recompute::Full => sys::TRAFO_RECOMPUTE_FULL,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_RECOMPUTE_SELECTIVE => Recompute::Selective,
            sys::TRAFO_RECOMPUTE_FULL => Recompute::Full,
            _ => Recompute::None,
        }
    }
}
named! { Recompute:
    None = "none",
    Selective = "selective",
    Full = "full",
}
/// The metrics that early stopping looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoppingMetrics {
    /// The metric that decides which checkpoint is best.
    First,
    /// Stops when any metric has stalled for so long.
    Any,
    /// Stops when all metrics have stalled for so long.
    All,
}
impl StoppingMetrics {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            StoppingMetrics::First => sys::TRAFO_STOPPING_FIRST,
            StoppingMetrics::Any => sys::TRAFO_STOPPING_ANY,
            StoppingMetrics::All => sys::TRAFO_STOPPING_ALL,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_STOPPING_ANY => StoppingMetrics::Any,
            sys::TRAFO_STOPPING_ALL => StoppingMetrics::All,
            _ => StoppingMetrics::First,
        }
    }
}
named! { StoppingMetrics:
    First = "first",
    Any = "any",
    All = "all",
}
/// Which model of a run directory is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunModel {
    /// Of the best checkpoint by the first metric of validation.
    Best,
    /// Of the newest checkpoint.
    Last,
    /// The average of checkpoints (average_last, or `translate-train average`).
    Averaged,
}
impl RunModel {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            RunModel::Best => sys::TRAFO_RUN_BEST,
            RunModel::Last => sys::TRAFO_RUN_LAST,
            RunModel::Averaged => sys::TRAFO_RUN_AVERAGED,
        }
    }
}
named! { RunModel:
    Best = "best",
    Last = "last",
    Averaged = "averaged",
}
trainer_options! {
    /// Peak of the learning rate. Default 0.002.
    learning_rate: f64 = same, same;
    /// How the learning rate goes after the warm-up. Default [`Schedule::InverseSqrt`].
    schedule: Schedule = Schedule::as_raw, Schedule::from_raw;
    /// Updates in which the rate rises to its peak on a line. Default 1000.
    warmup: usize = to_count, from_i64;
    /// The update at which cosine and linear schedules reach their end. It must be set for them. Default 0.
    schedule_updates: usize = to_count, from_i64;
    /// Share of the target probability that is spread over the other tokens. Default 0.1.
    label_smoothing: f64 = same, same;
    /// Largest global norm of the mean gradient. 0: no clipping. Default 1.
    clip_norm: f64 = same, same;
    /// Weight decay: decoupled, except that SGD adds it, times the weight, to the gradient. Default 0.
    weight_decay: f64 = same, same;
    /// Whether weight_decay acts on norms and biases too, and not only on matrices. Default true.
    decay_norms_and_biases: bool = i32::from, from_flag;
    /// How the weights follow their gradients. Default [`OptimizerKind::Adamw`].
    optimizer: OptimizerKind = OptimizerKind::as_raw, OptimizerKind::from_raw;
    /// Momentum. 0: plain SGD, which keeps no state. Only the optimizers sgd and muon have it. INVALID_ARGUMENT:
    /// another value than the default, with another optimizer. Default 0.95.
    momentum: f64 = same, same;
    /// Whether the momentum is Nesterov's: the update is along the momentum that follows. Only the optimizers sgd and
    /// muon have it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default true.
    nesterov: bool = i32::from, from_flag;
    /// The first beta of the update rule: the decay of the first moment in AdamW. Only the optimizers adamw, muon and
    /// lion have it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 0.9.
    beta1: f64 = same, same;
    /// The second beta of the update rule: the decay of the second moment in AdamW. Only the optimizers adamw, muon and
    /// lion have it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 0.98.
    beta2: f64 = same, same;
    /// The epsilon in the denominator of AdamW. Only the optimizers adamw and muon have it. INVALID_ARGUMENT: another
    /// value than the default, with another optimizer. Default 1e-9.
    epsilon: f64 = same, same;
    /// Storage type of the two moments of every parameter. float64 models have float32. Only the optimizer adamw has
    /// it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default
    /// [`OptimizerStates::Float32`].
    optimizer_states: OptimizerStates = OptimizerStates::as_raw, OptimizerStates::from_raw;
    /// The mean squares of update t have the weight t^decay_rate in the second moments. Only the optimizer adafactor
    /// has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default -0.8.
    decay_rate: f64 = same, same;
    /// Largest root mean square of the update of a parameter, before the learning rate. Only the optimizer adafactor
    /// has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 1.
    clip_threshold: f64 = same, same;
    /// Whether the learning rate of a parameter is multiplied by its root mean square, at least `scale_epsilon`. Only
    /// the optimizer adafactor has it. INVALID_ARGUMENT: another value than the default, with another optimizer.
    /// Default false.
    scale_parameter: bool = i32::from, from_flag;
    /// Added to squares of gradients: the first of the two numbers of transformers' eps. Only the optimizer adafactor
    /// has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default 1e-30.
    square_epsilon: f64 = same, same;
    /// Least root mean square of a parameter in `scale_parameter`: the second of the two numbers of eps. Only the
    /// optimizer adafactor has it. INVALID_ARGUMENT: another value than the default, with another optimizer. Default
    /// 0.001.
    scale_epsilon: f64 = same, same;
    /// Whether the GEMMs of a float32 model multiply in TF32 on CUDA: factors with 10 bits of mantissa, sums in
    /// float32. Weights, activations and files stay float32. UNSUPPORTED on the CPU. Default false.
    tf32: bool = i32::from, from_flag;
    /// Whether a bfloat16 model is trained with FP8 GEMMs on CUDA (compute capability 8.9 or newer): GEMMs of linear
    /// layers with at least 3 x 2^20 weights (1024 x 3072), and of the output projection except for the gradient of its
    /// weight. Scales are powers of two for each tensor, from its values at that moment. Weights, activations and files
    /// stay as in bfloat16 training; validation and inference compute in bfloat16. UNSUPPORTED on the CPU and on older
    /// cards. Default false.
    fp8: bool = i32::from, from_flag;
    /// Quantization-aware training: the weights that the model computes with are rounded to codes of 8 bits, or of 4 in
    /// groups of 32, and the inputs of linear layers to int8. Gradients pass the rounding unchanged (straight-through),
    /// and the optimizer works on exact weights, which files hold. 8 or 4. Default 0: no quantization.
    quantize_bits: usize = to_count, from_i64;
    /// LayerDrop: the probability with which a batch of training skips a layer of the encoder or of the decoder (Fan et
    /// al., arXiv 1909.11556). Each layer is drawn by itself, from the seed and the number of the batch. Validation and
    /// decoding run all layers. Default 0: none is skipped.
    layer_drop: f64 = same, same;
    /// Unstructured pruning: the share of the weights of each trainable linear layer that is zero after `prune_end`. It
    /// rises from zero at `prune_start` by a cubic schedule (Zhu & Gupta, arXiv 1710.01878). The weights of the least
    /// magnitude of a matrix are pruned, and stay zero. Embeddings, the output projection, biases and norms are not
    /// pruned. Default 0: no weight is pruned.
    prune_sparsity: f64 = same, same;
    /// The update, counted from 1, before which pruning to `prune_sparsity` begins. Default 1.
    prune_start: usize = to_count, from_i64;
    /// The update before which `prune_sparsity` is reached. Default 0: `prune_start`, all at once.
    prune_end: usize = to_count, from_i64;
    /// Updates from one pruning to the next, between `prune_start` and `prune_end`. Default 100.
    prune_every: usize = to_count, from_i64;
    /// Whether weights of trainable linear layers that are exactly zero stay zero: of a pruned model that is
    /// fine-tuned. A `prune_sparsity` above 0 does the same. Default false.
    keep_zeros: bool = i32::from, from_flag;
    /// Share of the teacher in the loss of a model that has one: (1 - W) times the cross-entropy of the labels plus W
    /// T^2 times the divergence from the teacher at `teacher_temperature` T. 0 does not run the teacher. Default 0.5.
    teacher_weight: f64 = same, same;
    /// The temperature that the logits of the teacher and of the student are divided by for the divergence. Default 1.
    teacher_temperature: f64 = same, same;
    /// The function that training minimises. DPO, ORPO and KTO train on preferences: a loss for each pair or answer in
    /// place of each label. Only cross-entropy has `label_smoothing`. Default [`Objective::CrossEntropy`].
    objective: Objective = Objective::as_raw, Objective::from_raw;
    /// Of masked-lm: the share of the tokens of a text that are predicted, at least one. Of these, 80 % become the mask
    /// token, 10 % a random token, and 10 % stay. Default 0.15.
    mask_probability: f64 = same, same;
    /// Of DPO: the reward of an answer is dpo_beta times the log of its probability relative to the reference. The
    /// higher, the closer the model stays to the reference. Default 0.1.
    dpo_beta: f64 = same, same;
    /// Of DPO: share of the pairs whose answers are taken to be labelled the wrong way round (conservative DPO).
    /// Default 0.
    dpo_label_smoothing: f64 = same, same;
    /// Of ORPO: the loss is the cross-entropy of the chosen answer and orpo_beta times the loss of the odds ratio.
    /// Default 0.1.
    orpo_beta: f64 = same, same;
    /// Of KTO: the reward of an answer is kto_beta times the log of its probability relative to the reference. The
    /// higher, the closer the model stays to the reference. Default 0.1.
    kto_beta: f64 = same, same;
    /// Of KTO: weight of the losses of desirable answers. Choose the two weights so that weight times number of answers
    /// is about the same for desirable and undesirable ones. Default 1.
    kto_desirable_weight: f64 = same, same;
    /// Of KTO: weight of the losses of undesirable answers. Default 1.
    kto_undesirable_weight: f64 = same, same;
    /// EMA of the weights: the share that every update's weights have in it (1e-4 is usual). The EMA is what is
    /// validated and saved as model.safetensors. Training continues from the weights themselves, which the model keeps
    /// and checkpoints hold as unsmoothed.safetensors. Default 0: no EMA.
    ema_alpha: f64 = same, same;
    /// Batches whose gradients are accumulated for an update. The last update of an epoch may have fewer. Default 1.
    gradient_accumulation: usize = to_count, from_i64;
    /// Number of parts of an update. Each part has `gradient_accumulation` batches. The ranks share the parts, at least
    /// one each. The number decides every bit of a run, the number of ranks none. 1: one for each rank; a run that
    /// resumes keeps its own. Default 1.
    lanes: usize = to_count, from_i64;
    /// Type in which ranks send each other the gradient of a lane. With bfloat16 the gradient of every lane is rounded,
    /// also on one rank, so that the number of ranks changes no bit. Sums of lanes are float32. Not for float64 models.
    /// Default [`CommunicationDType::Float32`].
    communication_dtype: CommunicationDType = CommunicationDType::as_raw, CommunicationDType::from_raw;
    /// Seed of dropout and of the data order. Default 1.
    seed: u64 = same, same;
    /// Target tokens of a batch. Default 4096.
    batch_tokens: usize = to_count, from_i64;
    /// Tokens a side, or of both sides together in a decoder-lm. Longer pairs are dropped and counted; `long_lines` may
    /// cut text without a source. Default 256.
    max_length: usize = to_count, from_i64;
    /// Treatment of text without a source, as a document, that has more than `max_length` tokens. A window begins
    /// without a begin token and ends without an end token, except where the document begins and ends. No token is
    /// learned twice. Default [`LongLines::Drop`].
    long_lines: LongLines = LongLines::as_raw, LongLines::from_raw;
    /// Tokens of conversations that are learned. Default [`ChatLoss::Answers`].
    chat_loss: ChatLoss = ChatLoss::as_raw, ChatLoss::from_raw;
    /// Tokens from the start of a window to the start of the next one, at most `max_length`; with windows only. A
    /// smaller stride gives tokens at the start of a window more context: those that the window before has learned are
    /// read without a loss. Default 0: max_length.
    window_stride: usize = to_count, from_i64;
    /// Batches that are filled from sentences sorted by length together. Default 0: 262144 sentences.
    maxi_batch: usize = to_count, from_i64;
    /// Largest ratio of the tokens of both sides. Other pairs are dropped and counted. Default 0: any.
    max_length_ratio: f64 = same, same;
    /// Whether pairs with the same text on both sides are dropped and counted. Default false.
    drop_identical: bool = i32::from, from_flag;
    /// Whether bos precedes the source of a pair, and plain text in place of eos, in training and then in all that the
    /// model does. Of a decoder-lm. Default [`FrameToken::ByModel`].
    begin_source: FrameToken = FrameToken::as_raw, FrameToken::from_raw;
    /// Whether eos follows the source of a pair, in training and then in all that the model does. Of a decoder-lm.
    /// Default [`FrameToken::ByModel`].
    end_source: FrameToken = FrameToken::as_raw, FrameToken::from_raw;
    /// Sampled segmentations of the source text, anew in every epoch: of a unigram vocabulary by probability^alpha, of
    /// a BPE vocabulary with every merge left out with probability alpha. Default 0: the best segmentation.
    source_alpha: f64 = same, same;
    /// The same for the target text. Default 0: the best segmentation.
    target_alpha: f64 = same, same;
    /// Whether `batch_tokens` is chosen: the largest that the memory has room for. Default false.
    batch_fit: bool = i32::from, from_flag;
    /// Activations that backward recomputes instead of keeping them: less memory for more time. It never changes a bit.
    /// Default [`Recompute::None`].
    recompute: Recompute = Recompute::as_raw, Recompute::from_raw;
    /// Whether CUDA times the kernels of small GEMMs at the start of a run, at most 5 seconds in all, and keeps those
    /// that are at least 5 % faster than the library's first proposal. Checkpoints hold the choices, so that a resumed
    /// run computes the same bits. A cache file of the user holds them for later runs. Nothing on the CPU and with
    /// several lanes. Default true.
    autotune_gemm: bool = i32::from, from_flag;
    /// Bytes that training may take. A run whose plan needs more is refused. Default 0: what the device has free.
    memory_limit: usize = to_count, from_i64;
    /// Number of the phase. A run directory whose checkpoint is of the phase before begins this one: weights and
    /// moments stay; data, learning rate, batches and teacher may be others; schedule, warm-up, epochs, best scores and
    /// patience start anew. Limits count from there. A checkpoint of the same phase resumes it. Default 1.
    phase: usize = to_count, from_i64;
    /// Whether a resumed run may validate on other text, or with another beam, than before: best scores and patience
    /// start anew then. Otherwise it is refused. Default false.
    restart_validation: bool = i32::from, from_flag;
    /// Training is done after this many updates. Default 0: never.
    after_updates: usize = to_count, from_i64;
    /// Training is done after this many epochs. Default 0: never.
    after_epochs: usize = to_count, from_i64;
    /// Training is done after this many target tokens. Default 0: never.
    after_tokens: usize = to_count, from_i64;
    /// Training is done after this many validations in a row without a better metric (see `early_stopping_on`). Default
    /// 0: never.
    early_stopping: usize = to_count, from_i64;
    /// The metrics that `early_stopping` looks at. Default [`StoppingMetrics::First`].
    early_stopping_on: StoppingMetrics = StoppingMetrics::as_raw, StoppingMetrics::from_raw;
    /// Updates in a row with a loss or gradient that is not finite, or a loss above 2 ln V + 20 a token, before the
    /// error NON_FINITE. Default 10.
    max_non_finite_steps: usize = to_count, from_i64;
    /// How often it validates, besides at the end. Nothing is validated without validation data. Default 1000 updates.
    valid_freq: Period = Period::to_raw, Period::from_raw;
    /// How often it saves, besides at the end. Nothing is saved without a run directory. Default 1000 updates.
    save_freq: Period = Period::to_raw, Period::from_raw;
    /// How often it logs (the event LOG). Default 20 updates.
    log_freq: Period = Period::to_raw, Period::from_raw;
    /// This many updates at the start are logged as well. Default 0.
    log_first: usize = to_count, from_i64;
    /// Beam of validation. 1 is greedy search. Default 1.
    valid_beam: usize = to_count, from_i64;
    /// Length normalisation of that beam: score = log-probability / length^valid_normalize. Default 1.
    valid_normalize: f64 = same, same;
    /// Whether the best checkpoint of every metric is kept as well. Default true.
    keep_best: bool = i32::from, from_flag;
    /// Newest checkpoints that are kept. Default 3.
    keep_last: usize = to_count, from_i64;
    /// At the end the mean of this many of the newest checkpoints, which are kept for it, is written to
    /// ckpt/averaged/model.safetensors and measured. It needs a run directory. Default 0: no average.
    average_last: usize = to_count, from_i64;
}
