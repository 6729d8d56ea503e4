use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::ptr;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::embed::{FirstFailure, tell_pairs};
use crate::enums::Stop;
use crate::error::{ErrorCode, Result, check};
use crate::event::Metrics;
use crate::group::Group;
use crate::handle::{RawModel, RawTrainer, path_view};
use crate::model::Model;
use crate::options::to_i64;
use crate::results::{Event, MemoryPlan, StepResult, filled};
use crate::text::{Corpus, Tokenizer};
use crate::trainer_options::TrainerOptions;

/// Makes a [`Trainer`].
#[must_use]
#[derive(Debug)]
pub struct TrainerBuilder<'a> {
    model: Model,
    tokenizer: Option<&'a Tokenizer>,
    train: Option<&'a Corpus>,
    valid: Option<&'a Corpus>,
    options: TrainerOptions,
    run_directory: Option<PathBuf>,
    cancel: Option<CancelToken>,
    group: Option<Group>,
}

impl<'a> TrainerBuilder<'a> {
    /// A tokenizer, which a corpus of text and metrics of translations need.
    pub fn tokenizer(mut self, tokenizer: &'a Tokenizer) -> Self {
        self.tokenizer = Some(tokenizer);
        self
    }
    /// A corpus to validate on.
    pub fn valid(mut self, corpus: &'a Corpus) -> Self {
        self.valid = Some(corpus);
        self
    }
    /// Settings.
    pub fn options(mut self, options: TrainerOptions) -> Self {
        self.options = options;
        self
    }
    /// Where checkpoints go. If one is there, training continues from the newest whole one, bitwise as if it had not been
    /// interrupted; one of another architecture, tokenizer or corpus is refused.
    pub fn run_directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.run_directory = Some(directory.as_ref().to_path_buf());
        self
    }
    /// Stops [`build`](Self::build), while it tokenises corpora, and the trainer's [`run`](Trainer::run),
    /// [`step`](Trainer::step) and [`validate`](Trainer::validate) when the token is set. All but `run` then give the error
    /// [`Cancelled`](ErrorCode::Cancelled). A cancelled `build` drops the model; the others may be called again.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
    /// Trains as one rank of a group. All its ranks build a trainer with the same model, corpora and options, and the
    /// same run directory, which rank 0 alone reads and writes.
    pub fn group(mut self, group: &Group) -> Self {
        self.group = Some(group.clone());
        self
    }
    /// Prepares the data and, if the run directory has one, restores a checkpoint.
    pub fn build(self) -> Result<Trainer> {
        let directory = self.run_directory.unwrap_or_default();
        let (data, length) = path_view(&directory);
        let corpora = [self.train, self.valid].into_iter().flatten();
        let sources: Vec<_> = corpora.flat_map(|corpus| corpus.sources.clone()).collect();
        // SAFETY: the handles are live; options and path are valid during the call.
        let valid = self.valid.map_or(ptr::null(), Corpus::as_ptr);
        let train = self.train.map_or(ptr::null(), Corpus::as_ptr);
        let tokenizer = self.tokenizer.map_or(ptr::null(), Tokenizer::as_ptr);
        let cancel = CancelToken::raw(self.cancel.as_ref());
        let raw = RawTrainer::make(|out| unsafe {
            match &self.group {
                None => sys::trafo_trainer_new(
                    self.model.as_ptr(),
                    tokenizer,
                    train,
                    valid,
                    &self.options.to_raw(),
                    data,
                    length,
                    cancel,
                    out,
                ),
                Some(group) => sys::trafo_trainer_new_in_group(
                    group.as_ptr(),
                    self.model.as_ptr(),
                    tokenizer,
                    train,
                    valid,
                    &self.options.to_raw(),
                    data,
                    length,
                    cancel,
                    out,
                ),
            }
        });
        let raw = tell_pairs(&sources, raw)?;
        let rate_failure = FirstFailure::default();
        Ok(Trainer { raw, model: self.model, cancel: self.cancel, sources, rate_failure })
    }
}

/// Trains a model, with validation, checkpoints, early stopping and cancellation.
///
/// It owns the model and can be moved to another thread as a whole.
///
/// ```
/// use std::ops::ControlFlow;
/// use trafo::{Corpus, Model, ModelConfig, TokenizerOptions, Trainer, TrainerOptions};
/// # fn main() -> trafo::Result<()> {
/// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
/// let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(40).soft_limit(true))?;
/// let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
/// let mut trainer = Trainer::builder(Model::new(&config, 1)?, &tokenizer, &corpus)
///     .options(TrainerOptions::new().after_updates(3).batch_tokens(64))
///     .build()?;
///
/// let thread = std::thread::spawn(move || {
///     let stop = trainer.run(|event| {
///         println!("{:?} at update {}", event.kind, event.update);
///         ControlFlow::Continue(())
///     })?;
///     Ok::<_, trafo::Error>((stop, trainer.into_model()))
/// });
/// let (stop, model) = thread.join().unwrap()?;
/// assert!(stop.is_finished());
/// # Ok(())
/// # }
/// ```
pub struct Trainer {
    // Freed before the model.
    raw: RawTrainer,
    model: Model,
    cancel: Option<CancelToken>,
    sources: Vec<FirstFailure>,
    pub(crate) rate_failure: FirstFailure,
}

// SAFETY: the trainer's context is its model's, which nothing outside this struct uses (see Model).
unsafe impl Send for Trainer {}

/// State of the C callback while `run` runs.
struct Callback<'a> {
    function: &'a mut dyn FnMut(&Event) -> ControlFlow<()>,
    stopped: bool,
    panic: Option<Box<dyn Any + Send>>,
}

/// # Safety
/// Called by the library with the `Callback` that `run` gave it and a valid event.
unsafe extern "C" fn call_back(user_data: *mut c_void, event: *const sys::trafo_event) -> i32 {
    // SAFETY: `run` holds the callback and does not touch it before the library returns.
    let callback = unsafe { &mut *user_data.cast::<Callback<'_>>() };
    if callback.panic.is_some() {
        return 1;
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the event is valid during the callback.
        (callback.function)(&unsafe { Event::from_raw(&*event) })
    }));
    match result {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => {
            callback.stopped = true;
            1
        }
        Err(payload) => {
            callback.panic = Some(payload);
            1
        }
    }
}

impl Trainer {
    /// Starts to put a trainer together. It takes the model over; [`into_model`](Trainer::into_model) gives it back.
    pub fn builder<'a>(
        model: Model,
        tokenizer: &'a Tokenizer,
        train: &'a Corpus,
    ) -> TrainerBuilder<'a> {
        TrainerBuilder {
            model,
            tokenizer: Some(tokenizer),
            train: Some(train),
            valid: None,
            options: TrainerOptions::new(),
            run_directory: None,
            cancel: None,
            group: None,
        }
    }
    /// The same for a corpus of token ids ([`Corpus::from_ids`]), without a tokenizer: the special tokens are those that the
    /// model knows ([`Model::set_special_tokens`]). Without a corpus the program gives batches
    /// ([`set_batches`](Trainer::set_batches)) before the trainer trains, and the memory is planned for batches of
    /// `batch_tokens` in rows of `max_length`.
    pub fn builder_for_ids<'a>(model: Model, train: Option<&'a Corpus>) -> TrainerBuilder<'a> {
        TrainerBuilder {
            model,
            tokenizer: None,
            train,
            valid: None,
            options: TrainerOptions::new(),
            run_directory: None,
            cancel: None,
            group: None,
        }
    }

    /// Trains until a limit of the options, early stopping, the cancel token, the callback or an error ends it; call again
    /// to go on. Being stopped on request is no error: see the result. A stopped run is saved if it has a run directory.
    ///
    /// A panic in the callback stops the run like `Break` and then goes on in the caller; the trainer stays usable.
    pub fn run(&mut self, callback: impl FnMut(&Event) -> ControlFlow<()>) -> Result<Stop> {
        self.run_updates(0, callback)
    }
    /// The same for at most `updates` more updates (0: no such limit); then the result is [`Stop::Paused`].
    pub fn run_updates(
        &mut self,
        updates: usize,
        mut callback: impl FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Stop> {
        self.run_with_model(updates, |event, _| callback(event))
    }
    /// The same with a callback that is lent the model in training. It may translate with it, or copy it for others by
    /// [`Model::write_to`] and [`Model::read_from`].
    pub fn run_with_model(
        &mut self,
        updates: usize,
        mut callback: impl FnMut(&Event, &Model) -> ControlFlow<()>,
    ) -> Result<Stop> {
        let mut function = |event: &Event| callback(event, &self.model);
        let mut state = Callback { function: &mut function, stopped: false, panic: None };
        let cancel = CancelToken::raw(self.cancel.as_ref());
        let mut stop = sys::TRAFO_STOP_NONE;
        // SAFETY: the handles are live; state and output are valid during the call.
        let result = check(unsafe {
            sys::trafo_trainer_run(
                self.raw.as_ptr(),
                to_i64(updates),
                cancel,
                Some(call_back),
                ptr::from_mut(&mut state).cast(),
                &mut stop,
            )
        });
        if let Some(payload) = state.panic {
            resume_unwind(payload);
        }
        match self.tell(result) {
            Ok(()) => Ok(Stop::from_raw(stop)),
            Err(error) if error.code() == ErrorCode::Cancelled && state.stopped => {
                Ok(Stop::Callback)
            }
            Err(error) if error.code() == ErrorCode::Cancelled && self.cancel.is_some() => {
                Ok(Stop::Cancelled)
            }
            Err(error) => Err(error),
        }
    }
    /// The outcome of a call that may have asked the program's closures.
    pub(crate) fn tell<T>(&self, result: Result<T>) -> Result<T> {
        tell_pairs(&self.sources, result.map_err(|error| self.rate_failure.tell(error)))
    }
    /// One update; validates and saves by their frequencies like [`run`](Trainer::run). With the trainer's token set before
    /// the update begins, the error is `Cancelled`; a validation that it interrupts is repeated by the next call.
    pub fn step(&mut self) -> Result<StepResult> {
        let cancel = CancelToken::raw(self.cancel.as_ref());
        // SAFETY: the handles are live, the output is valid.
        let step =
            filled(|step, _| unsafe { sys::trafo_trainer_step(self.raw.as_ptr(), cancel, step) });
        crate::cancel::continue_panic(); // of a validation after the update, which was done
        self.tell(step).map(|step| StepResult::from_raw(&step))
    }
    /// Validates now. `Cancelled`: the trainer's token was set; several ranks do not look at it.
    pub fn validate(&mut self) -> Result<Metrics> {
        let none = sys::trafo_metric_value { value: 0.0, metric: 0, reserved: 0 };
        let mut values = [none; sys::TRAFO_METRIC_COUNT as usize];
        let mut count = 0;
        // SAFETY: the handle is live, the outputs are valid.
        let result = check(unsafe {
            sys::trafo_trainer_validate(
                self.raw.as_ptr(),
                CancelToken::raw(self.cancel.as_ref()),
                values.as_mut_ptr(),
                i64::from(sys::TRAFO_METRIC_COUNT),
                &mut count,
            )
        });
        self.tell(result)?;
        Ok(Metrics::from_raw(&values[..count as usize]))
    }
    pub(crate) fn as_ptr(&self) -> *mut sys::trafo_trainer {
        self.raw.as_ptr()
    }
    /// Saves a checkpoint into the run directory now.
    pub fn save(&mut self) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_trainer_save(self.raw.as_ptr()) })
    }
    /// The memory that training takes, by the largest batches of the first epoch.
    pub fn plan(&self) -> Result<MemoryPlan> {
        // SAFETY: the handle is live; the struct has the size that is told.
        let plan = filled(|plan, size| unsafe {
            sys::trafo_trainer_get_plan(self.raw.as_ptr(), plan, size)
        })?;
        Ok(MemoryPlan::from_raw(&plan))
    }
    /// The model with its current weights.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }
    /// Ends training and gives the model back.
    #[must_use]
    pub fn into_model(self) -> Model {
        self.model
    }
    /// Ends training and gives the best model: the model of the best checkpoint in the run directory, by the first metric
    /// of validation. `InvalidArgument`: there is no run directory. `NotFound`: nothing was validated, or the best
    /// checkpoint is not kept (`keep_best`). The checkpoints stay, also after an error.
    pub fn into_best_model(self) -> Result<Model> {
        // SAFETY: the handle is live, `out` is valid.
        let best =
            RawModel::make(|out| unsafe { sys::trafo_trainer_load_best(self.raw.as_ptr(), out) })?;
        let Trainer { raw, model, .. } = self;
        drop(raw);
        Ok(model.replaced(best))
    }
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("model", &self.model).finish_non_exhaustive()
    }
}
