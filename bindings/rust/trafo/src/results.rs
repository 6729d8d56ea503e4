//! Structs that calls of the library fill in.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;

use trafo_sys as sys;

use crate::enums::{DType, Stop};
use crate::error::{Result, check, infallible};
use crate::event::Metrics;
use crate::handle::{view_to_path, view_to_string};
use crate::options::from_i64;
use crate::trainer_options::Metric;

/// # Safety
/// Zero is a value of all members.
pub(crate) unsafe trait Zeroed {}

/// The struct that `call` writes; it is told the size.
pub(crate) fn filled<T: Zeroed>(
    call: impl FnOnce(*mut T, usize) -> *mut sys::trafo_error,
) -> Result<T> {
    // SAFETY: the trait's promise.
    let mut raw: T = unsafe { std::mem::zeroed() };
    check(call(&mut raw, size_of::<T>()))?;
    Ok(raw)
}

/// As [`filled`], of a call that cannot fail.
pub(crate) fn always_filled<T: Zeroed>(
    call: impl FnOnce(*mut T, usize) -> *mut sys::trafo_error,
) -> T {
    // SAFETY: the trait's promise.
    let mut raw: T = unsafe { std::mem::zeroed() };
    infallible(call(&mut raw, size_of::<T>()));
    raw
}

fn known(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}
fn not_negative<T: PartialOrd + Default>(value: T) -> Option<T> {
    (value >= T::default()).then_some(value)
}
fn some_path(path: PathBuf) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then_some(path)
}

/// The text of an array that ends with a NUL, or with its last element.
pub(crate) fn text_of(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
/// # Safety
/// The text is valid during the call and ends with a NUL.
unsafe fn borrowed_text(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// The event's metrics are valid during the call.
unsafe fn named_values(raw: &sys::trafo_event) -> Vec<(String, f64)> {
    if raw.objective_metric_count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe {
        std::slice::from_raw_parts(raw.objective_metrics, raw.objective_metric_count as usize)
            .iter()
            .map(|each| (view_to_string(&each.name), each.value))
            .collect()
    }
}

// The tables schema/results.toml and schema/enums.toml give the structs and the kinds of events.
include!("generated/results.rs");
