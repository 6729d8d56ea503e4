//! Choices that no option is made of.

use trafo_sys as sys;

// The table schema/enums.toml gives them.
include!("generated/enums.rs");
