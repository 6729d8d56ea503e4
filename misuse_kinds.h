#pragma once
enum {
  KIND_COUNT
};
enum {
  CLASS_valid,
  CLASS_NULL,
  CLASS_NULL_element,
  CLASS_negative,
  CLASS_zero,
  CLASS_INT64_MAX,
  CLASS_overflow,
  CLASS_unknown_enum,
  CLASS_unknown_flag,
  CLASS_reserved,
  CLASS_not_finite,
  CLASS_freed_handle,
  CLASS_wrong_kind,
  CLASS_second_free,
  CLASS_struct_size,
  CLASS_newer_struct,
  CLASS_NUL_or_not_UTF_8,
  CLASS_bad_memory,
  CLASS_in_callback,
  CLASS_other_thread,
  CLASS_race,
  CLASS_COUNT
};
