#![allow(non_camel_case_types, missing_docs)]
#![doc = include_str!("../README.md")]

#[cfg(not(feature = "buildtime-bindgen"))]
mod bindings;
#[cfg(not(feature = "buildtime-bindgen"))]
pub use bindings::*;

#[cfg(feature = "buildtime-bindgen")]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
