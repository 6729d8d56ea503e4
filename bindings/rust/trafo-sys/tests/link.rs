//! The library links, speaks this header's ABI, and its option structs have the size and defaults the header says.

use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::ptr;

use trafo_sys::*;

#[test]
fn the_library_is_the_headers() {
    // SAFETY: no arguments.
    unsafe {
        assert_eq!(trafo_abi_version(), TRAFO_ABI_VERSION);
        assert!(!CStr::from_ptr(trafo_version()).to_bytes().is_empty());
    }
}

#[test]
fn options_errors_and_handles() {
    // SAFETY: the header's rules are kept: sizes match the structs, handles are freed once.
    unsafe {
        let mut options: trafo_trainer_options = zeroed();
        assert!(
            trafo_trainer_options_init(&mut options, size_of::<trafo_trainer_options>()).is_null()
        );
        assert_eq!(options.struct_size, size_of::<trafo_trainer_options>());
        assert_eq!(
            (options.seed, options.learning_rate, options.max_non_finite_steps),
            (1, 2e-3, 10)
        );
        assert_eq!(options.valid_freq.value, 1000);

        let mut context = ptr::null_mut();
        assert!(trafo_context_new(ptr::null(), &mut context).is_null());
        let mut tensor = ptr::null_mut();
        let error = trafo_tensor_new(
            context,
            TRAFO_FLOAT32,
            [2i64].as_ptr(),
            1,
            [0u8; 7].as_ptr().cast(),
            7,
            &mut tensor,
        );
        assert!(!error.is_null() && tensor.is_null());
        assert_eq!(trafo_error_code(error), TRAFO_SHAPE_MISMATCH);
        assert!(!CStr::from_ptr(trafo_error_message(error)).to_bytes().is_empty());
        trafo_error_free(error);
        trafo_context_free(context);
        trafo_context_free(ptr::null_mut());
    }
}
