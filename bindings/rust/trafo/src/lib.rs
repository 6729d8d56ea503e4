//! Trains transformers inside your program: no Python, no service, and no network except between ranks of a group.
//!
//! # Quick start
//!
//! There are two levels. **A model in a screen of code**: a tokenizer and a corpus, a model, a trainer, translations.
//!
//! ```
//! use std::ops::ControlFlow;
//! use trafo::{Corpus, EventKind, Model, ModelConfig, TokenizerOptions, Trainer, TrainerOptions, TranslateOptions};
//!
//! # fn main() -> trafo::Result<()> {
//! let corpus = Corpus::from_pairs([("guten Tag", "good day"), ("guten Abend", "good evening")])?;
//! let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(50).soft_limit(true))?;
//!
//! let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
//! let options = TrainerOptions::new().learning_rate(3e-3).warmup(10).after_updates(40).batch_tokens(64);
//! let mut trainer =
//!     Trainer::builder(Model::new(&config, 1)?, &tokenizer, &corpus).options(options).build()?;
//! trainer.run(|event| {
//!     if event.kind == EventKind::Log {
//!         println!("update {} loss {:.3}", event.update, event.loss);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//!
//! let translations = trainer.model().translate(&tokenizer, &["guten Tag"], &TranslateOptions::new())?;
//! println!("{}", translations[0]);
//! # Ok(())
//! # }
//! ```
//!
//! **Tensors, ops and backward**, for custom networks:
//!
//! ```
//! use trafo::{AdamW, AdamWOptions, Context, CrossEntropyOptions};
//!
//! # fn main() -> trafo::Result<()> {
//! let context = Context::new()?;
//! let x = context.tensor(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2])?;
//! let labels = context.tensor(&[0, 1], &[2])?;
//! let weight = context.parameter(&[0.1f32, -0.1, 0.0, 0.2], &[2, 2])?;
//! let mut optimizer = AdamW::new(&context, &[&weight], &AdamWOptions::default())?;
//! for _ in 0..50 {
//!     let logits = x.linear(&weight, None)?;
//!     let (loss, _) = logits.cross_entropy(&labels, &CrossEntropyOptions::new())?;
//!     loss.backward()?;
//!     optimizer.step(0.1)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The examples of the crate are longer: `train_translation` (a translator, measured on sentences it has never seen),
//! `several_gpus`, `classifier`, `best_model`, `finetune`, `resume`, `own_network` and `translate_server`, a service
//! over HTTP.
//!
//! # Concepts
//!
//! * A [`Context`] is a device with its memory, its threads and its tape. [`Tensor`]s are made from it; ops are methods
//!   of tensors and are recorded as they run; [`Tensor::backward`] gives the leaves that want them their gradients and
//!   frees what was recorded. [`Context::no_grad`] runs without recording. [`AdamW`] updates parameters, which
//!   [`Parameters`] save and load by name. [`Context::custom_op`] runs an op of the program.
//! * A [`Corpus`] is pairs of sentences; a [`Tokenizer`] cuts text into subwords; a [`Model`] is a transformer of the shape
//!   that a [`ModelConfig`] says, with its weights, on a separate context.
//! * A [`Trainer`] owns the model it trains and gives it back. [`Trainer::run`] trains until a limit and tells a callback
//!   what happens, [`Trainer::step`] does one update. With a run directory it saves checkpoints, and continues from the
//!   newest whole one, bit for bit as if it had not been interrupted.
//! * [`Model::translate`] searches with a beam; [`Model::score`] says how probable given translations are.
//! * Options are builders with the library's defaults: `TrainerOptions::new().warmup(100)`.
//!
//! Results depend on seeds and data alone: not on the number of threads, nor on when a run was interrupted.
//!
//! # Threads
//!
//! The engine has its own threads; their number never changes results. Of your threads:
//!
//! | | may move to another thread | may be shared |
//! |---|---|---|
//! | [`Tokenizer`], [`Corpus`], [`CancelToken`], [`Group`], options, events, errors | yes | yes |
//! | [`Model`] | yes | yes: calls are serialised, and refused while [`Model::write_to`] runs on another thread |
//! | [`Trainer`] | yes | no |
//! | [`ClosedParameters`] | yes | no |
//! | [`Context`], [`Tensor`], [`AdamW`], [`OpenModel`], [`Parameters`] | no | no |
//!
//! Everything made from one context uses that context, so it must stay together. A model keeps a context to itself, until
//! [`Model::open`] lends it to an own network, and a trainer keeps its model: those move as a whole, and so do parameters that
//! are closed ([`Parameters::close`]). Tensors can refer to each other in any way, so the compiler could
//! not see that a group of them moves together; they stay on the thread of their context. A thread that trains a
//! network of tensors makes its context there.
//!
//! The compiler holds to it:
//!
//! ```compile_fail,E0277
//! # fn trainer() -> trafo::Trainer { unimplemented!() }
//! let trainer = trainer();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| trainer.model().parameter_count()); // a trainer is not shared
//! });
//! ```
//!
//! Several threads that translate share a model, and wait for each other; or they send their lines to one that has it, as
//! the example `translate_server` does: lines that are translated together cost little more than one.
//!
//! # Errors
//!
//! Everything that can fail returns a [`Result`]; nothing prints, exits or panics on bad input. An [`Error`] has an
//! [`ErrorCode`] to decide by, the op or function that refused, and a message that says what was wrong and what would be
//! right.
//!
//! ```
//! use trafo::{ErrorCode, Model};
//!
//! let error = Model::load("there/is/no/model.safetensors").unwrap_err();
//! assert_eq!(error.code(), ErrorCode::NotFound);
//! ```
//!
//! Files are written whole or not at all. A damaged checkpoint is passed over for the one before it, and
//! [`EventKind::CheckpointRefused`] says so.
//!
//! # Devices
//!
//! The CPU needs nothing. For a GPU the engine finds its plugin `libtrafo_cuda.so` at run time, beside the program or
//! where `TRAFO_CUDA_LIBRARY` says; nothing is linked and no feature is set. [`Device::Auto`] takes CUDA where it is,
//! [`Device::Cuda`] makes its absence an error that says what was looked for and where, and [`Device::cuda_devices`]
//! lists what there is.
//!
//! ```
//! use trafo::{Context, ContextOptions, Device};
//!
//! # fn main() -> trafo::Result<()> {
//! let context = Context::with_options(&ContextOptions::new().device(Device::Auto))?;
//! println!("computing on {}", context.device());
//! # Ok(())
//! # }
//! ```
//!
//! On CUDA models compute in [`DType::BF16`] with float32 weights if [`ModelConfig::precision`] says so. The
//! memory that training will take of a device is known before it begins: [`MemoryPlan`].
//!
//! # Stopping
//!
//! Training stops when the callback breaks or a [`CancelToken`] is set, between two updates, in a consistent state:
//! call [`Trainer::run`] again to go on. A panic in a callback does the same and then goes on in the caller.
//!
//! Other long calls end between two batches, reads or tensors with the error [`ErrorCode::Cancelled`]: [`TrainerBuilder::cancel`] is also for
//! the making of a trainer, its steps and validations, and the options of translation and of compression take a token.
//! Functions whose names end with `_cancellable` take one as an argument, such as [`Tokenizer::train_cancellable`],
//! [`Corpus::open_cancellable`], [`evaluate_cancellable`] and [`Model::export_cancellable`]. With
//! [`CancelToken::on_progress`] these calls also tell how far they are.

mod adapter;
mod added_tokens;
mod batches;
mod cancel;
mod chat;
mod compression;
mod context;
mod data;
mod device;
mod embed;
mod encoder;
mod enums;
mod error;
mod evaluation;
mod event;
mod generation;
mod group;
mod handle;
mod ids;
mod interop;
mod memory_plan;
mod model;
mod model_config;
mod names;
mod network;
mod options;
mod results;
#[cfg(feature = "serde")]
mod serialize;
mod teacher;
mod text;
mod trainer;
mod trainer_options;
mod translation;

pub use adapter::AdapterOptions;
pub use batches::{Batch, BatchSource};
pub use cancel::{CancelToken, Progress};
pub use chat::ChatTokens;
pub use compression::factorize::FactorizeOptions;
pub use compression::prune::PruneOptions;
pub use compression::quantize::QuantizeOptions;
pub use compression::sparsify::SparsifyOptions;
pub use context::{Context, ContextOptions};
pub use data::CorpusOptions;
pub use device::{Device, DeviceInfo};
pub use encoder::{Embeddings, LabelLogits};
pub use enums::{
    CorpusFormat, DType, ErrorCode, ExportFormat, ExportWeights, FinishReason, Normalization,
    Pooling, Stop, Work,
};
pub use error::{Error, Result};
pub use evaluation::{
    BleuTokenizer, EvaluationOptions, SentenceScore, evaluate, evaluate_cancellable, metric_score,
    sentence_scores,
};
pub use event::Metrics;
pub use generation::{GenerationOptions, GenerationPiece, Generator, Pieces};
pub use group::{Group, GroupId, finalize_mpi};
pub use interop::Imported;
pub use model::{
    Model, Parameter, ParameterMut, Score, find_checkpoint, find_model, list_checkpoints,
};
pub use model_config::*;
pub use network::chain::Chain;
pub use network::dlpack::{CopyMode, DlpackTensor};
pub use network::op_options::{
    AttentionOptions, CrossEntropyOptions, Dropout, EmbeddingOptions, SoftmaxOptions,
};
pub use network::open_model::OpenModel;
pub use network::ops::{Activation, Comparison, Reduction};
pub use network::optim::{AdamW, AdamWOptions};
pub use network::own_tensors::{Distribution, Sgd};
pub use network::parameters::{ClosedParameters, Loaded, Parameters, tensor_names};
pub use network::region::{CustomBackward, Gradcheck, GradcheckOptions};
pub use network::states::{HiddenStates, Logits};
pub use network::tensor::{Element, Tensor};
pub use results::{
    CorpusInfo, Evaluation, Event, EventKind, MemoryPlan, MemoryStats, ParameterInfo,
    ResampledScore, SpecialTokens, StepResult,
};
pub use text::{Corpus, MetricScore, Tokenizer, TokenizerOptions, bleu, chrf, find_vocabulary};
pub use trainer::{Trainer, TrainerBuilder};
pub use trainer_options::{
    ChatLoss, CommunicationDType, FrameToken, LongLines, Metric, Objective, OptimizerKind,
    OptimizerStates, Period, Recompute, RunModel, Schedule, StoppingMetrics, TrainerOptions,
};
pub use translation::{Alignment, Hypothesis, Sampling, Shortlist, TranslateOptions, Translation};

/// Version of the linked library, such as `0.1.0`.
#[must_use]
pub fn version() -> String {
    // SAFETY: the string has static storage.
    unsafe { std::ffi::CStr::from_ptr(trafo_sys::trafo_version()) }.to_string_lossy().into_owned()
}

#[cfg(doctest)]
mod misuse;

// The README's program is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
