use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::context::{ContextOptions, memory_stats, start_profile, write_profile};
use crate::device::Device;
use crate::error::{Result, check, infallible};
use crate::handle::{
    OutString, RawContext, RawModel, RawTranslations, check_abi, defaults, path_text, path_view,
    views,
};
use crate::model_config::ModelConfig;
use crate::network::tensor::{DType, Element, expect_dtype};
use crate::options::{from_i64, to_i32, to_i64};
use crate::results::{MemoryStats, ParameterInfo, filled};
use crate::text::{Tokenizer, expect_equal};
use crate::trainer_options::RunModel;
use crate::translation::{TranslateOptions, Translation, read_lines};

/// How probable a target is, given its source.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// Natural logarithm.
    pub log_probability: f64,
    /// Target tokens, `</s>` included.
    pub tokens: usize,
}

/// The file that `path` means where a model is asked for: the file itself, the `model.safetensors` in a directory, or of a
/// run directory the best model; its newest checkpoint if none was judged or the best was not kept. `NotFound`: there is
/// no model.
pub fn find_model(path: impl AsRef<Path>) -> Result<PathBuf> {
    check_abi()?;
    let (data, length) = path_view(path.as_ref());
    let mut found = OutString::new();
    // SAFETY: the path is valid during the call.
    check(unsafe { sys::trafo_find_model(data, length, &mut found.data) })?;
    Ok(found.to_c_text().into())
}

/// The model file of a checkpoint of a run directory by its name: an update such as `1000`, `latest`, `best-bleu` (or
/// another metric), or `averaged`. `NotFound`: there is no such directory, or no such checkpoint in it.
pub fn find_checkpoint(run_directory: impl AsRef<Path>, name: &str) -> Result<PathBuf> {
    check_abi()?;
    let (data, length) = path_view(run_directory.as_ref());
    let mut found = OutString::new();
    // SAFETY: path and name are valid during the call.
    check(unsafe {
        sys::trafo_find_checkpoint(data, length, name.as_ptr().cast(), name.len(), &mut found.data)
    })?;
    Ok(found.to_c_text().into())
}

/// The updates of the checkpoints of a run directory, whole or damaged, in ascending order. A run resumes in a directory
/// that has one. Empty: no checkpoint, or no such directory.
pub fn list_checkpoints(run_directory: impl AsRef<Path>) -> Result<Vec<i64>> {
    check_abi()?;
    let (data, length) = path_view(run_directory.as_ref());
    let mut updates = Vec::new();
    loop {
        let mut count = 0;
        // SAFETY: the path is valid during the call; `updates` has the length that is told.
        check(unsafe {
            sys::trafo_list_checkpoints(
                data,
                length,
                updates.as_mut_ptr(),
                to_i64(updates.len()),
                &mut count,
            )
        })?;
        let all = from_i64(count) <= updates.len();
        updates.resize(from_i64(count), 0);
        if all {
            return Ok(updates);
        }
    }
}

/// A parameter of a model, borrowed from it.
pub struct Parameter<'a> {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
    raw: *mut sys::trafo_tensor,
    // Uses the model's context: neither Send nor Sync, and gone before the model moves.
    _model: &'a Model,
}

impl Parameter<'_> {
    /// Its name in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its dimensions.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Type of its elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// A copy of its elements; `T` is the parameter's type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        expect_dtype::<T>("Parameter::to_vec", self.dtype)?;
        let mut data = vec![T::default(); self.shape.iter().product()];
        // SAFETY: the handle is live; the buffer has the tensor's size, and every bit pattern is a valid T.
        check(unsafe {
            sys::trafo_tensor_read(self.raw, data.as_mut_ptr().cast(), size_of_val(&*data))
        })?;
        Ok(data)
    }
}

/// A [`Parameter`] that can be written.
#[derive(Debug)]
pub struct ParameterMut<'a>(Parameter<'a>);

impl<'a> Deref for ParameterMut<'a> {
    type Target = Parameter<'a>;

    fn deref(&self) -> &Parameter<'a> {
        &self.0
    }
}

impl ParameterMut<'_> {
    /// Overwrites its elements.
    pub fn write<T: Element>(&mut self, data: &[T]) -> Result<()> {
        expect_dtype::<T>("ParameterMut::write", self.dtype)?;
        // SAFETY: the handle is live, data is valid for its length.
        check(unsafe { sys::trafo_tensor_write(self.raw, data.as_ptr().cast(), size_of_val(data)) })
    }
}

impl Drop for Parameter<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, freed once.
        unsafe { sys::trafo_tensor_free(self.raw) }
    }
}

impl fmt::Debug for Parameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameter")
            .field("name", &self.name)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// A transformer with its weights, on a separate engine.
///
/// It can be moved to another thread and shared by several (`Send` and `Sync`). Calls on one model are serialised: threads
/// that shall compute at the same time need a model each.
///
/// ```
/// use trafo::{Corpus, Model, ModelConfig, TokenizerOptions, TranslateOptions};
/// # fn main() -> trafo::Result<()> {
/// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
/// let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(40).soft_limit(true))?;
/// let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
/// let model = Model::new(&config, 1)?; // not trained yet
/// let options = TranslateOptions::new().beam(2).max_length(5);
/// let translations = model.translate(&tokenizer, &["ein Haus"], &options)?;
/// println!("{}", translations[0].text());
/// # Ok(())
/// # }
/// ```
pub struct Model {
    raw: RawModel,
    // Models of `with_adapter` share it.
    context: Arc<RawContext>,
}

// SAFETY: a model's context is made with it and never handed out, so every handle that uses the context lies in this
// struct (or in a Trainer together with it, or borrows it) and moves with it, or in a model of `with_adapter`, which only
// computes. trafo.h: everything may move between threads, and calls that use one context are serialised, so that a shared
// model or context may be used by several at once.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    /// A model with parameters drawn from `seed`, on the CPU with a thread for each core.
    pub fn new(config: &ModelConfig, seed: u64) -> Result<Self> {
        Self::new_on(&ContextOptions::new(), config, seed)
    }
    /// The same with other settings of the engine.
    pub fn new_on(options: &ContextOptions, config: &ModelConfig, seed: u64) -> Result<Self> {
        // SAFETY: the handle is live, config is valid during the call.
        Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_new(context, &config.to_raw(), seed, out)
        })
    }
    /// As [`new`](Model::new), with the factors of [`factorize`](Model::factorize): a matrix that is two factors in the
    /// `model.safetensors` at `path` is two factors of the same rank in this model, whose values do not come from the file:
    /// see [`load_weights`](Model::load_weights). `InvalidArgument`: the configuration has no such matrix, or one that is too
    /// small for the rank.
    pub fn new_like(config: &ModelConfig, seed: u64, path: impl AsRef<Path>) -> Result<Self> {
        Self::new_like_on(&ContextOptions::new(), config, seed, path)
    }
    /// The same with other settings of the engine.
    pub fn new_like_on(
        options: &ContextOptions,
        config: &ModelConfig,
        seed: u64,
        path: impl AsRef<Path>,
    ) -> Result<Self> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, config and path are valid during the call.
        Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_new_like(context, &config.to_raw(), seed, data, length, out)
        })
    }
    /// A `model.safetensors` written by [`save`](Model::save) or a training run.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_on(&ContextOptions::new(), path)
    }
    /// The same with other settings of the engine.
    pub fn load_on(options: &ContextOptions, path: impl AsRef<Path>) -> Result<Self> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_load(context, data, length, out)
        })
    }
    /// This model's context, with another model in it.
    pub(crate) fn replaced(self, raw: RawModel) -> Self {
        Model { raw, context: self.context }
    }
    /// Another model beside this one, in its context.
    pub(crate) fn beside(&self, raw: RawModel) -> Self {
        Model { raw, context: self.context.clone() }
    }
    /// Takes another model in this one's context.
    pub(crate) fn replace(&mut self, raw: RawModel) {
        self.raw = raw;
    }
    pub(crate) fn into_raw(self) -> (RawModel, Arc<RawContext>) {
        (self.raw, self.context)
    }
    /// The context must be used by nothing but the model, and others of `with_adapter`, from here on.
    pub(crate) fn from_raw(raw: RawModel, context: Arc<RawContext>) -> Self {
        Model { raw, context }
    }
    /// Runs a C call that makes a model in a separate context.
    pub(crate) fn make_in(
        options: &ContextOptions,
        call: impl FnOnce(*mut sys::trafo_context, *mut *mut sys::trafo_model) -> *mut sys::trafo_error,
    ) -> Result<Self> {
        let context = Arc::new(options.make()?);
        let raw = RawModel::make(|out| call(context.as_ptr(), out))?;
        Ok(Model { raw, context })
    }
    /// The same, computing in `precision`: `F32` or, on CUDA, `BF16`.
    pub fn load_as(
        options: &ContextOptions,
        path: impl AsRef<Path>,
        precision: DType,
    ) -> Result<Self> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_load_as(context, data, length, precision.as_raw(), out)
        })
    }
    /// The same with int8 weights, for translation and scoring on a CPU. The matrices are quantized while they are read, and
    /// no float copy of them is kept. [`save`](Model::save) then writes a file about a quarter as large, which
    /// [`load`](Model::load) reads as it is. `Unsupported`: to train or export the model.
    ///
    /// ```no_run
    /// # use trafo::Model;
    /// # fn main() -> trafo::Result<()> {
    /// Model::load_int8("run/ckpt/2000/model.safetensors")?.save("small.safetensors")?;
    /// let model = Model::load("small.safetensors")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_int8(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_int8_on(&ContextOptions::new(), path)
    }
    /// The same with other settings of the engine.
    pub fn load_int8_on(options: &ContextOptions, path: impl AsRef<Path>) -> Result<Self> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_load_int8(context, data, length, out)
        })
    }
    /// A model of a run directory: of the best checkpoint by the first metric of validation, of the newest checkpoint, or
    /// the average. `NotFound` says why the run has no such model. [`Tokenizer::load`](crate::Tokenizer::load) takes the
    /// directory of a run of `translate-train`; a run of a program has no vocabulary there, unless the program saved it.
    pub fn load_run(directory: impl AsRef<Path>, which: RunModel) -> Result<Self> {
        Self::load_run_as(&ContextOptions::new(), directory, which, DType::F32)
    }
    /// The same with other settings of the engine, computing in `precision`: `F32` or, on CUDA, `BF16`.
    pub fn load_run_as(
        options: &ContextOptions,
        directory: impl AsRef<Path>,
        which: RunModel,
        precision: DType,
    ) -> Result<Self> {
        let (data, length) = path_view(directory.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_load_run(
                context,
                data,
                length,
                which.as_raw(),
                precision.as_raw(),
                out,
            )
        })
    }
    /// Takes the weights of such a file, to train on from them; dropout and longest sequence may be others. The tokenizer
    /// must be the one that a run has noted in the file. `InvalidArgument` names what does not fit, and the tensor; the
    /// model is as before then.
    pub fn load_weights(
        &mut self,
        path: impl AsRef<Path>,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        let handle = tokenizer.map_or(ptr::null(), Tokenizer::as_ptr);
        // SAFETY: the handles are live, the path is valid during the call.
        check(unsafe { sys::trafo_model_load_weights(self.as_ptr(), handle, data, length) })
    }
    /// Packs the weights for translation on the CPU, which takes as much memory again. Small batches are then translated
    /// up to twice as fast, and a translation does not depend on the batch it is in, not in a single bit. The weights
    /// cannot change any more: a trainer, `parameters` and `load_weights` refuse the model from here on.
    pub fn prepare_inference(&mut self) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_model_prepare_inference(self.as_ptr()) })
    }
    /// Writes the mean of model files, added up in float64, to a file, whole or not at all. `InvalidArgument` names the
    /// tensor or the setting in which one is not like the first.
    pub fn average<P: AsRef<Path>>(models: &[P], output: impl AsRef<Path>) -> Result<()> {
        let paths: Vec<_> = models.iter().map(|path| path_text(path.as_ref())).collect();
        let (data, length) = path_view(output.as_ref());
        // SAFETY: the paths are valid during the call.
        check(unsafe { sys::trafo_average_models(paths.as_ptr(), paths.len(), data, length) })
    }
    /// Writes the file, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        check(unsafe { sys::trafo_model_save(self.as_ptr(), data, length) })
    }
    /// The shape of the model.
    pub fn config(&self) -> ModelConfig {
        let mut raw = defaults(sys::trafo_model_config_init);
        // SAFETY: the handle is live; `raw` has the size that is told.
        infallible(unsafe {
            sys::trafo_model_get_config(
                self.as_ptr(),
                &mut raw,
                size_of::<sys::trafo_model_config>(),
            )
        });
        ModelConfig::from_raw(&raw)
    }
    /// Checks that a tokenizer belongs to the model, as translating and scoring do. `InvalidArgument`: it has another number
    /// of tokens, or the model was trained with another vocabulary.
    pub fn check_tokenizer(&self, tokenizer: &Tokenizer) -> Result<()> {
        // SAFETY: the handles are live.
        check(unsafe { sys::trafo_model_check_tokenizer(self.as_ptr(), tokenizer.as_ptr()) })
    }
    fn counts(&self) -> (i64, i64) {
        let (mut tensors, mut elements) = (0, 0);
        // SAFETY: the handle is live, the outputs are valid.
        infallible(unsafe {
            sys::trafo_model_get_parameter_count(self.as_ptr(), &mut tensors, &mut elements)
        });
        (tensors, elements)
    }
    /// Number of weights.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        from_i64(self.counts().1)
    }
    /// The parameters, in the order of the file.
    ///
    /// ```
    /// # use trafo::{Model, ModelConfig};
    /// # fn main() -> trafo::Result<()> {
    /// let model = Model::new(&ModelConfig::preset("lm", 50)?, 1)?;
    /// for parameter in model.parameters()? {
    ///     println!("{} {:?}", parameter.name(), parameter.shape());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn parameters(&self) -> Result<Vec<Parameter<'_>>> {
        (0..self.counts().0).map(|index| self.parameter(index)).collect()
    }
    /// The parameters to be written: nobody else uses the model meanwhile.
    pub fn parameters_mut(&mut self) -> Result<Vec<ParameterMut<'_>>> {
        Ok(self.parameters()?.into_iter().map(ParameterMut).collect())
    }
    /// How each parameter is trained, in the order of the file.
    pub fn parameter_infos(&self) -> Result<Vec<ParameterInfo>> {
        (0..self.counts().0).map(|index| self.parameter_info(index)).collect()
    }
    fn parameter_info(&self, index: i64) -> Result<ParameterInfo> {
        // SAFETY: the handle is live; the struct has the size that is told.
        let info = filled(|info, size| unsafe {
            sys::trafo_model_get_parameter_info(self.as_ptr(), index, info, size)
        })?;
        // SAFETY: the texts are borrowed from the model, which is alive.
        Ok(unsafe { ParameterInfo::from_raw(&info) })
    }
    /// Freezes the parameters whose whole names match `pattern`, and returns how many match. Training does not change
    /// them, and takes no gradients, optimizer states and backward work for them. `*` stands for any characters, `?` for
    /// one: `encoder.*` and `*embedding.weight` leave the decoder to be trained. `NotFound`: no name matches. A run
    /// directory continues with the same parameters frozen.
    ///
    /// ```
    /// # use trafo::{Model, ModelConfig};
    /// # fn main() -> trafo::Result<()> {
    /// let mut model = Model::new(&ModelConfig::preset("lm", 50)?, 1)?;
    /// assert!(model.freeze("decoder.0.*")? > 0);
    /// let info = &model.parameter_infos()?[0];
    /// assert!(info.trainable, "{} lies before the decoder", info.name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn freeze(&mut self, pattern: &str) -> Result<usize> {
        let (data, length) = (pattern.as_ptr().cast(), pattern.len());
        let mut count = 0;
        // SAFETY: the handle is live and exclusive, the pattern is valid during the call.
        check(unsafe { sys::trafo_model_freeze(self.as_ptr(), data, length, &mut count) })?;
        Ok(from_i64(count))
    }
    /// Makes the parameters whose names match trainable again, and returns how many match.
    pub fn unfreeze(&mut self, pattern: &str) -> Result<usize> {
        let (data, length) = (pattern.as_ptr().cast(), pattern.len());
        let mut count = 0;
        // SAFETY: the handle is live and exclusive, the pattern is valid during the call.
        check(unsafe { sys::trafo_model_unfreeze(self.as_ptr(), data, length, &mut count) })?;
        Ok(from_i64(count))
    }
    /// Sets what learning rate and weight decay are multiplied with for the parameters whose names match, and returns how
    /// many match. `InvalidArgument`: a factor is negative or not finite.
    pub fn set_update_factors(
        &mut self,
        pattern: &str,
        lr_factor: f64,
        weight_decay_factor: f64,
    ) -> Result<usize> {
        let (data, length) = (pattern.as_ptr().cast(), pattern.len());
        let mut count = 0;
        // SAFETY: the handle is live and exclusive, the pattern is valid during the call.
        check(unsafe {
            sys::trafo_model_set_update_factors(
                self.as_ptr(),
                data,
                length,
                lr_factor,
                weight_decay_factor,
                &mut count,
            )
        })?;
        Ok(from_i64(count))
    }
    fn parameter(&self, index: i64) -> Result<Parameter<'_>> {
        let (mut name, mut raw) = (ptr::null(), ptr::null_mut());
        // SAFETY: the handle is live, the outputs are valid; the name is borrowed from the model.
        unsafe {
            check(sys::trafo_model_get_parameter(self.as_ptr(), index, &mut name, &mut raw))?;
            let mut parameter = Parameter {
                name: std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned(),
                shape: Vec::new(),
                dtype: DType::F32,
                raw,
                _model: self,
            };
            let (mut dims, mut rank, mut dtype) = ([0i64; 8], 0, 0);
            check(sys::trafo_tensor_get_dtype(raw, &mut dtype))?;
            parameter.dtype = DType::from_raw(dtype);
            check(sys::trafo_tensor_get_shape(
                raw,
                dims.as_mut_ptr(),
                dims.len() as i32,
                &mut rank,
            ))?;
            parameter.shape = dims.iter().take(rank as usize).map(|&d| from_i64(d)).collect();
            Ok(parameter)
        }
    }

    /// The device that computes: `Cpu` or `Cuda`, also where `Auto` was asked for.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::of(&self.context)
    }
    /// Sets the number of host threads, 1 to 256. It never changes results.
    pub fn set_threads(&mut self, threads: usize) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_context_set_threads(self.context.as_ptr(), to_i32(threads)) })
    }
    /// Sets the [`background_share`](crate::ContextOptions::background_share()) of the model's engine, 0.001 to 1, from
    /// the next call on.
    pub fn set_background_share(&mut self, share: f64) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_context_set_background_share(self.context.as_ptr(), share) })
    }
    /// Memory of the model's engine.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        memory_stats(&self.context)
    }
    /// Begins a profile of the model's engine: times of every op, forward and backward, and of the phases of training
    /// steps. Unless `keep_graphs`, training steps on CUDA are issued kernel by kernel meanwhile, so that their ops are
    /// seen. It never changes a bit. A profile that was being recorded is dropped.
    pub fn start_profile(&self, keep_graphs: bool) -> Result<()> {
        start_profile(&self.context, keep_graphs)
    }
    /// Ends the profile, writes it as a Chrome trace if `path` is given, whole or not at all, and returns a table of the
    /// ops by time. The profile is kept until the next one is started: it may be written again.
    pub fn write_profile(&self, path: Option<&Path>) -> Result<String> {
        write_profile(&self.context, path)
    }

    /// Translates lines, batched by length; results are in the order of the input. An empty line gives an empty
    /// translation.
    pub fn translate<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        lines: &[S],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        Ok(self.translate_counted(tokenizer, lines, options)?.0)
    }
    /// The same, and how many sources were cut because they are over the model's limit.
    pub fn translate_counted<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        lines: &[S],
        options: &TranslateOptions,
    ) -> Result<(Vec<Translation>, usize)> {
        let lines = views(lines);
        let cancel = options.cancel.as_ref().map_or(ptr::null(), CancelToken::as_ptr);
        // SAFETY: the handles are live; views and options are valid during the call.
        let result = RawTranslations::make(|out| unsafe {
            sys::trafo_translate(
                self.as_ptr(),
                tokenizer.as_ptr(),
                lines.as_ptr(),
                lines.len(),
                &options.to_raw(),
                cancel,
                out,
            )
        })?;
        let translations = read_lines(&result, lines.len())?;
        let mut truncated = 0;
        // SAFETY: the handle is live, the output is valid.
        check(unsafe { sys::trafo_translations_get_truncated(result.as_ptr(), &mut truncated) })?;
        Ok((translations, truncated))
    }

    /// Translates lines whose translations begin as given: `prefixes[i]`, which may be empty, belongs to `lines[i]`. A
    /// hypothesis contains its prefix, in text, tokens and scores. An empty line with a prefix, and a prefix that leaves no
    /// position of the model for another token, are [`InvalidArgument`](crate::ErrorCode::InvalidArgument).
    pub fn translate_with_prefixes<S: AsRef<str>, P: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        lines: &[S],
        prefixes: &[P],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        const ORIGIN: &str = "Model::translate_with_prefixes";
        expect_equal(ORIGIN, "lines", lines.len(), "prefixes", prefixes.len())?;
        let (lines, prefixes) = (views(lines), views(prefixes));
        let cancel = options.cancel.as_ref().map_or(ptr::null(), CancelToken::as_ptr);
        // SAFETY: the handles are live; views, which are equally many, and options are valid during the call.
        let result = RawTranslations::make(|out| unsafe {
            sys::trafo_translate_with_prefixes(
                self.as_ptr(),
                tokenizer.as_ptr(),
                lines.as_ptr(),
                prefixes.as_ptr(),
                lines.len(),
                &options.to_raw(),
                cancel,
                out,
            )
        })?;
        read_lines(&result, lines.len())
    }

    /// How probable the model holds each target. [`force_decode`](Self::force_decode) gives the same and may be cancelled.
    pub fn score<S: AsRef<str>, T: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        sources: &[S],
        targets: &[T],
    ) -> Result<Vec<Score>> {
        expect_equal("Model::score", "sources", sources.len(), "targets", targets.len())?;
        let (sources, targets) = (views(sources), views(targets));
        let mut log_probabilities = vec![0.0; sources.len()];
        let mut tokens = vec![0i64; sources.len()];
        // SAFETY: the handles are live; all arrays have the length that is told.
        check(unsafe {
            sys::trafo_score(
                self.as_ptr(),
                tokenizer.as_ptr(),
                sources.as_ptr(),
                targets.as_ptr(),
                sources.len(),
                ptr::null(),
                log_probabilities.as_mut_ptr(),
                tokens.as_mut_ptr(),
            )
        })?;
        let pairs = log_probabilities.into_iter().zip(tokens);
        Ok(pairs
            .map(|(log_probability, tokens)| Score { log_probability, tokens: from_i64(tokens) })
            .collect())
    }

    /// Forced decoding: each target as the one hypothesis of the source beside it, with its score, and with word scores and
    /// an alignment if the options ask for them. `length_penalty`, `batch_tokens`, `truncate` and `cancel` are used as well:
    /// with `truncate`, a pair that is too long is cut.
    pub fn force_decode<S: AsRef<str>, T: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        sources: &[S],
        targets: &[T],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        expect_equal("Model::force_decode", "sources", sources.len(), "targets", targets.len())?;
        let (sources, targets) = (views(sources), views(targets));
        let cancel = options.cancel.as_ref().map_or(ptr::null(), CancelToken::as_ptr);
        // SAFETY: the handles are live; views, which are equally many, and options are valid during the call.
        let result = RawTranslations::make(|out| unsafe {
            sys::trafo_force_decode(
                self.as_ptr(),
                tokenizer.as_ptr(),
                sources.as_ptr(),
                targets.as_ptr(),
                sources.len(),
                &options.to_raw(),
                cancel,
                out,
            )
        })?;
        read_lines(&result, sources.len())
    }

    /// Plain text under a decoder-only model: each line as the one hypothesis of itself, with the log-probability of each of
    /// its tokens and of its end, given `</s>` and the tokens before it. `tokens` has the end, too. `begin_source` (`<s>` in
    /// place of the first `</s>`), `end_source` (off: the end is not scored), `length_penalty`, `word_scores`,
    /// `batch_tokens`, `truncate`, `window_stride` and `cancel` of the options are used.
    pub fn score_text<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        lines: &[S],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        let lines = views(lines);
        let cancel = options.cancel.as_ref().map_or(ptr::null(), CancelToken::as_ptr);
        // SAFETY: the handles are live; views and options are valid during the call.
        let result = RawTranslations::make(|out| unsafe {
            sys::trafo_score_text(
                self.as_ptr(),
                tokenizer.as_ptr(),
                lines.as_ptr(),
                lines.len(),
                &options.to_raw(),
                cancel,
                out,
            )
        })?;
        read_lines(&result, lines.len())
    }

    pub(crate) fn context_ptr(&self) -> *mut sys::trafo_context {
        self.context.as_ptr()
    }
    pub(crate) fn as_ptr(&self) -> *mut sys::trafo_model {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("config", &self.config()).finish_non_exhaustive()
    }
}
