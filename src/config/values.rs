//! Values with a meaning of their own.

use std::fmt;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A span of time in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A span of time in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Seconds(pub u64);

/// A `TigerBeetle` cluster's id. Clusters in production have random 128-bit
/// ones, more than TOML's integers hold: those are written as strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterId(pub u128);

impl Serialize for ClusterId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(self.0) {
            Ok(small) => serializer.serialize_i64(small),
            Err(_) => serializer.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for ClusterId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ClusterId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number below 2^128, as a string if it is above 2^63")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ClusterId, E> {
                u128::try_from(value)
                    .map(ClusterId)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<ClusterId, E> {
                value
                    .parse()
                    .map(ClusterId)
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Millis {
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Seconds {
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// A URL that may hold a password. That shows nowhere but through
/// [`SecretUrl::expose`]; displayed, debugged or serialized it is masked.
#[derive(Clone)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    pub fn new(url: impl Into<String>) -> Self {
        Self(SecretString::from(url.into()))
    }

    /// The whole URL, for a driver.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The URL of `database` on the same server.
    #[must_use]
    pub fn with_database(&self, database: &str) -> Self {
        let (url, query) = match self.expose().split_once('?') {
            Some((url, query)) => (url, Some(query)),
            None => (self.expose(), None),
        };
        let start = url.find("://").map_or(0, |at| at + 3);
        let server = url[start..].find('/').map_or(url, |at| &url[..start + at]);
        let mut whole = format!("{server}/{database}");
        if let Some(query) = query {
            whole = format!("{whole}?{query}");
        }
        Self::new(whole)
    }

    /// The database that the URL names, if it names one.
    pub fn database(&self) -> Option<&str> {
        let url = self.expose().split('?').next()?;
        let (_, rest) = url.split_once("://")?;
        rest.split_once('/')
            .map(|(_, name)| name)
            .filter(|name| !name.is_empty())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(self.expose()))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// A secret that is text: masked wherever it is shown.
#[derive(Clone)]
pub struct SecretText(SecretString);

impl SecretText {
    #[must_use]
    pub fn secret(&self) -> SecretString {
        self.0.clone()
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(SecretString::from(text)))
    }
}

/// `text` with the password of a URL in it masked, and whatever follows `?`
/// that may be one.
pub(super) fn mask(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    // The last `@`: a password may hold anything that nobody escaped.
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let mut masked = format!("{scheme}://");
    match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((user, "")) => masked = format!("{masked}{user}@"),
        Some((user, _)) => masked = format!("{masked}{user}:***@"),
        None => {}
    }
    let Some((path, query)) = place.split_once('?') else {
        return masked + place;
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if key.to_ascii_lowercase().contains("pass") => format!("{key}=***"),
        _ => pair.to_owned(),
    });
    format!("{masked}{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_shows() {
        for (url, shown) in [
            ("mysql://u:secret@h:1/d", "mysql://u:***@h:1/d"),
            ("mysql://u:se@cret@h:1/d", "mysql://u:***@h:1/d"),
            ("mysql://u:a:secret@h", "mysql://u:***@h"),
            ("mysql://u@h/d", "mysql://u@h/d"),
            ("mysql://h/d", "mysql://h/d"),
            (
                "postgres://h/d?password=secret&sslmode=off",
                "postgres://h/d?password=***&sslmode=off",
            ),
        ] {
            assert_eq!(SecretUrl::new(url).to_string(), shown);
            assert_eq!(format!("{:?}", SecretUrl::new(url)), shown);
        }
    }

    #[test]
    fn a_password_with_a_question_mark_does_not_show_either() {
        let shown = SecretUrl::new("mysql://u:se?cret@h/d").to_string();
        assert!(!shown.contains("cret"), "{shown}");
    }

    #[test]
    fn the_database_can_be_exchanged() {
        let base = SecretUrl::new("mysql://u:p@h:1");
        assert_eq!(base.database(), None);
        assert_eq!(base.with_database("x").expose(), "mysql://u:p@h:1/x");
        let other = SecretUrl::new("mysql://u:p@h:1/old?ssl-mode=disabled");
        assert_eq!(other.database(), Some("old"));
        assert_eq!(
            other.with_database("x").expose(),
            "mysql://u:p@h:1/x?ssl-mode=disabled"
        );
    }
}
