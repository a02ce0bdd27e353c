//! A machine instead of a person: an OIDC token of a CI provider or of a cluster takes the place of
//! a sign-in (RFC 8693). Nothing here ever asks anybody.

use std::{collections::BTreeMap, fs::File, io::Read, path::PathBuf};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use tenant_cached_token::{ID_TOKEN_ENV, ID_TOKEN_FILE_ENV, hash};

use crate::{cli::WORKSPACE_ENV, error::Error, store::Choice, world::Env};

/// Longest token, in bytes: above what providers give, and what a header may hold.
const LONGEST: u64 = 64 * 1024;
/// Longest name of a workspace, in bytes: that of a namespace.
const LONGEST_WORKSPACE: usize = 63;
/// What the names of machines in the cache begin with.
const CACHE_NAME: &str = "machine:";
/// Claims that differ from one token of the same machine to the next.
const PASSING: [&str; 4] = ["exp", "iat", "nbf", "jti"];

/// Where a machine's token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Read each time: whoever writes it replaces it before it ends.
    File(PathBuf),
    /// As old as this process's parent.
    Variable(String),
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine(Source);

impl Machine {
    /// The machine that this is, if it is one. The file comes first, because it can be renewed. A
    /// profile that is named on the command line is a person's.
    pub(crate) fn of(choice: &Choice, env: &Env) -> Result<Option<Self>, Error> {
        if choice.profile.is_some() {
            return Ok(None);
        }
        if let Some(path) = env.get(ID_TOKEN_FILE_ENV) {
            return Ok(Some(Self(Source::File(path.into()))));
        }
        let Some(value) = env.get(ID_TOKEN_ENV) else { return Ok(None) };
        let text = value
            .into_string()
            .map_err(|_| Error::usage(format!("{ID_TOKEN_ENV} holds no OIDC token: no text")))?;
        Ok(Some(Self(Source::Variable(text))))
    }

    /// The token as it is now.
    pub(crate) fn token(&self) -> Result<IdToken, Error> {
        match &self.0 {
            Source::Variable(text) => IdToken::parse(text)
                .map_err(|why| Error::usage(format!("{ID_TOKEN_ENV} holds no OIDC token: {why}"))),
            Source::File(path) => {
                let mut text = String::new();
                let read = File::open(path)
                    .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
                read.map_err(|error| {
                    Error::file("read the OIDC token in", path, &error)
                        .hint(format!("{ID_TOKEN_FILE_ENV} names the file"))
                })?;
                IdToken::parse(&text).map_err(|why| {
                    Error::other(format!("{} holds no OIDC token: {why}", path.display()))
                        .hint(format!("{ID_TOKEN_FILE_ENV} names the file"))
                })
            }
        }
    }
}

/// The workspace that `TENANT_WORKSPACE` names, by its identifier or its namespace.
pub(crate) fn workspace(env: &Env) -> Result<String, Error> {
    let hint = format!("set {WORKSPACE_ENV} to the workspace's identifier or namespace");
    let Some(name) = env.get(WORKSPACE_ENV) else {
        return Err(Error::usage("no workspace is named for this machine").hint(hint));
    };
    let is_name = |name: &String| {
        name.len() <= LONGEST_WORKSPACE
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.into_string()
        .ok()
        .filter(is_name)
        .ok_or_else(|| Error::usage(format!("{WORKSPACE_ENV} is no workspace")).hint(hint))
}

/// A JSON Web Token (RFC 7519), looked at and not verified: that is the broker's part.
pub(crate) struct IdToken {
    token: SecretString,
    claims: Map<String, Value>,
}

impl IdToken {
    /// Reads a token; the error says what is wrong with it, without it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.len() as u64 > LONGEST {
            return Err("it is larger than 64 KiB");
        }
        let mut parts = text.split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("it is not in three parts");
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !text.bytes().all(plain) {
            return Err("there are characters in it that do not belong there");
        }
        let claims = URL_SAFE_NO_PAD.decode(payload).map_err(|_| "its claims cannot be read")?;
        let claims = serde_json::from_slice(&claims).map_err(|_| "its claims cannot be read")?;
        Ok(Self { token: text.into(), claims })
    }

    /// As it is sent.
    pub(crate) fn secret(&self) -> &str {
        self.token.expose_secret()
    }

    /// Under what the machine's tokens are cached: all that the provider says about it, because any
    /// of it may decide what it gets. Two jobs on one disk never get each other's. The colon keeps it
    /// apart from the names that people give to their accounts.
    pub(crate) fn cache_name(&self) -> String {
        let lasting: BTreeMap<&String, &Value> =
            self.claims.iter().filter(|(name, _)| !PASSING.contains(&name.as_str())).collect();
        // Values that were read from JSON can be written as JSON.
        let text = serde_json::to_string(&lasting).unwrap_or_default();
        format!("{CACHE_NAME}{}", hash(&[&text]))
    }
}

/// Whether a cached token was got by a machine.
pub(crate) fn is_cache_name(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with(CACHE_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::HashMap;

    fn jwt(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn env(variables: &[(&str, &str)]) -> Env {
        let map: HashMap<_, _> =
            variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Env::Fixed(map)
    }

    fn name(claims: &Value) -> String {
        IdToken::parse(&jwt(claims)).unwrap_or_else(|why| panic!("{why}")).cache_name()
    }

    #[test]
    fn the_same_machine_has_the_same_name_and_no_other() {
        let first = name(&json!({"iss": "i", "sub": "s", "repository": "r", "iat": 1, "jti": "a"}));
        let later = name(&json!({"repository": "r", "jti": "b", "sub": "s", "iss": "i", "exp": 9}));
        assert_eq!(first, later);
        for other in [
            json!({"iss": "j", "sub": "s", "repository": "r"}),
            json!({"iss": "i", "sub": "t", "repository": "r"}),
            json!({"iss": "i", "sub": "s", "repository": "q"}),
        ] {
            assert_ne!(first, name(&other));
        }
        assert!(first.starts_with("machine:"));
    }

    #[test]
    fn the_file_comes_first_and_is_read_each_time() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("token");
        let token = jwt(&json!({"sub": "variable"}));
        let both = env(&[(ID_TOKEN_ENV, &token), (ID_TOKEN_FILE_ENV, path.to_str().unwrap())]);
        let machine = Machine::of(&Choice::default(), &both).unwrap().unwrap();
        // There is no way from a file that is not there to the variable.
        assert!(machine.token().err().unwrap().message.contains("cannot read the OIDC token"));
        for subject in ["one", "two"] {
            let token = jwt(&json!({"sub": subject}));
            std::fs::write(&path, format!("{token}\n")).unwrap();
            assert_eq!(machine.token().ok().unwrap().secret(), token);
        }
        let named = Choice { profile: Some("work".to_owned()), ..Choice::default() };
        assert_eq!(Machine::of(&named, &both).unwrap(), None);
        assert_eq!(Machine::of(&Choice::default(), &env(&[])).unwrap(), None);
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        for text in ["", " ", "s3cret", "a.b", "a.b.c.d", "e30.e30 .c", "e30.W10.c", "e30.!.c"] {
            let machine = Machine(Source::Variable(text.to_owned()));
            let error = machine.token().err().unwrap();
            assert!(error.message.contains("holds no OIDC token"), "{text}");
            assert!(!error.message.contains("s3cret"), "{error}");
        }
        let long = jwt(&json!({"sub": "x".repeat(70_000)}));
        assert_eq!(IdToken::parse(&long).err(), Some("it is larger than 64 KiB"));
    }

    #[test]
    fn a_workspace_is_a_name() {
        let read = |value: &str| workspace(&env(&[(WORKSPACE_ENV, value)]));
        assert_eq!(read("tenant-1").unwrap(), "tenant-1");
        for bad in ["", "a b", "a/b", "a\nb", &"x".repeat(64)] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_token_is_a_panic(text in ".{0,200}", payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = IdToken::parse(&text);
            let _ = IdToken::parse(&format!("a.{}.b", URL_SAFE_NO_PAD.encode(payload)));
        }
    }
}
