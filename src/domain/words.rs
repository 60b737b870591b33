//! Enums whose values have one fixed word each: in the databases, in hashes and on the wire.

/// A text is none of an enum's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is one of: {allowed}")]
pub struct UnknownWord {
    pub(crate) allowed: &'static str,
}

/// Reads a word.
pub(crate) struct Word<T: 'static> {
    pub(crate) all: &'static [T],
    pub(crate) as_str: fn(T) -> &'static str,
}

impl<T: Copy> serde::de::Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<_> = self.all.iter().map(|word| (self.as_str)(*word)).collect();
        write!(f, "one of {}", words.join(", "))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        let mut all = self.all.iter().copied();
        all.find(|word| (self.as_str)(*word) == text)
            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
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
                    all: Self::ALL,
                    as_str: Self::as_str,
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
