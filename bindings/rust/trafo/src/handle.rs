//! Owned C handles, and what goes in and out of C calls.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::ptr;

use trafo_sys as sys;

use crate::error::{Error, ErrorCode, Result, check};

macro_rules! owned_handle {
    ($name:ident, $raw:ident, $free:ident) => {
        pub(crate) struct $name(std::ptr::NonNull<sys::$raw>);

        impl $name {
            /// Runs a C call with an out-parameter for a new handle.
            pub(crate) fn make(
                call: impl FnOnce(*mut *mut sys::$raw) -> *mut sys::trafo_error,
            ) -> Result<Self> {
                let mut out = std::ptr::null_mut();
                check(call(&mut out))?;
                Ok(Self(std::ptr::NonNull::new(out).expect("a successful call gives a handle")))
            }
            pub(crate) fn as_ptr(&self) -> *mut sys::$raw {
                self.0.as_ptr()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the handle is ours and is freed once.
                unsafe { sys::$free(self.0.as_ptr()) }
            }
        }
    };
}

owned_handle!(RawContext, trafo_context, trafo_context_free);
// SAFETY: trafo.h: everything may move between threads, and calls that use one context are serialised.
unsafe impl Send for RawContext {}
unsafe impl Sync for RawContext {}
owned_handle!(RawCancel, trafo_cancel, trafo_cancel_free);
owned_handle!(RawTensor, trafo_tensor, trafo_tensor_free);
owned_handle!(RawAdamW, trafo_adamw, trafo_adamw_free);
owned_handle!(RawTokenizer, trafo_tokenizer, trafo_tokenizer_free);
owned_handle!(RawCorpus, trafo_corpus, trafo_corpus_free);
owned_handle!(RawModel, trafo_model, trafo_model_free);
owned_handle!(RawTrainer, trafo_trainer, trafo_trainer_free);
owned_handle!(RawGroup, trafo_group, trafo_group_free);
owned_handle!(RawShortlist, trafo_shortlist, trafo_shortlist_free);
owned_handle!(RawTranslations, trafo_translations, trafo_translations_free);
owned_handle!(RawGenerator, trafo_generator, trafo_generator_free);

/// An option struct with its defaults.
pub(crate) fn defaults<T>(init: unsafe extern "C" fn(*mut T, usize) -> *mut sys::trafo_error) -> T {
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: init writes the whole struct, of which it is told the size.
    unsafe {
        crate::error::infallible(init(options.as_mut_ptr(), size_of::<T>()));
        options.assume_init()
    }
}

/// The library that was linked must speak this crate's ABI: a shared one may have been replaced.
pub(crate) fn check_abi() -> Result<()> {
    // SAFETY: no arguments, no state.
    let found = unsafe { sys::trafo_abi_version() };
    if found == sys::TRAFO_ABI_VERSION {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Version,
        "trafo",
        format!("libtrafo has ABI version {found}, this program needs {}", sys::TRAFO_ABI_VERSION),
    ))
}

pub(crate) fn view(text: &str) -> sys::trafo_string_view {
    sys::trafo_string_view { data: text.as_ptr().cast(), length: text.len() }
}

/// Views of `lines`, valid as long as they are.
pub(crate) fn views<S: AsRef<str>>(lines: &[S]) -> Vec<sys::trafo_string_view> {
    lines.iter().map(|line| view(line.as_ref())).collect()
}

pub(crate) fn empty_view() -> sys::trafo_string_view {
    sys::trafo_string_view { data: ptr::null(), length: 0 }
}

/// # Safety
/// `data` points to `length` elements, or `length` is 0.
pub(crate) unsafe fn slice<'a, T>(data: *const T, length: usize) -> &'a [T] {
    if length == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, length) }
}

/// # Safety
/// The view is valid during the call.
pub(crate) unsafe fn view_to_string(view: &sys::trafo_string_view) -> String {
    // SAFETY: the caller's promise.
    String::from_utf8_lossy(unsafe { slice(view.data.cast::<u8>(), view.length) }).into_owned()
}

/// # Safety
/// The view is valid during the call and holds a path as it came from `path_view`.
pub(crate) unsafe fn view_to_path(view: &sys::trafo_string_view) -> PathBuf {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice(view.data.cast::<u8>(), view.length) };
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    }
    #[cfg(not(unix))]
    // SAFETY: the caller's promise.
    PathBuf::from(unsafe { view_to_string(view) })
}

/// A path as a string view, for arrays and options.
pub(crate) fn path_text(path: &Path) -> sys::trafo_string_view {
    let (data, length) = path_view(path);
    sys::trafo_string_view { data, length }
}

/// A path as pointer and length.
pub(crate) fn path_view(path: &Path) -> (*const c_char, usize) {
    let bytes = path.as_os_str().as_encoded_bytes();
    (bytes.as_ptr().cast(), bytes.len())
}

/// Takes over a string that came out of a C call.
pub(crate) struct OutString {
    pub(crate) data: *mut c_char,
    pub(crate) length: usize,
}

impl OutString {
    pub(crate) fn new() -> Self {
        OutString { data: ptr::null_mut(), length: 0 }
    }
    /// The string, for calls that give its length.
    pub(crate) fn to_text(&self) -> String {
        // SAFETY: the call wrote both.
        String::from_utf8_lossy(unsafe { slice(self.data.cast::<u8>(), self.length) }).into_owned()
    }
    /// The string up to its NUL, for calls that give no length.
    pub(crate) fn to_c_text(&self) -> String {
        if self.data.is_null() {
            return String::new();
        }
        // SAFETY: strings that come out are NUL-terminated.
        unsafe { std::ffi::CStr::from_ptr(self.data) }.to_string_lossy().into_owned()
    }
}

impl Drop for OutString {
    fn drop(&mut self) {
        // SAFETY: ours, or NULL.
        unsafe { sys::trafo_string_free(self.data) }
    }
}
