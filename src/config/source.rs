//! The tree of raw values, each with where it came from, and its way into the
//! typed structure. Text from the environment has no type of its own: it takes
//! the one that the structure asks for, so a password may look like a number.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{ConfigError, Fault, Place};
use super::values::mask;

const PREFIX: &str = "SETTLENET_";
const SECTIONS: [&str; 13] = [
    "http",
    "master",
    "servers",
    "pools",
    "books",
    "moves",
    "postgres",
    "tigerbeetle",
    "auth",
    "saga",
    "network",
    "payments",
    "log",
];

/// The environment variable that sets `key`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    root: BTreeMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    Table(BTreeMap<String, Node>),
    Leaf { value: Value, place: Place },
}

#[derive(Debug)]
enum Value {
    Toml(toml::Value),
    Text(String),
}

impl Tree {
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        let table: toml::Table =
            text.parse()
                .map_err(|e: toml::de::Error| ConfigError::Syntax {
                    path: path.into(),
                    // The whole message quotes the line, which may hold a password.
                    message: match e.span() {
                        Some(span) => {
                            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                            format!("line {line}: {}", e.message())
                        }
                        None => e.message().to_owned(),
                    },
                })?;
        Ok(Self {
            root: from_toml(table, &Place::File(path.into())),
        })
    }

    /// Lays the variables `SETTLENET_SECTION__KEY` over what is there.
    pub fn overlay(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(), ConfigError> {
        for (name, value) in environment {
            let Some(name) = name.to_str() else { continue };
            let Some(key) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let wrong = |problem: String| ConfigError::Variable {
                name: name.to_owned(),
                problem,
            };
            if !key.contains("__") {
                // Not ours (SETTLENET_CONFIG and the like), or one underscore short?
                let key = key.to_lowercase();
                let section = SECTIONS
                    .iter()
                    .find(|s| key.strip_prefix(**s).is_some_and(|r| r.starts_with('_')));
                if let Some(section) = section {
                    let meant = variable(&format!("{section}.{}", &key[section.len() + 1..]));
                    return Err(wrong(format!(
                        "levels are parted by two underscores: {meant}?"
                    )));
                }
                continue;
            }
            let value = value
                .into_string()
                .map_err(|_| wrong("its value is not UTF-8".into()))?;
            let keys: Vec<String> = key.split("__").map(str::to_lowercase).collect();
            let leaf = Node::Leaf {
                value: Value::Text(value),
                place: Place::Variable(name.to_owned()),
            };
            put(&mut self.root, &keys, leaf).map_err(wrong)?;
        }
        Ok(())
    }

    /// Replaces `url_file`, and a provider's `token_file`, by what the file holds.
    pub fn resolve_secret_files(&mut self) -> Result<(), ConfigError> {
        for section in ["master", "postgres"] {
            if let Some(Node::Table(table)) = self.root.get_mut(section) {
                resolve_file(section, "url", table)?;
            }
        }
        if let Some(Node::Table(servers)) = self.root.get_mut("servers") {
            for (name, server) in servers {
                if let Node::Table(table) = server {
                    resolve_file(&format!("servers.{name}"), "url", table)?;
                }
            }
        }
        if let Some(Node::Table(payments)) = self.root.get_mut("payments") {
            for (name, provider) in payments {
                if let Node::Table(table) = provider {
                    resolve_file(&format!("payments.{name}"), "token", table)?;
                }
            }
        }
        Ok(())
    }

    /// Makes file names in a file relative to that file's folder.
    pub fn resolve_paths(&mut self) {
        for section in ["auth", "checkpoints"] {
            let Some(Node::Table(table)) = self.root.get_mut(section) else {
                continue;
            };
            if let Some(Node::Leaf {
                value: Value::Toml(toml::Value::String(text)),
                place,
            }) = table.get_mut("signing_key_file")
            {
                *text = beside(place, text).to_string_lossy().into_owned();
            }
        }
    }

    /// Adds the sections that have keys without a default, so that a missing one
    /// is told by the key that it lacks.
    pub fn add_required_sections(&mut self) {
        for section in ["master", "servers", "postgres"] {
            self.root
                .entry(section.to_owned())
                .or_insert_with(|| Node::Table(BTreeMap::new()));
        }
    }

    pub fn deserialize<'de, T: Deserialize<'de>>(self) -> Result<T, ConfigError> {
        T::deserialize(Node::Table(self.root)).map_err(ConfigError::from)
    }
}

fn from_toml(table: toml::Table, place: &Place) -> BTreeMap<String, Node> {
    let node = |value| match value {
        toml::Value::Table(inner) => Node::Table(from_toml(inner, place)),
        value => Node::Leaf {
            value: Value::Toml(value),
            place: place.clone(),
        },
    };
    table
        .into_iter()
        .map(|(key, value)| (key, node(value)))
        .collect()
}

fn put(table: &mut BTreeMap<String, Node>, keys: &[String], leaf: Node) -> Result<(), String> {
    match keys {
        [] => Err("it names no key".into()),
        [key, ..] if key.is_empty() => Err("it has an empty level".into()),
        [key] => {
            table.insert(key.clone(), leaf);
            Ok(())
        }
        [key, rest @ ..] => {
            let inner = table
                .entry(key.clone())
                .or_insert_with(|| Node::Table(BTreeMap::new()));
            match inner {
                Node::Table(inner) => put(inner, rest, leaf),
                Node::Leaf { .. } => Err(format!("{key} is a value, not a section")),
            }
        }
    }
}

/// Where a table comes from: where its first value does.
fn first_place(table: &BTreeMap<String, Node>) -> Option<Place> {
    table.values().find_map(|node| match node {
        Node::Leaf { place, .. } => Some(place.clone()),
        Node::Table(inner) => first_place(inner),
    })
}

/// A file's name as its mention means it.
fn beside(place: &Place, name: &str) -> PathBuf {
    match place {
        Place::File(file) => file.parent().unwrap_or(Path::new("")).join(name),
        Place::Variable(_) => name.into(),
    }
}

fn resolve_file(
    section: &str,
    key: &str,
    table: &mut BTreeMap<String, Node>,
) -> Result<(), ConfigError> {
    let (name, place) = match table.remove(&format!("{key}_file")) {
        None => return Ok(()),
        Some(Node::Leaf {
            value: Value::Text(name) | Value::Toml(toml::Value::String(name)),
            place,
        }) => (name, place),
        Some(_) => {
            return Err(ConfigError::Wrong {
                key: format!("{section}.{key}_file"),
                found: "something else".into(),
                place: None,
                allowed: "the name of a file".into(),
            });
        }
    };
    let path = beside(&place, &name);
    let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read {
        path: path.clone(),
        source,
    })?;
    let held = Node::Leaf {
        value: Value::Text(text.trim().to_owned()),
        place: Place::File(path),
    };
    match table.insert(key.to_owned(), held) {
        None => Ok(()),
        Some(_) => Err(ConfigError::Both {
            key: format!("{section}.{key}"),
        }),
    }
}

impl Value {
    /// For messages: a URL's password must not show there either.
    fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Toml(toml::Value::String(text)) => {
                format!("{:?}", mask(text))
            }
            Self::Toml(value) => value.to_string(),
        }
    }
}

/// Numbers and booleans out of text, by the type that is asked for.
macro_rules! parse_text {
    ($($method:ident $visit:ident $kind:ty, $allowed:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            match self {
                Node::Leaf { value: Value::Text(text), place } => text
                    .trim()
                    .parse::<$kind>()
                    .map_err(|_| serde::de::Error::custom($allowed))
                    .and_then(|parsed| visitor.$visit::<Fault>(parsed))
                    .map_err(|fault| fault.at(&place, &Value::Text(text).shown())),
                other => other.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let (value, place) = match self {
            Self::Table(table) => {
                let place = first_place(&table);
                let told = visitor.visit_map(Entries {
                    rest: table.into_iter(),
                    next: None,
                });
                return told.map_err(|fault: Fault| match place {
                    Some(place) => fault.at(&place, "a table"),
                    None => fault,
                });
            }
            Self::Leaf { value, place } => (value, place),
        };
        let shown = value.shown();
        match value {
            Value::Text(text) | Value::Toml(toml::Value::String(text)) => {
                visitor.visit_string(text)
            }
            Value::Toml(toml::Value::Integer(number)) => visitor.visit_i64(number),
            Value::Toml(toml::Value::Float(number)) => visitor.visit_f64(number),
            Value::Toml(toml::Value::Boolean(yes)) => visitor.visit_bool(yes),
            Value::Toml(toml::Value::Datetime(time)) => visitor.visit_string(time.to_string()),
            Value::Toml(toml::Value::Array(values)) => {
                let items = values.into_iter().map(Value::Toml).collect();
                visitor.visit_seq(Items::new(items, &place))
            }
            Value::Toml(toml::Value::Table(table)) => {
                let table = from_toml(table, &place);
                visitor.visit_map(Entries {
                    rest: table.into_iter(),
                    next: None,
                })
            }
        }
        .map_err(|fault: Fault| fault.at(&place, &shown))
    }

    parse_text! {
        deserialize_bool visit_bool bool, "true or false";
        deserialize_i8 visit_i8 i8, "a whole number";
        deserialize_i16 visit_i16 i16, "a whole number";
        deserialize_i32 visit_i32 i32, "a whole number";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_u8 visit_u8 u8, "a whole number, not negative";
        deserialize_u16 visit_u16 u16, "a whole number, not negative";
        deserialize_u32 visit_u32 u32, "a whole number, not negative";
        deserialize_u64 visit_u64 u64, "a whole number, not negative";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
    }

    /// A list in the environment is parted by commas.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self {
            Self::Leaf {
                value: Value::Text(text),
                place,
            } => {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                let items = items.map(|item| Value::Text(item.to_owned())).collect();
                visitor.visit_seq(Items::new(items, &place))
            }
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self {
            Self::Leaf {
                value: Value::Text(text) | Value::Toml(toml::Value::String(text)),
                place,
            } => {
                let shown = format!("{text:?}");
                let name: StringDeserializer<Fault> = text.into_deserializer();
                visitor
                    .visit_enum(name)
                    .map_err(|fault| fault.at(&place, &shown))
            }
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}

/// A table on its way into a structure; names the key in what goes wrong.
struct Entries {
    rest: std::collections::btree_map::IntoIter<String, Node>,
    next: Option<(String, Node)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some((key, node)) = self.rest.next() else {
            return Ok(None);
        };
        let place = match &node {
            Node::Leaf { place, .. } => Some(place.clone()),
            Node::Table(_) => None,
        };
        let name: StringDeserializer<Fault> = key.clone().into_deserializer();
        self.next = Some((key, node));
        seed.deserialize(name)
            .map(Some)
            .map_err(|fault| match place {
                Some(place) => fault.at(&place, ""),
                None => fault,
            })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some((key, node)) = self.next.take() else {
            return Err(serde::de::Error::custom("a value after its key"));
        };
        seed.deserialize(node).map_err(|fault| fault.within(&key))
    }
}

struct Items {
    rest: std::vec::IntoIter<Value>,
    place: Place,
}

impl Items {
    fn new(items: Vec<Value>, place: &Place) -> Self {
        Self {
            rest: items.into_iter(),
            place: place.clone(),
        }
    }
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some(value) = self.rest.next() else {
            return Ok(None);
        };
        seed.deserialize(Node::Leaf {
            value,
            place: self.place.clone(),
        })
        .map(Some)
    }
}
