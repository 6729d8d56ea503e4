//! Training inside a program: learning rates and pairs from closures, models and runs to any writer and from any reader.

use std::any::Any;
use std::ffi::c_void;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use trafo_sys as sys;

use crate::context::ContextOptions;
use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::{check_abi, view};
use crate::model::Model;
use crate::network::tensor::DType;
use crate::options::{from_i64, to_i64};
use crate::text::{Corpus, Tokenizer};
use crate::trainer::Trainer;

/// The error of a stream: the library only knows that it failed.
struct Stream<'a, S: ?Sized> {
    stream: &'a mut S,
    error: Option<std::io::Error>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<'a, S: ?Sized> Stream<'a, S> {
    fn new(stream: &'a mut S) -> Self {
        Self { stream, error: None, panic: None }
    }
    fn attempt<T>(&mut self, work: impl FnOnce(&mut S) -> std::io::Result<T>) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| work(self.stream))) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => self.error = Some(error),
            Err(panic) => self.panic = Some(panic),
        }
        None
    }
    fn finish<T>(self, origin: &str, result: Result<T>) -> Result<T> {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
        match self.error {
            Some(error) => {
                Err(Error::new(ErrorCode::Io, origin, error.to_string()).caused_by(Arc::new(error)))
            }
            None => result,
        }
    }
}

unsafe extern "C" fn write_bytes<W: Write>(
    user_data: *mut c_void,
    data: *const u8,
    bytes: usize,
) -> i32 {
    // SAFETY: the stream of the call at hand, and bytes that are valid during it.
    let (stream, data) = unsafe {
        (&mut *user_data.cast::<Stream<'_, W>>(), std::slice::from_raw_parts(data, bytes))
    };
    i32::from(stream.attempt(|writer| writer.write_all(data)).is_none())
}

unsafe extern "C" fn read_bytes<R: Read>(
    user_data: *mut c_void,
    data: *mut u8,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    // SAFETY: the stream of the call at hand; the library gives memory that it has set.
    let (stream, data) = unsafe {
        (&mut *user_data.cast::<Stream<'_, R>>(), std::slice::from_raw_parts_mut(data, capacity))
    };
    let read = stream.attempt(|reader| {
        loop {
            match reader.read(data) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    });
    let Some(read) = read else { return 1 };
    // SAFETY: an output of the call.
    unsafe { *count = read };
    0
}

fn write_with<W: Write>(
    origin: &str,
    writer: &mut W,
    call: impl FnOnce(sys::trafo_write_fn, *mut c_void) -> *mut sys::trafo_error,
) -> Result<()> {
    let mut stream = Stream::new(writer);
    let result = check(call(Some(write_bytes::<W>), ptr::from_mut(&mut stream).cast()));
    stream.finish(origin, result)
}

fn read_with<R: Read, T>(
    origin: &str,
    reader: &mut R,
    call: impl FnOnce(sys::trafo_read_fn, *mut c_void) -> Result<T>,
) -> Result<T> {
    let mut stream = Stream::new(reader);
    let result = call(Some(read_bytes::<R>), ptr::from_mut(&mut stream).cast());
    stream.finish(origin, result)
}

impl Model {
    /// Writes the bytes of [`save`](Model::save). The writer may wait for another thread, so meanwhile calls of other threads on
    /// the model fail with `InvalidArgument`.
    pub fn write_to(&self, writer: &mut impl Write) -> Result<()> {
        // SAFETY: the handle is live, the stream is valid during the call.
        write_with("Model::write_to", writer, |write, data| unsafe {
            sys::trafo_model_write(self.as_ptr(), write, data)
        })
    }
    /// A model from such bytes, read to their end.
    pub fn read_from(options: &ContextOptions, reader: &mut impl Read) -> Result<Self> {
        Self::read_as(options, reader, DType::F32)
    }
    /// The same, computing in `precision`: `F32` or, on CUDA, `BF16`.
    pub fn read_as(
        options: &ContextOptions,
        reader: &mut impl Read,
        precision: DType,
    ) -> Result<Self> {
        read_with("Model::read_from", reader, |read, data| {
            // SAFETY: the context is live, the stream is valid during the call.
            Self::make_in(options, |context, out| unsafe {
                sys::trafo_model_read(context, read, data, precision.as_raw(), out)
            })
        })
    }
}

impl Tokenizer {
    /// Writes the bytes of [`save`](Tokenizer::save).
    pub fn write_to(&self, writer: &mut impl Write) -> Result<()> {
        // SAFETY: the handle is live, the stream is valid during the call.
        write_with("Tokenizer::write_to", writer, |write, data| unsafe {
            sys::trafo_tokenizer_write(self.as_ptr(), write, data)
        })
    }
}

pub(crate) enum Failure {
    Error(Box<dyn std::error::Error + Send + Sync>),
    Panic(Box<dyn Any + Send>),
}

/// The first error or panic of a closure that the library calls, until the call that fails by it reports it: pairs
/// are asked for ahead of that, on other threads.
#[derive(Clone, Default)]
pub(crate) struct FirstFailure(Arc<Mutex<Option<Failure>>>);

impl FirstFailure {
    pub(crate) fn note(&self, failure: Failure) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
    /// The error of a call that failed by the closure; a panic goes on here.
    pub(crate) fn tell(&self, error: Error) -> Error {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Failure::Panic(payload)) => resume_unwind(payload),
            Some(Failure::Error(source)) => {
                let message = format!("{}: {source}", error.message());
                Error::new(error.code(), error.origin(), message).caused_by(source.into())
            }
            None => error,
        }
    }
}

/// The outcome of a call that may have asked closures for pairs.
pub(crate) fn tell_pairs<T>(sources: &[FirstFailure], result: Result<T>) -> Result<T> {
    result.map_err(|error| {
        if error.code() != ErrorCode::Io || error.origin() != "trafo_pair_fn" {
            return error;
        }
        sources.iter().fold(error, |error, source| source.tell(error))
    })
}

struct Rate {
    function: Box<dyn FnMut(i64, f64) -> f64 + Send>,
    failure: FirstFailure,
}

unsafe extern "C" fn rate_of(user_data: *mut c_void, update: i64, scheduled: f64) -> f64 {
    // SAFETY: the box that `set_rate` gave, used by one thread at a time.
    let rate = unsafe { &mut *user_data.cast::<Rate>() };
    let result = catch_unwind(AssertUnwindSafe(|| (rate.function)(update, scheduled)));
    result.unwrap_or_else(|payload| {
        rate.failure.note(Failure::Panic(payload));
        f64::NAN // which the library refuses
    })
}

pub(crate) unsafe extern "C" fn free_box<T>(user_data: *mut c_void) {
    // SAFETY: a box of this type that was given away.
    let boxed = unsafe { Box::from_raw(user_data.cast::<T>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(boxed)));
}

impl Trainer {
    /// Asks `rate` for the learning rate of every update from the next on, given what the options' schedule says. It is
    /// asked for updates ahead and more than once, so it must depend on its arguments alone; a run that is continued needs
    /// the same. A rate that is negative or not finite is `InvalidArgument` from the call that trains; a panic goes on there.
    pub fn set_rate(&mut self, rate: impl FnMut(i64, f64) -> f64 + Send + 'static) -> Result<()> {
        let failure = self.rate_failure.clone();
        let boxed = Box::new(Rate { function: Box::new(rate), failure });
        // SAFETY: the handle is live; the box is the library's from here on.
        check(unsafe {
            sys::trafo_trainer_set_rate(
                self.as_ptr(),
                Some(rate_of),
                Box::into_raw(boxed).cast(),
                Some(free_box::<Rate>),
            )
        })
    }
    /// Follows the options' schedule again from the next update on.
    pub fn clear_rate(&mut self) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_trainer_set_rate(self.as_ptr(), None, ptr::null_mut(), None) })
    }
    /// Writes what a checkpoint in a run directory holds: weights, moments, position in the data, counters.
    pub fn write_to(&mut self, writer: &mut impl Write) -> Result<()> {
        // SAFETY: the handle is live, the stream is valid during the call.
        write_with("Trainer::write_to", writer, |write, data| unsafe {
            sys::trafo_trainer_write(self.as_ptr(), write, data)
        })
    }
    /// Gives this trainer and its model what such bytes hold; it goes on bitwise as the one that wrote them would have.
    /// Model, tokenizer, corpus and options must be the ones of that trainer.
    pub fn read_from(&mut self, reader: &mut impl Read) -> Result<()> {
        let result = read_with("Trainer::read_from", reader, |read, data| {
            // SAFETY: the handle is live, the stream is valid during the call.
            check(unsafe { sys::trafo_trainer_read(self.as_ptr(), read, data) })
        });
        self.tell(result)
    }
}

struct Pairs<F> {
    function: F,
    current: (String, String),
    failure: FirstFailure,
}

unsafe extern "C" fn give_pair<F, E>(
    user_data: *mut c_void,
    index: i64,
    source: *mut sys::trafo_string_view,
    target: *mut sys::trafo_string_view,
) -> i32
where
    F: FnMut(usize) -> std::result::Result<(String, String), E>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // SAFETY: the box that `from_function` gave; calls come one at a time, and none from inside of one.
    let pairs = unsafe { &mut *user_data.cast::<Pairs<F>>() };
    let result =
        catch_unwind(AssertUnwindSafe(|| (pairs.function)(from_i64(index)).map_err(Into::into)));
    let failure = match result {
        Ok(Ok(pair)) => {
            pairs.current = pair;
            None
        }
        Ok(Err(error)) => Some(Failure::Error(error)),
        Err(payload) => Some(Failure::Panic(payload)),
    };
    if let Some(failure) = failure {
        pairs.failure.note(failure);
        return 1;
    }
    // SAFETY: outputs of the call; the strings live until the next one.
    unsafe {
        *source = view(&pairs.current.0);
        *target = view(&pairs.current.1);
    }
    0
}

impl Corpus {
    /// A corpus of `pairs` pairs that `function` gives when batches need them, in every epoch again. The same index must give
    /// the same pair for a run to continue bitwise; `identity` represents the pairs in checkpoints. An error ends the call
    /// that needed the pair, which may be made again, with [`Io`](ErrorCode::Io) and the error as its source; a panic goes on
    /// there. Called on threads of the library, one call at a time. It must not read its own corpus, and not wait for a
    /// thread that reads it: that thread waits until the function returns.
    pub fn from_function<F, E>(pairs: usize, identity: u64, function: F) -> Result<Self>
    where
        F: FnMut(usize) -> std::result::Result<(String, String), E> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        check_abi()?;
        let failure = FirstFailure::default();
        let sources = vec![failure.clone()];
        let boxed = Box::new(Pairs { function, current: Default::default(), failure });
        // SAFETY: the box is the library's from here on.
        let corpus = Self::make(|out| unsafe {
            sys::trafo_corpus_from_function(
                to_i64(pairs),
                identity,
                Some(give_pair::<F, E>),
                Box::into_raw(boxed).cast(),
                Some(free_box::<Pairs<F>>),
                out,
            )
        })?;
        Ok(corpus.with_sources(sources))
    }
}
