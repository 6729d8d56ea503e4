//! Choices that no option is made of.

use trafo_sys as sys;

// The table schema/enums.toml gives them.
include!("generated/enums.rs");

impl Default for ExportWeights {
    fn default() -> Self {
        ExportWeights::ByFormat
    }
}

impl Default for Normalization {
    fn default() -> Self {
        Normalization::NmtNfkc
    }
}
