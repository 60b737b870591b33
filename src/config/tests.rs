//! What a person meets who gets something wrong.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::*;
use crate::domain::terms::ObligationTerm;

const GOOD: &str = r#"
[master]
url = "mysql://u:secret@127.0.0.1:3306/master"
[servers.a]
url = "mysql://u:secret@127.0.0.1:3306"
[postgres]
url = "postgres://u:secret@127.0.0.1:5432/pm"
"#;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("settlenet-config-{}", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = Folder::new();
    let file = folder.write("settlenet.toml", text);
    from(&file, environment)
}

fn from(file: &Path, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = environment
        .iter()
        .map(|(k, v)| (OsString::from(k), OsString::from(v)));
    Config::from_sources(Some(file), environment)
}

/// The message for `text` and `environment`, which must be wrong.
fn message(text: &str, environment: &[(&str, &str)]) -> String {
    load(text, environment).unwrap_err().to_string()
}

#[test]
fn defaults_fill_what_is_not_said() {
    let config = load(GOOD, &[]).unwrap();
    assert_eq!(config.http.body_limit_bytes, 1024 * 1024);
    assert_eq!(config.http.confirm_wait_ms, Millis(2_000));
    assert_eq!(config.saga.max_retries, 5);
    assert_eq!(
        config.network.terms.send_to_client,
        ObligationTerm::CounterpartyOwes
    );
}

#[test]
fn the_environment_wins_and_takes_the_type_of_the_key() {
    let config = load(
        GOOD,
        &[
            ("SETTLENET_HTTP__LISTEN", "127.0.0.1:9"),
            ("SETTLENET_SAGA__MAX_RETRIES", "7"),
            ("SETTLENET_AUTH__ISSUER", "12345"),
            (
                "SETTLENET_TIGERBEETLE__ADDRESSES",
                "127.0.0.1:1, 127.0.0.1:2",
            ),
            (
                "SETTLENET_TIGERBEETLE__CLUSTER_ID",
                "340282366920938463463374607431768211454",
            ),
            ("SETTLENET_NETWORK__TERMS__SEND", "none"),
            ("SETTLENET_SERVERS__B__URL", "mysql://u@h"),
            ("SETTLENET_AUTH__OUTSIDE__ISSUER", "https://issuer.example"),
            ("SETTLENET_AUTH__OUTSIDE__JWKS", "/etc/jwks.json"),
            ("SETTLENET_LOG__FORMAT", "json"),
            // Not keys of the configuration.
            ("SETTLENET_CONFIG", "x"),
            ("SETTLENET_FAILPOINTS", "x"),
        ],
    )
    .unwrap();
    assert_eq!(config.http.listen.port(), 9);
    assert_eq!(config.saga.max_retries, 7);
    assert_eq!(config.auth.issuer, "12345");
    assert_eq!(config.tigerbeetle.addresses.len(), 2);
    assert_eq!(config.tigerbeetle.cluster_id.0, u128::MAX - 1);
    assert_eq!(config.network.terms.send, ObligationTerm::None);
    assert_eq!(config.servers["b"].url.expose(), "mysql://u@h");
    assert_eq!(config.auth.outside.unwrap().jwks.expose(), "/etc/jwks.json");
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn a_wrong_value_names_key_finding_place_and_what_is_allowed() {
    let wrong_type = format!("{GOOD}\n[http]\nbody_limit_bytes = \"many\"\n");
    let said = message(&wrong_type, &[]);
    assert!(
        said.starts_with("http.body_limit_bytes: found \"many\" in "),
        "{said}"
    );
    assert!(
        said.ends_with("settlenet.toml; allowed: a whole number, not negative"),
        "{said}"
    );

    let said = message(GOOD, &[("SETTLENET_POOLS__MAX_POOLS", "-1")]);
    assert_eq!(
        said,
        "pools.max_pools: found \"-1\" in SETTLENET_POOLS__MAX_POOLS; \
         allowed: a whole number, not negative"
    );
    let said = message(GOOD, &[("SETTLENET_AUTH__ACCESS_TTL_S", "901")]);
    assert_eq!(said, "auth.access_ttl_s: found 901; allowed: 10 to 900");
    let said = message(GOOD, &[("SETTLENET_NETWORK__TERMS__SEND", "both")]);
    assert!(
        said.ends_with("allowed: one of author_owes, counterparty_owes, none"),
        "{said}"
    );
    let said = message(GOOD, &[("SETTLENET_HTTP__LISTEN", "8080")]);
    assert!(
        said.starts_with("http.listen: found \"8080\" in SETTLENET_HTTP__LISTEN"),
        "{said}"
    );
    let said = message(GOOD, &[("SETTLENET_LOG__LEVEL", "a=b=c")]);
    assert!(said.starts_with("log.level: found"), "{said}");
    let said = message("master = 1", &[]);
    assert!(
        said.starts_with("master: found 1 in ") && said.ends_with("a table"),
        "{said}"
    );
    let said = message("not toml", &[]);
    assert!(said.contains("is not TOML: line 1"), "{said}");
}

#[test]
fn unknown_keys_and_near_misses_are_errors() {
    let said = message(&format!("{GOOD}\n[http]\nlisten_on = \"x\"\n"), &[]);
    assert!(
        said.starts_with("http.listen_on is not a known key in "),
        "{said}"
    );
    assert!(said.contains("body_limit_bytes"), "{said}");
    let said = message(&format!("{GOOD}\n[htp]\nlisten = \"x\"\n"), &[]);
    assert!(said.starts_with("htp is not a known key"), "{said}");
    let said = message(GOOD, &[("SETTLENET_HTTP__LISEN", "x")]);
    assert!(
        said.starts_with("http.lisen is not a known key in SETTLENET_HTTP__LISEN"),
        "{said}"
    );
    let said = message(GOOD, &[("SETTLENET_HTTP_LISTEN", "x")]);
    assert!(
        said.ends_with("two underscores: SETTLENET_HTTP__LISTEN?"),
        "{said}"
    );
    let said = message(GOOD, &[("SETTLENET_HTTP__LISTEN__PORT", "x")]);
    assert!(said.contains("SETTLENET_HTTP__LISTEN__PORT"), "{said}");
}

#[test]
fn what_is_missing_is_named_with_its_variable() {
    let said = message(
        "[servers.a]\nurl = \"mysql://h\"",
        &[("SETTLENET_MASTER__MAX_CONNECTIONS", "1")],
    );
    assert!(said.starts_with("master.url is missing"), "{said}");
    assert!(said.contains("SETTLENET_MASTER__URL"), "{said}");
    let without = Config::from_sources(None, []).unwrap_err().to_string();
    assert!(without.starts_with("master.url is missing"), "{without}");
}

#[test]
fn secrets_come_from_files_beside_the_one_that_names_them() {
    let folder = Folder::new();
    folder.write("secret", "mysql://u:from_file@h/master\n");
    let text = GOOD.replace(
        "url = \"mysql://u:secret@127.0.0.1:3306/master\"",
        "url_file = \"secret\"",
    );
    let file = folder.write(
        "settlenet.toml",
        &format!("{text}\n[auth]\nsigning_key_file = \"key.pem\"\n"),
    );
    let config = from(&file, &[]).unwrap();
    assert_eq!(config.master.url.expose(), "mysql://u:from_file@h/master");
    assert_eq!(
        config.auth.signing_key_file.unwrap(),
        folder.0.join("key.pem")
    );

    let both = from(&file, &[("SETTLENET_MASTER__URL", "mysql://h/d")]).unwrap_err();
    assert!(
        both.to_string()
            .starts_with("master.url and master.url_file are both set"),
        "{both}"
    );
    let elsewhere = folder.0.join("secret");
    let variables = [(
        "SETTLENET_SERVERS__A__URL_FILE",
        elsewhere.to_str().unwrap(),
    )];
    assert!(
        from(&file, &variables).is_err(),
        "servers.a has its url already"
    );
}

#[test]
fn no_secret_shows_in_what_is_printed_or_said() {
    let config = load(
        GOOD,
        &[
            ("SETTLENET_AUTH__OUTSIDE__ISSUER", "issuer"),
            (
                "SETTLENET_AUTH__OUTSIDE__JWKS",
                "https://u:secret@issuer/jwks",
            ),
        ],
    )
    .unwrap();
    for text in [
        config.to_toml().unwrap(),
        config.to_json().unwrap(),
        format!("{config:?}"),
    ] {
        assert!(text.contains("***") && !text.contains("secret"), "{text}");
    }
    for (name, value) in [
        ("SETTLENET_MASTER__URL", "mysql://u:secret@h"),
        ("SETTLENET_MASTER__URL", "mysql://u:secret@h:port/d"),
        ("SETTLENET_SERVERS__A__URL", "postgres://u:secret@h"),
        ("SETTLENET_HTTP__LISTEN", "mysql://u:secret@h"),
    ] {
        let said = message(GOOD, &[(name, value)]);
        assert!(!said.contains("secret"), "{said}");
    }
    let cut = GOOD.replace("/master\"", "/master");
    let said = message(&cut, &[]);
    assert!(
        said.contains("is not TOML") && !said.contains("secret"),
        "{said}"
    );
}

#[test]
fn the_printed_form_can_be_read_again() {
    let config = load(GOOD, &[]).unwrap();
    let again = load(&config.to_toml().unwrap(), &[]).unwrap();
    assert_eq!(config.to_json().unwrap(), again.to_json().unwrap());
}

/// The example that a newcomer copies.
#[test]
fn the_example_is_right_and_says_the_defaults() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("settlenet.example.toml");
    let from_example = from(&example, &[]).unwrap();
    let text = std::fs::read_to_string(&example).unwrap();
    // With every commented key in force it must be right too, and the same.
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("#= ") {
            Some(key) => format!("{key}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let all = load(&uncommented, &[]).unwrap();
    assert_eq!(all.to_json().unwrap(), from_example.to_json().unwrap());
}

/// Every key of a value, levels parted by dots; of a list its own alone.
fn keys(value: &serde_json::Value, at: &str, found: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                keys(member, &at, found);
            }
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

#[test]
fn the_example_has_every_key() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("settlenet.example.toml");
    let text = std::fs::read_to_string(&example).unwrap();
    let in_force = text.lines().map(|line| {
        let key = line
            .strip_prefix("#= ")
            .or_else(|| line.strip_prefix("#- "));
        key.unwrap_or(line)
    });
    let in_force = in_force.collect::<Vec<_>>().join("\n");
    let config: serde_json::Value =
        serde_json::from_str(&load(&in_force, &[]).unwrap().to_json().unwrap()).unwrap();
    let written: toml::Value = toml::from_str(&in_force).unwrap();
    let written = serde_json::to_value(written).unwrap();
    let (mut there, mut all) = Default::default();
    keys(&written, "", &mut there);
    keys(&config, "", &mut all);
    // A provider has the keys of all: each stands in the part of one that uses it.
    let anywhere = |key: &str| {
        let Some((provider, name)) = key
            .strip_prefix("payments.")
            .and_then(|rest| rest.split_once('.'))
        else {
            return there.contains(key);
        };
        assert!(["ipps", "wise", "qp"].contains(&provider), "{key}");
        ["ipps", "wise", "qp"]
            .iter()
            .any(|part| there.contains(&format!("payments.{part}.{name}")))
    };
    let elsewhere = [
        "auth.outside",
        "auth.signing_key",
        "checkpoints.signing_key",
    ];
    let missing: Vec<&String> = all
        .iter()
        .filter(|key| !elsewhere.iter().any(|part| key.starts_with(part)))
        .filter(|key| !anywhere(key))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
