//! Enums whose values have one fixed word each: in the databases, in hashes and on the wire.

/// A text is none of an enum's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is one of: {allowed}")]
pub struct UnknownWord {
    pub(in crate::domain) allowed: &'static str,
}

/// Reads a word.
pub(in crate::domain) struct Word<T> {
    pub(in crate::domain) words: &'static [&'static str],
    pub(in crate::domain) parse: fn(&str) -> Option<T>,
}

impl<T> serde::de::Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "one of {}", self.words.join(", "))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::unknown_variant(text, self.words))
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::serde::Serialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        // By hand, because what serde derives would read `{"word": null}` too.
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::domain::words::Word {
                    words: &[$($text),+],
                    parse: Self::parse,
                })
            }
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::domain::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text).ok_or($crate::domain::words::UnknownWord {
                    allowed: concat!($($text, " "),+).trim_ascii_end(),
                })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;
