//! Values of enums as text.

/// `Display` prints the first word of a value, `FromStr` reads all of them: the words of files and of the command line.
macro_rules! named {
    ($type:ident: $($value:ident = $first:literal $(| $other:literal)*),+ $(,)?) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $($type::$value => $first,)+
                })
            }
        }
        impl std::str::FromStr for $type {
            type Err = crate::Error;

            fn from_str(text: &str) -> std::result::Result<Self, crate::Error> {
                match text {
                    $($first $(| $other)* => Ok($type::$value),)+
                    _ => Err(crate::Error::new(
                        crate::ErrorCode::InvalidArgument,
                        concat!(stringify!($type), "::from_str"),
                        format!("{text:?} is none of {}", [$($first),+].join(", ")),
                    )),
                }
            }
        }
    };
}
pub(crate) use named;
