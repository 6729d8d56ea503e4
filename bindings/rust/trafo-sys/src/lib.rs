#![allow(non_camel_case_types, missing_docs)]
// The header's comments are plain text.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]
#![doc = include_str!("../README.md")]

#[cfg(not(feature = "buildtime-bindgen"))]
mod bindings;
#[cfg(not(feature = "buildtime-bindgen"))]
pub use bindings::*;

#[cfg(feature = "buildtime-bindgen")]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
