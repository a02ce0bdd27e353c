//! The cache key: which token kubectl asks for, read from the plugin's command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Key of a cached token: what the token is for, each part in its canonical spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKey<'a> {
    /// The broker: lower-case host, no default port, no slash at the end.
    pub broker: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
    /// The workspace's UUID, lower case, with hyphens.
    pub workspace: &'a str,
    /// Name of the person's account at the broker, if it has one: letters, digits, `-` and `_`.
    pub profile: Option<&'a str>,
    /// Whether the token is for the broker's gateway and not for the API server itself.
    pub gateway: bool,
}

impl<'a> CacheKey<'a> {
    /// Parses the one command line that kubectl uses: the program, `get-token`, `--broker=…`,
    /// `--cluster=…` and `--workspace=…`, and optionally `--profile=…` or `--mode=gateway`, in any
    /// order and canonically spelled as in the kubeconfig. Returns [`None`] for every other command
    /// line, whatever it means.
    pub fn from_args(args: &'a [OsString]) -> Option<Self> {
        let mut words = args.iter().skip(1).map(|word| word.to_str());
        if words.next()?? != "get-token" {
            return None;
        }
        let (mut broker, mut cluster, mut workspace) = (None, None, None);
        let (mut profile, mut mode) = (None, None);
        for word in words {
            let word = word?;
            let at = word.bytes().position(|byte| byte == b'=')?;
            let (flag, value) = (&word[..at], &word[at + 1..]);
            let slot = match flag {
                "--broker" => &mut broker,
                "--cluster" => &mut cluster,
                "--workspace" => &mut workspace,
                "--profile" => &mut profile,
                "--mode" => &mut mode,
                _ => return None,
            };
            if value.is_empty() || slot.replace(value).is_some() {
                return None;
            }
        }
        let gateway = match mode {
            None => false,
            Some("gateway") => true,
            Some(_) => return None,
        };
        let key =
            Self { broker: broker?, cluster: cluster?, workspace: workspace?, profile, gateway };
        (is_canonical(key.broker.as_bytes())
            && is_uuid(key.workspace.as_bytes())
            && key.profile.is_none_or(is_name))
        .then_some(key)
    }

    /// SHA-256, in hex, of the canonical JSON of this key; names every file about this token. It
    /// depends on nothing else, neither on flags nor on their order.
    pub fn digest(&self) -> String {
        let parts = [self.broker, self.cluster, self.workspace];
        match (self.profile, self.gateway) {
            (None, false) => hash(&parts),
            (Some(profile), false) => hash(&[&parts[..], &[profile]].concat()),
            // An account's name is never empty, so no two keys are made of the same parts.
            (profile, true) => {
                hash(&[&parts[..], &[profile.unwrap_or_default(), "gateway"]].concat())
            }
        }
    }

    /// Path of the token's file in the folder of cached tokens.
    pub fn file(&self, folder: &Path) -> PathBuf {
        folder.join(self.digest() + ".json")
    }
}

/// SHA-256, in hex, of a JSON array of strings without spaces.
pub fn hash(parts: &[&str]) -> String {
    // Serializing a list of strings cannot fail.
    let canonical = serde_json::to_vec(parts).unwrap_or_default();
    hex(&Sha256::digest(canonical))
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        hex.push(char::from(HEX_DIGITS[usize::from(byte >> 4)]));
        hex.push(char::from(HEX_DIGITS[usize::from(byte & 15)]));
    }
    hex
}

/// Whether a profile can have this name. Accounts without a name are named by the broker's address.
fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn is_uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
        })
}

/// Whether a text is a canonical broker URL of the plain kind that nearly every kubeconfig has. A
/// full URL parser comes to the same result, but brings the tables of the Unicode standard with it.
fn is_canonical(text: &[u8]) -> bool {
    let (rest, default_port, secure) = if let Some(rest) = text.strip_prefix(b"https://") {
        (rest, 443, true)
    } else if let Some(rest) = text.strip_prefix(b"http://") {
        (rest, 80, false)
    } else {
        return false;
    };
    let position = |mark: u8, text: &[u8]| text.iter().position(|byte| *byte == mark);
    let (authority, path) = rest.split_at(position(b'/', rest).unwrap_or(rest.len()));
    let (host, port) = match position(b':', authority) {
        Some(colon) => (&authority[..colon], Some(&authority[colon + 1..])),
        None => (authority, None),
    };
    let plain_port = port.is_none_or(|port| is_port(port, default_port));
    let plain_host = if secure {
        host.split(|byte| *byte == b'.').all(is_label) || is_ipv4(host)
    } else {
        host == b"127.0.0.1" || host == b"localhost"
    };
    let plain_path = path.is_empty()
        || path[1..].split(|byte| *byte == b'/').all(|segment| {
            !segment.is_empty()
                && segment.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        });
    plain_host && plain_port && plain_path
}

/// Whether this is a plain label of a host name. A label that begins with a digit may belong to an
/// IPv4 address in one of its unusual spellings; one that begins with `xn--` stands for other
/// letters.
fn is_label(label: &[u8]) -> bool {
    label.first().is_some_and(u8::is_ascii_lowercase)
        && !label.starts_with(b"xn--")
        && label
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// Whether this is an IPv4 address in the one spelling that a URL keeps: four numbers up to 255
/// without leading zeros.
fn is_ipv4(host: &[u8]) -> bool {
    let mut parts = 0;
    host.split(|byte| *byte == b'.').all(|part| {
        parts += 1;
        let digits = (1..=3).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
        // Three digits at most, so the value cannot overflow.
        let value = || part.iter().fold(0, |value, byte| value * 10 + u32::from(byte & 15));
        digits && value() <= 255 && (part.len() == 1 || part[0] != b'0')
    }) && parts == 4
}

/// Whether this is a port in its shortest spelling and not the scheme's default.
fn is_port(text: &[u8], default: u32) -> bool {
    let digits = !text.is_empty() && text.len() <= 5 && text[0] != b'0';
    let value = text.iter().try_fold(0_u32, |value, byte| {
        byte.is_ascii_digit().then(|| value * 10 + u32::from(byte - b'0'))
    });
    digits && value.is_some_and(|port| port != default && port <= 65535)
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    const ID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

    fn args(line: &str) -> Vec<OsString> {
        line.replace("ID", ID).split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_command_line_of_a_kubeconfig_is_parsed() {
        let line = args("x get-token --cluster=c=d --workspace=ID --broker=https://b.example");
        let key = CacheKey::from_args(&line).unwrap();
        let expected = CacheKey {
            broker: "https://b.example",
            cluster: "c=d",
            workspace: ID,
            profile: None,
            gateway: false,
        };
        assert_eq!(key, expected);
    }

    #[test]
    fn a_token_for_the_gateway_has_a_key_of_its_own() {
        let line = "x get-token --cluster=c --workspace=ID --broker=https://b.example";
        let keys = ["", " --mode=gateway", " --profile=p", " --profile=p --mode=gateway"]
            .map(|more| CacheKey::from_args(&args(&format!("{line}{more}"))).unwrap().digest());
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
        assert_eq!(CacheKey::from_args(&args(&format!("{line} --mode=exec"))), None);
    }

    #[test]
    fn unusual_command_lines_are_misses() {
        for line in [
            "x",
            "x login",
            "x get-token",
            "x get-token --help",
            "x get-token --broker=https://b --cluster=c",
            "x get-token --broker https://b --cluster=c --workspace=ID",
            "x get-token --broker=https://b --cluster=c --cluster=d --workspace=ID",
            "x get-token --broker=https://b --cluster= --workspace=ID",
            "x get-token --broker=https://B --cluster=c --workspace=ID",
            "x get-token --broker=https://b --cluster=c --workspace=IDA",
            "x get-token --broker=https://b --cluster=c --workspace=ID --force",
            "x get-token --broker=https://b --cluster=c --workspace=ID --profile=",
            "x get-token --broker=https://b --cluster=c --workspace=ID --profile=a/b",
            "x get-token --broker=https://b --cluster=c --workspace=ID --profile=a --profile=a",
        ] {
            assert_eq!(CacheKey::from_args(&args(line)), None, "{line}");
        }
        let upper = args(&format!(
            "x get-token --broker=https://b --cluster=c --workspace={}",
            ID.to_uppercase()
        ));
        assert_eq!(CacheKey::from_args(&upper), None);
    }

    #[test]
    fn the_digest_is_stable() {
        let broker = "https://broker.example.com";
        let key = CacheKey {
            broker,
            cluster: "internal-cluster",
            workspace: ID,
            profile: None,
            gateway: false,
        };
        assert_eq!(
            key.digest(),
            "4f5680bc9990d4ffbcf03d58235fc92d0fbc21345c4620442051d51e371d03d9"
        );
        let named = CacheKey { profile: Some("work"), ..key };
        assert_eq!(named.digest(), hash(&[broker, "internal-cluster", ID, "work"]));
    }

    #[test]
    fn usual_urls_are_canonical() {
        for text in [
            "https://broker.example.com",
            "http://127.0.0.1:8080",
            "https://b:8443/t/1",
            "https://10.0.0.255:1",
        ] {
            assert!(is_canonical(text.as_bytes()), "{text}");
        }
        for text in [
            "https://b:443",
            "http://127.0.0.1:80",
            "https://1.2",
            "https://1.2.3.256",
            "https://1.2.3.04",
            "https://1.2.3.4.5",
            "https://1.2.3.99999999999",
            "https://1.2.3.",
            "https://b/",
            "http://b",
            "https://",
            "https://b:0",
            "https://b:99999",
            "https://xn--a",
            "ftp://b",
            "https://B",
        ] {
            assert!(!is_canonical(text.as_bytes()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn canonical_urls_agree_with_a_full_parser(
            text in "https?://(127.0.0.1|localhost|[0-9]{1,3}(\\.[0-9]{1,3}){3}|[a-z0-9.-]{1,12})(:[0-9]{1,5})?(/[a-zA-Z0-9.-]{0,4}){0,3}"
        ) {
            if is_canonical(text.as_bytes()) {
                let url = Url::parse(&text).unwrap();
                proptest::prop_assert_eq!(url.as_str().trim_end_matches('/'), &text);
            }
        }
    }
}
