//! Training inside a program: learning rates and pairs from closures, models and runs to any writer and from any reader.

use std::any::Any;
use std::ffi::c_void;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use trafo_sys as sys;

use crate::context::ContextOptions;
use crate::error::{Error, ErrorCode, Result, check};
use crate::model::Model;
use crate::text::{Corpus, Tokenizer};
use crate::trainer::Trainer;

/// What a stream has met: the library only knows that it failed.
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
            Some(error) => Err(Error::new(ErrorCode::Io, origin, error.to_string())),
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
    /// Writes the bytes of [`save`](Model::save).
    pub fn write_to(&self, writer: &mut impl Write) -> Result<()> {
        // SAFETY: the handle is live, the stream is valid during the call.
        write_with("Model::write_to", writer, |write, data| unsafe {
            sys::trafo_model_write(self.as_ptr(), write, data)
        })
    }
    /// A model from such bytes, read to their end.
    pub fn read_from(options: &ContextOptions, reader: &mut impl Read) -> Result<Self> {
        read_with("Model::read_from", reader, |read, data| {
            // SAFETY: the context is live, the stream is valid during the call.
            Self::make_in(options, |context, out| unsafe {
                sys::trafo_model_read(context, read, data, sys::TRAFO_FLOAT32, out)
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

type Rate = Box<dyn FnMut(i64, f64) -> f64 + Send>;

unsafe extern "C" fn rate_of(user_data: *mut c_void, update: i64, scheduled: f64) -> f64 {
    // SAFETY: the box that `set_rate` gave, used by one thread at a time.
    let rate = unsafe { &mut *user_data.cast::<Rate>() };
    catch_unwind(AssertUnwindSafe(|| rate(update, scheduled))).unwrap_or(f64::NAN)
}

unsafe extern "C" fn free_box<T>(user_data: *mut c_void) {
    // SAFETY: a box of this type that was given away.
    let boxed = unsafe { Box::from_raw(user_data.cast::<T>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(boxed)));
}

impl Trainer {
    /// Asks `rate` for the learning rate of every update from the next on, given what the options' schedule says. It is
    /// asked for updates ahead and more than once, so it must depend on its arguments alone; a run that is continued needs
    /// the same. A rate that is negative or not finite, or a panic, is `InvalidArgument` from the call that trains.
    pub fn set_rate(&mut self, rate: impl FnMut(i64, f64) -> f64 + Send + 'static) -> Result<()> {
        let boxed: Box<Rate> = Box::new(Box::new(rate));
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
    /// Writes what a checkpoint in a run directory holds: weights, moments, position in the data, counters.
    pub fn write_to(&mut self, writer: &mut impl Write) -> Result<()> {
        // SAFETY: the handle is live, the stream is valid during the call.
        write_with("Trainer::write_to", writer, |write, data| unsafe {
            sys::trafo_trainer_write(self.as_ptr(), write, data)
        })
    }
    /// Gives this trainer and its model what such bytes hold; it goes on bitwise as the one that wrote them would have.
    /// Model, tokenizer, corpus and options must be those of that trainer.
    pub fn read_from(&mut self, reader: &mut impl Read) -> Result<()> {
        read_with("Trainer::read_from", reader, |read, data| {
            // SAFETY: the handle is live, the stream is valid during the call.
            check(unsafe { sys::trafo_trainer_read(self.as_ptr(), read, data) })
        })
    }
}

struct Pairs<F> {
    function: F,
    current: (String, String),
}

unsafe extern "C" fn give_pair<F: FnMut(i64) -> Option<(String, String)>>(
    user_data: *mut c_void,
    index: i64,
    source: *mut sys::trafo_string_view,
    target: *mut sys::trafo_string_view,
) -> i32 {
    // SAFETY: the box that `from_function` gave; calls come one at a time.
    let pairs = unsafe { &mut *user_data.cast::<Pairs<F>>() };
    let Ok(Some(pair)) = catch_unwind(AssertUnwindSafe(|| (pairs.function)(index))) else {
        return 1;
    };
    pairs.current = pair;
    let view =
        |text: &str| sys::trafo_string_view { data: text.as_ptr().cast(), length: text.len() };
    // SAFETY: outputs of the call; the strings live until the next one.
    unsafe {
        *source = view(&pairs.current.0);
        *target = view(&pairs.current.1);
    }
    0
}

impl Corpus {
    /// A corpus of `pairs` pairs that `function` gives when batches need them, in every epoch again. The same index must give
    /// the same pair for a run to continue bitwise; `identity` stands for the pairs in checkpoints. `None`, or a panic, ends
    /// the call that needed the pair with `Cancelled`. Called on threads of the library, one call at a time.
    pub fn from_function<F>(pairs: i64, identity: u64, function: F) -> Result<Self>
    where
        F: FnMut(i64) -> Option<(String, String)> + Send + 'static,
    {
        let boxed = Box::new(Pairs { function, current: Default::default() });
        // SAFETY: the box is the library's from here on.
        Self::make(|out| unsafe {
            sys::trafo_corpus_from_function(
                pairs,
                identity,
                Some(give_pair::<F>),
                Box::into_raw(boxed).cast(),
                Some(free_box::<Pairs<F>>),
                out,
            )
        })
    }
}
