use std::fmt;
use std::sync::Arc;

use trafo_sys as sys;

use crate::error::infallible;
use crate::handle::RawCancel;

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

// SAFETY: trafo.h: a cancel object may be set, reset and read from any thread; every call takes a const handle, and the
// object is an atomic flag. It is freed once, by the last clone.
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
