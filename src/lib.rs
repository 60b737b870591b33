//! settlenet: a server for a network of brokers that settle with each other.
//!
//! Imports run one way: `http, workers, cli → services → {domain, stores}`, `stores → domain`,
//! and `domain` imports nothing of ours. `runtime` (clock, entropy, failpoints) is what every
//! layer but the domain may be handed.
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod config;
pub mod domain;
pub mod http;
pub mod psp;
pub mod runtime;
pub mod services;
pub mod stack;
pub mod stores;
pub mod workers;

/// The one `TigerBeetle` release that the client library speaks.
pub const TIGERBEETLE_RELEASE: &str = "0.16.78";

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// What of ours each layer may name besides itself; `route` is a macro of `http`.
    const MAY_NAME: [(&str, &str); 7] = [
        ("domain", ""),
        ("stores", "domain config runtime"),
        ("psp", "domain runtime"),
        ("services", "domain stores psp config runtime"),
        ("http", "domain services app runtime route"),
        ("workers", "domain services app config runtime"),
        (
            "cli",
            "domain services http workers app config runtime stack psp TIGERBEETLE_RELEASE",
        ),
    ];

    #[test]
    fn imports_run_one_way() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        // What is measured are the stores and the ledger themselves.
        let bench = src.join("cli/bench");
        let mut wrong = Vec::new();
        for (layer, may_name) in MAY_NAME {
            for file in files(&src.join(layer)) {
                let text = std::fs::read_to_string(&file).unwrap();
                let code = |line: &&str| !line.trim_start().starts_with("//");
                for name in text.lines().filter(code).flat_map(named) {
                    let may = name == layer
                        || may_name.split_whitespace().any(|may| may == name)
                        || (name == "stores" && file.starts_with(&bench));
                    if !may {
                        wrong.push(format!("{} names {name:?}", file.display()));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// The modules of the crate's root that a line names.
    fn named(line: &str) -> impl Iterator<Item = &str> {
        let after = |path: &'static str| line.split(path).skip(1).map(first_word);
        let is_layer = |name: &&str| MAY_NAME.iter().any(|(layer, _)| layer == name);
        // From a layer's top module the root is `super`.
        after("crate::").chain(after("super::").filter(is_layer))
    }

    fn first_word(text: &str) -> &str {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        &text[..end.unwrap_or(text.len())]
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files(&path));
            } else {
                found.push(path);
            }
        }
        found
    }
}
