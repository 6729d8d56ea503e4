use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::Arc;

use trafo_sys as sys;

pub(crate) use crate::enums::ErrorCode;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<i32> for ErrorCode {
    fn from(code: i32) -> Self {
        ErrorCode::from_raw(code)
    }
}

impl fmt::Display for ErrorCode {
    /// The name of the C interface, such as `SHAPE_MISMATCH`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorCode::Unknown(code) => write!(f, "UNKNOWN({code})"),
            // SAFETY: the name has static storage.
            known => f.write_str(&unsafe { text(sys::trafo_error_code_name(known.as_raw())) }),
        }
    }
}

/// The fault and its remedy.
///
/// ```
/// use trafo::{Context, ErrorCode};
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let a = context.tensor(&[1.0f32, 2.0, 3.0], &[3])?;
/// let b = context.tensor(&[1.0f32, 2.0], &[2])?;
/// let error = a.add(&b).unwrap_err();
/// assert_eq!(error.code(), ErrorCode::ShapeMismatch);
/// println!("{error}"); // names the op and both shapes
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error {
    code: ErrorCode,
    origin: String,
    message: String,
    field: String,
    source: Option<Source>,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Equal if code, origin and message are; what caused it on the program's side is not compared.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        (self.code, &self.origin, &self.message) == (other.code, &other.origin, &other.message)
    }
}

impl Eq for Error {}

impl Error {
    /// An error of the caller's own, for instance out of a checkpointed region.
    pub fn new(code: ErrorCode, origin: impl Into<String>, message: impl Into<String>) -> Self {
        Error {
            code,
            origin: origin.into(),
            message: message.into(),
            field: String::new(),
            source: None,
        }
    }
    /// Notes an error of the program's own code, a closure's or a stream's, that caused this one.
    pub(crate) fn caused_by(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }
    /// The kind of error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.code
    }
    /// The fault and its remedy.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
    /// The op or function that refused.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
    /// The argument or option that was wrong, such as `"width"`, by its name in C. The message begins with it. `None`: the
    /// error is of no single one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        (!self.field.is_empty()).then_some(self.field.as_str())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.origin, self.message, self.code)
    }
}

/// Like `Display`, so that a `main` returning `Result` ends with a readable line.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    /// The error of a stream or a closure that caused this one, if one did.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

/// # Safety
/// `string` is NUL-terminated or NULL.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Takes the error of a C call over.
pub(crate) fn check(error: *mut sys::trafo_error) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a non-NULL result of a C call is an error object that is ours; the strings are borrowed from it.
    unsafe {
        let result = Error {
            code: sys::trafo_error_code(error).into(),
            origin: text(sys::trafo_error_origin(error)),
            field: text(sys::trafo_error_field(error)),
            message: text(sys::trafo_error_message(error)),
            source: None,
        };
        sys::trafo_error_free(error);
        crate::cancel::continue_panic(); // whichever error ended the call that the panic was in
        Err(result)
    }
}

/// A failure to allocate a small object, or one that only a bug can cause.
#[track_caller]
pub(crate) fn infallible(error: *mut sys::trafo_error) {
    if let Err(error) = check(error) {
        panic!("{error}");
    }
}
