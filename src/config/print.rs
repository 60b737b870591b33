//! What is in force, for people and for programs; secrets stay masked, because
//! the types that hold them serialize that way.

use super::Config;

impl Config {
    /// As TOML, in the form of the file.
    ///
    /// # Errors
    /// None that a configuration can cause.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that a configuration can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}
