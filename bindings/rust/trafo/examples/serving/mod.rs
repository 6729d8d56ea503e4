//! Parts that servers of translations share: batches of concurrent requests, connections, metrics. The examples
//! `translate_server` and, outside this package, `examples/learning-service` are made of them.

pub mod batcher;
pub mod connections;
mod framing;
pub mod metrics;
