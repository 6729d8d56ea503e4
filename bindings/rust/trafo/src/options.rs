//! Structs of options: a public field and a method that sets it for each row of a table in schema.

/// The fields after the first block come from the table; `to` and `from` convert them to and from C. The fields in the
/// block are written by hand, as are their setters.
macro_rules! options {
    (
        $(#[$meta:meta])*
        $type:ident = $raw:ident, $init:ident {
            $($(#[$hand_meta:meta])* $visible:vis $hand:ident: $hand_type:ty = $hand_from:expr;)*
        }
        $($(#[$doc:meta])* $name:ident: $kind:ty = $to:expr, $from:expr;)*
    ) => {
        $(#[$meta])*
        #[must_use]
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(default, deny_unknown_fields)
        )]
        pub struct $type {
            $($(#[$doc])* pub $name: $kind,)*
            $($(#[$hand_meta])* $visible $hand: $hand_type,)*
        }
        impl $type {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $name: $kind) -> Self {
                    self.$name = $name;
                    self
                }
            )*
            pub(crate) fn from_raw(raw: &sys::$raw) -> Self {
                $type {
                    $($name: {
                        let from: fn(_) -> $kind = $from;
                        from(raw.$name)
                    },)*
                    $($hand: {
                        let from: fn(&sys::$raw) -> $hand_type = $hand_from;
                        from(raw)
                    },)*
                }
            }
            fn write(&self, raw: &mut sys::$raw) {
                $(
                    let to: fn($kind) -> _ = $to;
                    raw.$name = to(self.$name.clone());
                )*
            }
        }
        impl Default for $type {
            fn default() -> Self {
                Self::from_raw(&crate::handle::defaults(sys::$init))
            }
        }
    };
}
pub(crate) use options;

pub(crate) fn same<T>(value: T) -> T {
    value
}
pub(crate) fn from_flag(flag: i32) -> bool {
    flag != 0
}
/// A count of options: what no option can have is refused by its number.
pub(crate) fn to_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
/// Sizes that no tensor can have become negative and are refused by the library.
pub(crate) fn to_i64(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(-1)
}
/// As [`to_i64`].
pub(crate) fn to_i32(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(-1)
}
pub(crate) fn from_i64(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}
