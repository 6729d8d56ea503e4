//! Tensors, ops and parameters of custom networks.

pub(crate) mod chain;
pub(crate) mod dlpack;
pub(crate) mod host_types;
pub(crate) mod op_options;
pub(crate) mod open_model;
pub(crate) mod ops;
pub(crate) mod optim;
pub(crate) mod own_tensors;
pub(crate) mod parameters;
pub(crate) mod region;
pub(crate) mod states;
pub(crate) mod tensor;
