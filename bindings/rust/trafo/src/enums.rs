//! Choices that no option is made of.

use trafo_sys as sys;

use crate::names::named;

// The table schema/enums.toml gives them.
include!("generated/enums.rs");
