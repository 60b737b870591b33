//! Names of hosts under which a dashboard is served, as DNS has them.

/// The longest name, in bytes (RFC 1035, 2.3.4, as text without the root's dot).
pub const MAX_HOST: usize = 253;
/// The longest label between two dots, in bytes.
const MAX_LABEL: usize = 63;

/// A full name of a host: two or more labels of a-z, 0-9 and `-`. Other scripts come as punycode
/// (`xn--…`), as browsers send them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Why a text names no host here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is a full host name such as desk.example: labels of 1 to {MAX_LABEL} letters, digits and '-' \
     between dots, {MAX_HOST} characters at most; no port, no address of numbers; other scripts as \
     punycode (xn--…)"
)]
pub struct NoHostName;

impl HostName {
    /// Reads a name; upper case is taken as lower.
    ///
    /// # Errors
    /// [`NoHostName`].
    pub fn parse(text: &str) -> Result<Self, NoHostName> {
        let name = text.to_ascii_lowercase();
        let labels: Vec<&str> = name.split('.').collect();
        // What ends in a number is an address to a browser (WHATWG URL, 4.5), whatever precedes.
        let ends_in_a_number = labels.last().is_none_or(|last| {
            last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x")
        });
        let fits = name.len() <= MAX_HOST && labels.len() >= 2 && !ends_in_a_number;
        if fits && labels.iter().all(|label| is_label(label)) {
            Ok(Self(name))
        } else {
            Err(NoHostName)
        }
    }

    /// The name in a `Host` header, where it has one: without its port, and without the dot that
    /// may end a full name there.
    #[must_use]
    pub fn of_header(header: &str) -> Option<Self> {
        let host = match header.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            Some(_) => return None,
            None => header,
        };
        Self::parse(host.strip_suffix('.').unwrap_or(host)).ok()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// RFC 1123, 2.1: letters, digits and hyphens, none of these at either end.
fn is_label(label: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_LABEL).contains(&label.len())
        && label.bytes().all(plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        let name = HostName::parse("Desk.Example").unwrap();
        assert_eq!(name.as_str(), "desk.example");
        let label = "x".repeat(MAX_LABEL);
        let long = [label.as_str(); 4].join(".");
        assert_eq!(long.len(), 255);
        for good in [
            "a.b",
            "xn--e1afmkfd.xn--p1ai",
            "1.example",
            "a-b.c-d.example",
            &long[2..],
        ] {
            assert!(HostName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "example",
            "localhost",
            "desk.example.",
            ".desk.example",
            "desk..example",
            "desk.example:443",
            "https://desk.example",
            "desk.example/x",
            "user@desk.example",
            "-a.example",
            "a-.example",
            "a_b.example",
            "a b.example",
            " desk.example",
            "обмен.рф",
            "127.0.0.1",
            "1.2",
            "desk.1",
            "desk.0x7f",
            "[::1]",
            "*.example",
            &format!("{label}x.example"),
            &long,
        ] {
            assert_eq!(HostName::parse(bad), Err(NoHostName), "{bad:?}");
        }
    }

    #[test]
    fn a_header_may_have_a_port_and_a_dot_at_the_end() {
        let desk = HostName::parse("desk.example").ok();
        for header in [
            "desk.example",
            "DESK.example:8443",
            "desk.example.",
            "desk.example.:80",
            "desk.example:",
        ] {
            assert_eq!(HostName::of_header(header), desk, "{header}");
        }
        for header in [
            "",
            "127.0.0.1:8080",
            "[::1]:8080",
            "localhost:8080",
            "desk.example:x",
            "a:1:2",
        ] {
            assert_eq!(HostName::of_header(header), None, "{header}");
        }
    }
}
