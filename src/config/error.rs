//! What can be wrong with a configuration, told so that it can be put right.

use std::fmt;
use std::path::PathBuf;

use serde::de;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    File(PathBuf),
    Variable(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not TOML: {message}")]
    Syntax { path: PathBuf, message: String },
    #[error("{key} is not a known key{}; known here: {allowed}", shown(place.as_ref()))]
    UnknownKey {
        key: String,
        place: Option<Place>,
        allowed: String,
    },
    #[error(
        "{key} is missing: set it in settlenet.toml or as {variable} \
         (`settlenet dev` runs a whole stack and writes a configuration for it)"
    )]
    Missing { key: String, variable: String },
    #[error("{key}: found {found}{}; allowed: {allowed}", shown(place.as_ref()))]
    Wrong {
        key: String,
        found: String,
        place: Option<Place>,
        allowed: String,
    },
    #[error("environment variable {name}: {problem}")]
    Variable { name: String, problem: String },
    #[error("{key} and {key}_file are both set; keep one")]
    Both { key: String },
}

fn shown(place: Option<&Place>) -> String {
    place
        .map(|place| format!(" in {place}"))
        .unwrap_or_default()
}

/// A serde error on its way out of the tree, gathering where it happened.
#[derive(Debug)]
pub(super) struct Fault {
    /// Innermost key first.
    path: Vec<String>,
    place: Option<Place>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unknown {
        field: String,
        allowed: String,
    },
    Missing {
        field: String,
    },
    Wrong {
        found: Option<String>,
        allowed: String,
    },
}

impl Fault {
    fn new(kind: Kind) -> Self {
        Self {
            path: Vec::new(),
            place: None,
            kind,
        }
    }

    pub fn within(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }

    /// Adds what stood there, unless something further inside said so already.
    pub fn at(mut self, place: &Place, value: &str) -> Self {
        if self.place.is_none() {
            self.place = Some(place.clone());
        }
        if let Kind::Wrong {
            found: found @ None,
            ..
        } = &mut self.kind
        {
            *found = Some(value.to_owned());
        }
        self
    }

    fn key(&self, last: Option<&str>) -> String {
        let keys: Vec<&str> = self
            .path
            .iter()
            .rev()
            .map(String::as_str)
            .chain(last)
            .collect();
        keys.join(".")
    }
}

impl From<Fault> for ConfigError {
    fn from(fault: Fault) -> Self {
        match &fault.kind {
            Kind::Unknown { field, allowed } => Self::UnknownKey {
                key: fault.key(Some(field)),
                allowed: allowed.clone(),
                place: fault.place,
            },
            Kind::Missing { field } => {
                let key = fault.key(Some(field));
                let variable = super::source::variable(&key);
                Self::Missing { key, variable }
            }
            Kind::Wrong { found, allowed } => Self::Wrong {
                key: fault.key(None),
                found: found.clone().unwrap_or_else(|| "something else".into()),
                allowed: allowed.clone(),
                place: fault.place,
            },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl std::error::Error for Fault {}

/// serde's words for what it wants, in words for people.
fn wanted(expected: &dyn de::Expected) -> String {
    match expected.to_string().as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative".into(),
        other if other.starts_with("struct ") => "a table".into(),
        other => other.to_owned(),
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Kind::Wrong {
            found: None,
            allowed: message.to_string(),
        })
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(Kind::Wrong {
            found: None,
            allowed: wanted(expected),
        })
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(Kind::Wrong {
            found: None,
            allowed: wanted(expected),
        })
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Kind::Wrong {
            found: None,
            allowed: expected.join(", "),
        })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Kind::Unknown {
            field: field.to_owned(),
            allowed: expected.join(", "),
        })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Kind::Missing {
            field: field.to_owned(),
        })
    }
}
