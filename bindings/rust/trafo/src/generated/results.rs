// Written by scripts/generate_options.py from schema/results.toml and enums.toml: change those.
/// The events of a training run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A new run.
    Started {
        /// The pairs that were dropped from the corpora, if any.
        message: String,
    },
    /// Continued from a checkpoint.
    Resumed {
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A newer checkpoint is damaged and is not used.
    CheckpointRefused {
        /// Why.
        message: String,
    },
    /// Progress, every log_freq.
    Log,
    /// A non-finite update was skipped.
    Skipped {
        /// Its loss and gradient norm.
        message: String,
    },
    /// An epoch is complete.
    Epoch {
        /// The pairs that were dropped from it, if any.
        message: String,
    },
    /// A validation is done.
    Validated {
        /// Its results.
        metrics: Metrics,
        /// The metric that decides: chrF or cross-entropy instead of a metric of words for scripts without spaces.
        deciding: Option<Metric>,
        /// Whether the deciding metric improved.
        improved: bool,
        /// Best value of the deciding metric so far.
        best: f64,
        /// The update of the best value.
        best_update: i64,
        /// The translations, if any were written.
        translations: Option<PathBuf>,
        /// Whether this is the model that a run or a phase starts from, which is no candidate for the best.
        start: bool,
    },
    /// A checkpoint was written. On a GPU, events of later updates may precede this one.
    Saved {
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A limit was reached, or early stopping ended the training.
    Finished(Stop),
    /// Training ended and can be resumed.
    Stopped(Stop),
    /// A validation begins; it may take long.
    Validating,
    /// The average of the newest checkpoints was made (average_last).
    Averaged {
        /// The averaged model.
        model: PathBuf,
        /// The updates of its checkpoints, as "100, 200".
        updates: String,
        /// Its metrics, if there is a validation corpus.
        metrics: Metrics,
        /// Whether it is better than the best checkpoint.
        improved: bool,
    },
    /// GEMM kernels were timed or taken from a cache (autotune_gemm).
    GemmAutotuned {
        /// How many were timed, how long that took, where the other kernels come from.
        message: String,
    },
    /// Something cannot be used, and the run continues without it.
    Warning {
        /// The event and its reason.
        message: String,
    },
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl EventKind {
    /// # Safety
    /// The texts and arrays of `raw` are valid during the call.
    unsafe fn from_raw(raw: &sys::trafo_event) -> Self {
        // SAFETY: the caller's promise.
        unsafe { match raw.kind {
            sys::TRAFO_EVENT_STARTED => EventKind::Started { message: view_to_string(&raw.message) },
            sys::TRAFO_EVENT_RESUMED => EventKind::Resumed { checkpoint: view_to_path(&raw.path) },
            sys::TRAFO_EVENT_CHECKPOINT_REFUSED => EventKind::CheckpointRefused { message: view_to_string(&raw.message) },
            sys::TRAFO_EVENT_LOG => EventKind::Log,
            sys::TRAFO_EVENT_SKIPPED => EventKind::Skipped { message: view_to_string(&raw.message) },
            sys::TRAFO_EVENT_EPOCH => EventKind::Epoch { message: view_to_string(&raw.message) },
            sys::TRAFO_EVENT_VALIDATED => EventKind::Validated { metrics: Metrics::of_event(raw), deciding: Metric::from_bit(raw.deciding_metric), improved: raw.improved != 0, best: raw.best_metric, best_update: raw.best_update, translations: some_path(view_to_path(&raw.path)), start: (raw.message).length != 0 },
            sys::TRAFO_EVENT_SAVED => EventKind::Saved { checkpoint: view_to_path(&raw.path) },
            sys::TRAFO_EVENT_FINISHED => EventKind::Finished(Stop::from_raw(raw.stop)),
            sys::TRAFO_EVENT_STOPPED => EventKind::Stopped(Stop::from_raw(raw.stop)),
            sys::TRAFO_EVENT_VALIDATING => EventKind::Validating,
            sys::TRAFO_EVENT_AVERAGED => EventKind::Averaged { model: view_to_path(&raw.path), updates: view_to_string(&raw.message), metrics: Metrics::of_event(raw), improved: raw.improved != 0 },
            sys::TRAFO_EVENT_GEMM_AUTOTUNED => EventKind::GemmAutotuned { message: view_to_string(&raw.message) },
            sys::TRAFO_EVENT_WARNING => EventKind::Warning { message: view_to_string(&raw.message) },
            other => EventKind::Unknown(other),
        } }
    }
}
/// Memory of a context, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// In use now.
    pub allocated: i64,
    /// Most in use since the context was made or its memory was trimmed.
    pub peak: i64,
    /// Taken from the system, cached blocks included.
    pub reserved: i64,
}
impl MemoryStats {
    pub(crate) fn from_raw(raw: &sys::trafo_memory_stats) -> Self {
        MemoryStats {
            allocated: raw.allocated_bytes,
            peak: raw.peak_bytes,
            reserved: raw.reserved_bytes,
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_memory_stats {}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_device_info {}
/// Ids of special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Stands for unknown text.
    pub unk: i32,
    /// The decoder of an encoder-decoder begins with it, or with the end token where there is none. `None`: the
    /// vocabulary has none.
    pub bos: Option<i32>,
    /// Ends a text.
    pub eos: i32,
    /// Padding. `None`: the vocabulary has none.
    pub pad: Option<i32>,
}
impl SpecialTokens {
    pub(crate) fn from_raw(raw: &sys::trafo_special_tokens) -> Self {
        SpecialTokens {
            unk: raw.unk,
            bos: not_negative(raw.bos),
            eos: raw.eos,
            pad: not_negative(raw.pad),
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_special_tokens {}
/// Sizes of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorpusInfo {
    /// Lines of one side.
    pub lines: usize,
    /// Pairs of the corpus.
    pub pairs: usize,
    /// Pairs left out because a side is empty or white space.
    pub dropped_empty: usize,
    /// Texts of a pair: 1: text without a source; 2: source and target; 3: a preference pair or a labelled answer.
    pub texts: i32,
    /// Whether the files are JSON lines; in a mixture, the files of the first corpus.
    pub json_lines: bool,
    /// Whether the texts are conversations, as JSON: {"messages": ...}.
    pub chats: bool,
    /// Whether preferences are labelled answers: of a pair, the chosen answer is empty, or the rejected one.
    pub labelled: bool,
    /// Whether the files are CSV; in a mixture, the files of the first corpus.
    pub csv: bool,
    /// Whether the rows are token ids and no text.
    pub ids: bool,
}
impl CorpusInfo {
    pub(crate) fn from_raw(raw: &sys::trafo_corpus_info) -> Self {
        CorpusInfo {
            lines: from_i64(raw.lines),
            pairs: from_i64(raw.pairs),
            dropped_empty: from_i64(raw.dropped_empty),
            texts: raw.texts,
            json_lines: raw.json_lines != 0,
            chats: raw.chats != 0,
            labelled: raw.labelled != 0,
            csv: raw.csv != 0,
            ids: raw.ids != 0,
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_corpus_info {}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_group_info {}
/// How a parameter of a model is trained.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ParameterInfo {
    /// Its name in the file.
    pub name: String,
    /// "matrices", "norms_and_biases", or a group that the model has declared.
    pub group: String,
    /// Number of weights.
    pub elements: usize,
    /// Type of the values: int8 of quantized weights.
    pub dtype: DType,
    /// Whether training changes it; otherwise it is frozen.
    pub trainable: bool,
    /// Multiplied with the learning rate.
    pub lr_factor: f64,
    /// Multiplied with the weight decay.
    pub weight_decay_factor: f64,
    /// Rows of a matrix; 1: a vector.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Bits of an element in files: 4 of an int4 matrix, whose dtype is int8, and 8 or 4 of a matrix in base_precision,
    /// whose dtype is that of the computation.
    pub bits: usize,
    /// Signal-to-noise ratio of a matrix after quantization, in dB; NaN: not known.
    pub signal_to_noise: f64,
}
impl ParameterInfo {
    /// # Safety
    /// The texts and arrays of `raw` are valid during the call.
    pub(crate) unsafe fn from_raw(raw: &sys::trafo_parameter_info) -> Self {
        // SAFETY: the caller's promise.
        unsafe { ParameterInfo {
            name: borrowed_text(raw.name),
            group: borrowed_text(raw.group),
            elements: from_i64(raw.elements),
            dtype: DType::from_raw(raw.dtype),
            trainable: raw.trainable != 0,
            lr_factor: raw.lr_factor,
            weight_decay_factor: raw.weight_decay_factor,
            rows: from_i64(raw.rows),
            columns: from_i64(raw.columns),
            bits: from_i64(raw.bits),
            signal_to_noise: raw.signal_to_noise,
        } }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_parameter_info {}
/// Memory that training takes on a CUDA device, in bytes, known without training and without the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Weights, with the float32 master weights of a bfloat16 model.
    pub weights: i64,
    /// Gradients.
    pub gradients: i64,
    /// The moments, and the EMA of the weights if ema_alpha is set.
    pub optimizer: i64,
    /// Activations and temporary memory of forward and backward.
    pub activations: i64,
    /// Expected peak of the memory in use, the batch included.
    pub total: i64,
    /// Target tokens of the batch: the given number, or the largest that fits.
    pub batch_tokens: i64,
    /// Memory that training may use; 0: unknown.
    pub limit: i64,
    /// Total memory of the device; 0: the device was not asked.
    pub device: i64,
    /// Free memory of the device before training; 0: the device was not asked.
    pub free: i64,
    /// The weights of the teacher; 0 without one.
    pub teacher: i64,
}
impl MemoryPlan {
    pub(crate) fn from_raw(raw: &sys::trafo_memory_plan) -> Self {
        MemoryPlan {
            weights: raw.weights_bytes,
            gradients: raw.gradients_bytes,
            optimizer: raw.optimizer_bytes,
            activations: raw.activations_bytes,
            total: raw.total_bytes,
            batch_tokens: raw.batch_tokens,
            limit: raw.limit_bytes,
            device: raw.device_bytes,
            free: raw.free_bytes,
            teacher: raw.teacher_bytes,
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_memory_plan {}
/// One update.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepResult {
    /// The update that was done.
    pub update: i64,
    /// Mean per label, label smoothing included.
    pub loss: f64,
    /// Mean per label, without smoothing.
    pub nll: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Labels of the batch.
    pub labels: i64,
    /// Whether the update was not finite: nothing has changed.
    pub skipped: bool,
}
impl StepResult {
    pub(crate) fn from_raw(raw: &sys::trafo_step_result) -> Self {
        StepResult {
            update: raw.update,
            loss: raw.loss,
            nll: raw.nll,
            grad_norm: raw.grad_norm,
            learning_rate: raw.learning_rate,
            labels: raw.labels,
            skipped: raw.skipped != 0,
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_step_result {}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_objective_metric {}
/// A report of a training run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Updates so far.
    pub update: i64,
    /// The current epoch, from 1; an epoch event has the completed one.
    pub epoch: i64,
    /// Share of the current epoch that is done, 0 to 1.
    pub epoch_fraction: f64,
    /// Mean per label since the last log event, label smoothing included; of DPO per pair.
    pub loss: f64,
    /// Negative log-likelihood per label since then, without smoothing; exp() is the perplexity.
    pub nll: f64,
    /// Global gradient norm.
    pub grad_norm: f64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Target tokens of the run so far.
    pub target_tokens: i64,
    /// Source tokens of the run so far.
    pub source_tokens: i64,
    /// Speed since the last log event.
    pub target_tokens_per_second: f64,
    /// Speed since the last log event.
    pub source_tokens_per_second: f64,
    /// Training time of the run, earlier processes included.
    pub elapsed_seconds: f64,
    /// Time to the nearest limit. `None`: unknown.
    pub eta_seconds: Option<f64>,
    /// Bytes in use.
    pub memory_bytes: i64,
    /// Most bytes in use.
    pub peak_memory_bytes: i64,
    /// Updates left out because they were not finite.
    pub skipped_updates: i64,
    /// Validations in a row without improvement, as early stopping counts them.
    pub stalled: i64,
    /// Metrics of the objective by name: means per unit of the objective since the last log event. There are none if it
    /// has none.
    pub objective_metrics: Vec<(String, f64)>,
}
impl Event {
    /// # Safety
    /// The texts and arrays of `raw` are valid during the call.
    pub(crate) unsafe fn from_raw(raw: &sys::trafo_event) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Event {
            kind: EventKind::from_raw(raw),
            update: raw.update,
            epoch: raw.epoch,
            epoch_fraction: raw.epoch_fraction,
            loss: raw.loss,
            nll: raw.nll,
            grad_norm: raw.grad_norm,
            learning_rate: raw.learning_rate,
            target_tokens: raw.target_tokens,
            source_tokens: raw.source_tokens,
            target_tokens_per_second: raw.target_tokens_per_second,
            source_tokens_per_second: raw.source_tokens_per_second,
            elapsed_seconds: raw.elapsed_seconds,
            eta_seconds: not_negative(raw.eta_seconds),
            memory_bytes: raw.memory_bytes,
            peak_memory_bytes: raw.peak_memory_bytes,
            skipped_updates: raw.skipped_updates,
            stalled: raw.stalled,
            objective_metrics: named_values(raw),
        } }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_event {}
/// A corpus score, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResampledScore {
    /// Of the whole corpus.
    pub score: f64,
    /// The mean of the resamples. `None`: nothing was resampled.
    pub mean: Option<f64>,
    /// 95 % of the resamples lie in an interval of twice this width. `None`: nothing was resampled.
    pub half_width: Option<f64>,
    /// Paired bootstrap test (Koehn, EMNLP 2004): how probable so large a difference from the baseline would be if both
    /// were equal. `None`: there is no baseline, or nothing was resampled.
    pub p_value: Option<f64>,
}
impl ResampledScore {
    fn known(raw: &sys::trafo_resampled_score) -> Option<Self> {
        (!raw.score.is_nan()).then(|| Self::from_raw(raw))
    }
    pub(crate) fn from_raw(raw: &sys::trafo_resampled_score) -> Self {
        ResampledScore {
            score: raw.score,
            mean: known(raw.mean),
            half_width: known(raw.half_width),
            p_value: known(raw.p_value),
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_resampled_score {}
/// Corpus scores with their parts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Corpus BLEU.
    pub bleu: ResampledScore,
    /// Corpus chrF2.
    pub chrf: ResampledScore,
    /// BLEU of the baseline. `None`: there is no baseline.
    pub baseline_bleu: Option<ResampledScore>,
    /// chrF2 of the baseline. `None`: there is no baseline.
    pub baseline_chrf: Option<ResampledScore>,
    /// BLEU's precisions of n-grams of 1 to 4 tokens, per cent, smoothed.
    pub precisions: [f64; 4],
    /// BLEU's brevity penalty.
    pub brevity_penalty: f64,
    /// n-grams of the hypotheses that a reference has.
    pub matches: [i64; 4],
    /// n-grams of the hypotheses.
    pub totals: [i64; 4],
    /// Tokens of the hypotheses.
    pub hypothesis_tokens: i64,
    /// Tokens of the references; with several, of the one of each line that is nearest in length.
    pub reference_tokens: i64,
    /// References in scripts without spaces (Chinese, Japanese, Thai, ...), of which the tokenizers 13a, intl and none
    /// take whole phrases for words: their BLEU says little then.
    pub unspaced_references: i64,
    /// sacreBLEU's signature; only scores with equal signatures are comparable.
    pub bleu_signature: String,
    /// The same for chrF2.
    pub chrf_signature: String,
}
impl Evaluation {
    pub(crate) fn from_raw(raw: &sys::trafo_evaluation) -> Self {
        Evaluation {
            bleu: ResampledScore::from_raw(&raw.bleu),
            chrf: ResampledScore::from_raw(&raw.chrf),
            baseline_bleu: ResampledScore::known(&raw.baseline_bleu),
            baseline_chrf: ResampledScore::known(&raw.baseline_chrf),
            precisions: raw.bleu_precisions,
            brevity_penalty: raw.bleu_brevity_penalty,
            matches: raw.bleu_matches,
            totals: raw.bleu_totals,
            hypothesis_tokens: raw.hypothesis_tokens,
            reference_tokens: raw.reference_tokens,
            unspaced_references: raw.unspaced_references,
            bleu_signature: text_of(&raw.bleu_signature),
            chrf_signature: text_of(&raw.chrf_signature),
        }
    }
}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_evaluation {}
// SAFETY: zero is a value of all members.
unsafe impl Zeroed for sys::trafo_generation_piece {}
