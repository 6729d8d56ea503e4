//! Choices that no option is made of.

use trafo_sys as sys;

use crate::event::Stop;
use crate::names::named;
use crate::tensor::DType;

// The table schema/enums.toml gives them.
include!("generated/enums.rs");

named! { DType?:
    F32 = "float32",
    F64 = "float64",
    BF16 = "bfloat16",
    I32 = "int32",
    I8 = "int8",
}
named! { Stop?:
    None = "none",
    Limit = "limit",
    Early = "early_stopping",
    Callback = "callback",
    Cancelled = "cancelled",
    Paused = "paused",
}
