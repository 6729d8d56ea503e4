//! Reasons why something was not done, as clients get them.

use std::fmt;

/// A kind of failure with a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The request is wrong; 400.
    Invalid(String),
    /// There is no such thing; 404.
    NotFound(String),
    /// It contradicts the stored state; 409.
    Conflict(String),
    /// Files of an adapter are missing, or are not those that the database knows; 409.
    Damaged(String),
    /// A limit is reached; 429.
    Limit(String),
    /// The service cannot do it now; 503.
    Unavailable(String),
    /// The same work would fail in the same way again; 500.
    Hopeless(String),
    /// It failed on this side; 500.
    Internal(String),
}

pub type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub fn status(&self) -> u16 {
        match self {
            Fault::Invalid(_) => 400,
            Fault::NotFound(_) => 404,
            Fault::Conflict(_) | Fault::Damaged(_) => 409,
            Fault::Limit(_) => 429,
            Fault::Internal(_) | Fault::Hopeless(_) => 500,
            Fault::Unavailable(_) => 503,
        }
    }

    pub fn message(&self) -> &str {
        match self {
            Fault::Invalid(text)
            | Fault::NotFound(text)
            | Fault::Conflict(text)
            | Fault::Damaged(text)
            | Fault::Limit(text)
            | Fault::Unavailable(text)
            | Fault::Hopeless(text)
            | Fault::Internal(text) => text,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Fault {}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        let text = format!("the database: {error}");
        if full { Fault::Unavailable(text) } else { Fault::Internal(text) }
    }
}

impl From<trafo::Error> for Fault {
    fn from(error: trafo::Error) -> Self {
        match error.code() {
            trafo::ErrorCode::InvalidArgument => Fault::Invalid(error.to_string()),
            trafo::ErrorCode::NotFound => Fault::NotFound(error.to_string()),
            trafo::ErrorCode::NonFinite => Fault::Hopeless(error.to_string()),
            trafo::ErrorCode::Io
            | trafo::ErrorCode::OutOfMemory
            | trafo::ErrorCode::OutOfDeviceMemory => Fault::Unavailable(error.to_string()),
            _ => Fault::Internal(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Fault::Internal(error.to_string())
    }
}

/// An error of the file system, with the path that it is about.
pub fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Fault + '_ {
    move |error| {
        let text = format!("{}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Fault::Internal(text),
            _ => Fault::Unavailable(text), // a full disk, no file descriptors
        }
    }
}
