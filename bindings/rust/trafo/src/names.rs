//! Values of enums as text.

/// `Display` prints the first word of a value, `FromStr` reads all of them: the words of files and of the command line. With
/// the feature `serde`, a value is its first word. `Type?` has a value `Unknown` for numbers of newer libraries.
macro_rules! named {
    ($type:ident: $($values:tt)*) => {
        crate::names::named! { @display $type []: $($values)* }
        crate::names::text! { $type }
    };
    ($type:ident?: $($values:tt)*) => {
        crate::names::named! { @display $type [$type::Unknown(_) => "unknown",]: $($values)* }
        crate::names::text! { $type }
    };
    (@display $type:ident [$($unknown:tt)*]: $($value:ident = $first:literal $(| $other:literal)*),+ $(,)?) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $($type::$value => $first,)+
                    $($unknown)*
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

/// With the feature `serde`, a value is the text that `Display` prints and `FromStr` reads.
macro_rules! text {
    ($type:ident) => {
        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(
                &self,
                to: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                from: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(|error: crate::Error| {
                    <D::Error as serde::de::Error>::custom(error.message())
                })
            }
        }
    };
}
pub(crate) use text;
