//! Smaller models: pruning, sparsity, low rank, quantization.

pub(crate) mod factorize;
pub(crate) mod prune;
pub(crate) mod quantize;
pub(crate) mod sparsify;
