use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use trafo_sys as sys;

use crate::embed::free_box;
use crate::enums::Work;
use crate::error::infallible;
use crate::handle::RawCancel;
use crate::options::from_i64;

/// How far a call is: see [`CancelToken::on_progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Progress {
    /// The piece of work, which says what the numbers count.
    pub work: Work,
    /// How much of it is done.
    pub done: usize,
    /// Of how much; `None` while that is unknown.
    pub total: Option<usize>,
}

thread_local! {
    /// Of a closure that a call on this thread has told its progress, until the call returns.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// The panic of a closure that the call before has told its progress continues here.
pub(crate) fn continue_panic() {
    if let Some(payload) = PANIC.take() {
        resume_unwind(payload);
    }
}

/// # Safety
/// Called by the library with the box that `on_progress` gave it.
unsafe extern "C" fn tell<F: Fn(Progress) -> ControlFlow<()>>(
    user_data: *mut c_void,
    work: i32,
    done: i64,
    total: i64,
) -> i32 {
    // SAFETY: the box that `on_progress` gave; several threads may share it.
    let function = unsafe { &*user_data.cast::<F>() };
    let total = (total > 0).then(|| from_i64(total));
    let progress = Progress { work: Work::from_raw(work), done: from_i64(done), total };
    match catch_unwind(AssertUnwindSafe(|| function(progress))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => 1,
        Err(payload) => {
            PANIC.set(Some(payload));
            1
        }
    }
}

/// A request to stop, made from any thread.
///
/// Clones are the same token. Work that was given it ends in a consistent state: training between two updates, so that it
/// can go on or be saved, other work between two batches, reads or tensors.
///
/// ```
/// use trafo::CancelToken;
///
/// let token = CancelToken::new();
/// let elsewhere = token.clone();
/// std::thread::spawn(move || elsewhere.cancel()).join().unwrap();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<RawCancel>);

/// Equal if one is a clone of the other.
impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

// SAFETY: trafo.h: a cancel object may be set, reset, read and given a function on any thread; it is an atomic flag and a
// function under a lock, which is Send and Sync. It is freed once, by the last clone.
unsafe impl Send for RawCancel {}
// SAFETY: see above.
unsafe impl Sync for RawCancel {}

impl CancelToken {
    /// A token that is not set.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: `out` is valid.
        match RawCancel::make(|out| unsafe { sys::trafo_cancel_new(out) }) {
            Ok(raw) => CancelToken(Arc::new(raw)),
            Err(error) => panic!("{error}"),
        }
    }
    /// Asks the work that has this token to stop.
    pub fn cancel(&self) {
        // SAFETY: the handle is live.
        infallible(unsafe { sys::trafo_cancel_set(self.as_ptr()) });
    }
    /// Makes the token usable again.
    pub fn reset(&self) {
        // SAFETY: the handle is live.
        infallible(unsafe { sys::trafo_cancel_reset(self.as_ptr()) });
    }
    /// Whether it was set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let mut set = 0;
        // SAFETY: the handle is live, `set` is valid.
        infallible(unsafe { sys::trafo_cancel_is_set(self.as_ptr(), &mut set) });
        set != 0
    }
    /// Has calls that are given this token from now on tell how far they are: when a piece of work begins, when it ends, and
    /// at most every 100 ms between. The closure runs on the thread of the call, for calls of several threads at the same
    /// time. It replaces the one before. A closure that has a clone of the token keeps both for good: see
    /// [`without_progress`](Self::without_progress).
    ///
    /// With `Break` the token is set, which ends the call. A panic does the same and then continues in the caller. The closure
    /// cannot use the model that is at work: its calls fail with [`InvalidArgument`](crate::ErrorCode::InvalidArgument), and so
    /// do calls of other threads on that model until the call returns.
    ///
    /// A run tells of its validations, not of its updates. Trainers of a group tell only while they are made.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use trafo::{CancelToken, Tokenizer, TokenizerOptions};
    ///
    /// # fn main() -> trafo::Result<()> {
    /// let token = CancelToken::new();
    /// token.on_progress(|progress| {
    ///     eprintln!("{}: {} of {:?}", progress.work, progress.done, progress.total);
    ///     ControlFlow::Continue(())
    /// });
    /// let options = TokenizerOptions::new(30).soft_limit(true);
    /// Tokenizer::train_cancellable(&["ein kleines Haus", "ein Garten"], &options, &token)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn on_progress<F>(&self, function: F)
    where
        F: Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    {
        let data = Box::into_raw(Box::new(function)).cast();
        // SAFETY: the handle is live; the box is the library's from here on.
        infallible(unsafe {
            sys::trafo_cancel_set_progress(
                self.0.as_ptr(),
                Some(tell::<F>),
                data,
                Some(free_box::<F>),
            )
        });
    }
    /// Takes the closure of [`on_progress`](Self::on_progress) away.
    pub fn without_progress(&self) {
        // SAFETY: the handle is live.
        infallible(unsafe {
            sys::trafo_cancel_set_progress(self.0.as_ptr(), None, std::ptr::null_mut(), None)
        });
    }
    /// NULL for `None`.
    pub(crate) fn raw(token: Option<&Self>) -> *const sys::trafo_cancel {
        token.map_or(std::ptr::null(), Self::as_ptr)
    }
    pub(crate) fn as_ptr(&self) -> *const sys::trafo_cancel {
        self.0.as_ptr()
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.is_cancelled()).finish()
    }
}
