//! DLPack: tensors of another library in, tensors for another library out.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use trafo::{Context, CopyMode, DlpackTensor, ErrorCode, Result};

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Managed {
    version: [u32; 2],
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    flags: u64,
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

struct Owner {
    managed: Managed,
    _values: Vec<f32>,
    _shape: Vec<i64>,
    freed: &'static AtomicUsize,
}

unsafe extern "C" fn free_owner(managed: *mut Managed) {
    // SAFETY: the context is the box that `foreign` made.
    let owner = unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner>()) };
    owner.freed.fetch_add(1, Ordering::SeqCst);
}

fn foreign(major: u32, mut values: Vec<f32>, freed: &'static AtomicUsize) -> DlpackTensor {
    let mut shape = vec![values.len() as i64];
    let managed = Managed {
        version: [major, 1],
        manager_ctx: ptr::null_mut(),
        deleter: Some(free_owner),
        flags: 0,
        data: values.as_mut_ptr().cast(),
        device: [1, 0],
        ndim: 1,
        code: 2,
        bits: 32,
        lanes: 1,
        shape: shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let owner = Box::into_raw(Box::new(Owner { managed, _values: values, _shape: shape, freed }));
    // SAFETY: the box lives until its deleter is called.
    unsafe {
        (*owner).managed.manager_ctx = owner.cast();
        DlpackTensor::from_raw(NonNull::new_unchecked(&raw mut (*owner).managed).cast())
    }
}

#[test]
fn foreign_memory_is_freed_once() -> Result<()> {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let context = Context::new()?;
    let tensor = foreign(1, vec![1.0, 2.0, 3.0], &FREED);
    // SAFETY: the vector is as described and nobody else looks at it.
    let tensor = unsafe { context.tensor_from_dlpack(tensor, CopyMode::Never)? };
    let view = tensor.slice(0, 1..3)?;
    drop(tensor);
    assert_eq!(FREED.load(Ordering::SeqCst), 0);
    assert_eq!(view.to_vec::<f32>()?, [2.0, 3.0]);
    drop(view);
    assert_eq!(FREED.load(Ordering::SeqCst), 1);

    // SAFETY: as above.
    let copied =
        unsafe { context.tensor_from_dlpack(foreign(1, vec![4.0], &FREED), CopyMode::Always)? };
    assert_eq!(FREED.load(Ordering::SeqCst), 2);
    assert_eq!(copied.item()?, 4.0);
    // SAFETY: as above. A refused tensor is dropped here, not leaked.
    let refused =
        unsafe { context.tensor_from_dlpack(foreign(2, vec![4.0], &FREED), CopyMode::IfNeeded) };
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Version);
    assert_eq!(FREED.load(Ordering::SeqCst), 3);
    Ok(())
}

#[test]
fn a_loan_outlives_its_context() -> Result<()> {
    let lent = {
        let context = Context::new()?;
        context.tensor(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?.to_dlpack()?
    };
    let raw = lent.into_raw().cast::<Managed>();
    // SAFETY: the layout is DLPack's, and the memory is ours until the deleter is called.
    unsafe {
        assert_eq!(((*raw).ndim, (*raw).code, (*raw).bits), (2, 2, 32));
        assert_eq!(*(*raw).data.cast::<f32>().add(3), 4.0);
        assert_eq!(std::slice::from_raw_parts((*raw).strides, 2), [2, 1]);
        (*raw).deleter.unwrap()(raw);
    }
    Ok(())
}
