//! A translation server that learns from corrections in the process that serves.
//!
//! `store` and `versions` are the database, `base` the model that is given, `frame` how it reads pairs, `train`, `measure` and `learn` the way of a new
//! version, `serve` the models that translate, `generate` the language model, `api` the HTTP interface and `openai` its part
//! that is OpenAI's.

pub mod api;
pub mod base;
pub mod core;
pub mod fault;
pub mod frame;
pub mod generate;
mod hash;
pub mod learn;
pub mod measure;
pub mod openai;
pub mod serve;
#[path = "../../../bindings/rust/trafo/examples/serving/mod.rs"]
pub mod serving;
pub mod settings;
pub mod store;
pub mod train;
pub mod versions;
