//! Workload identity: an OIDC token of a CI provider or of a cluster replaces a person's sign-in
//! (RFC 8693). Nothing here is interactive.

use std::{collections::BTreeMap, fs::File, io::Read, path::PathBuf};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use tenant_cached_token::{ID_TOKEN_ENV, ID_TOKEN_FILE_ENV, hash};

use crate::{
    environment::{Env, WORKSPACE_ENV},
    error::Error,
    store::AccountFlags,
};

/// Maximum size of a token, in bytes: more than any provider issues, and what a header may contain.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;
/// Maximum length of a workspace's name, in bytes: that of a namespace.
const MAX_WORKSPACE_BYTES: usize = 63;
/// Prefix of the cache names of workloads.
const CACHE_NAME_PREFIX: &str = "machine:";
/// Claims that differ between the tokens of one workload.
const VOLATILE_CLAIMS: [&str; 4] = ["exp", "iat", "nbf", "jti"];

/// Source of a workload's token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Path of a file, which is read each time because its writer renews the token.
    File(PathBuf),
    /// Value of an environment variable, which cannot be renewed.
    Variable(String),
}

/// The identity of a workload: where its OIDC token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadIdentity(Source);

impl WorkloadIdentity {
    /// The workload identity in the environment, if there is one. The file takes precedence,
    /// because it can be renewed. A profile on the command line belongs to a person.
    pub(crate) fn from_env(flags: &AccountFlags, env: &Env) -> Result<Option<Self>, Error> {
        if flags.profile.is_some() {
            return Ok(None);
        }
        if let Some(path) = env.get(ID_TOKEN_FILE_ENV) {
            return Ok(Some(Self(Source::File(path.into()))));
        }
        let Some(value) = env.get(ID_TOKEN_ENV) else { return Ok(None) };
        let text = value.into_string().map_err(|_| {
            Error::usage(format!("{ID_TOKEN_ENV} holds no OIDC token: it is not UTF-8"))
        })?;
        Ok(Some(Self(Source::Variable(text))))
    }

    /// Reads the current token.
    pub(crate) fn token(&self) -> Result<IdToken, Error> {
        match &self.0 {
            Source::Variable(text) => IdToken::parse(text)
                .map_err(|why| Error::usage(format!("{ID_TOKEN_ENV} holds no OIDC token: {why}"))),
            Source::File(path) => {
                let mut text = String::new();
                let read = File::open(path)
                    .and_then(|file| file.take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text));
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

/// Workspace in `TENANT_WORKSPACE`: an identifier or a namespace.
pub(crate) fn workspace_from_env(env: &Env) -> Result<String, Error> {
    let hint = format!("set {WORKSPACE_ENV} to the workspace's identifier or namespace");
    let Some(name) = env.get(WORKSPACE_ENV) else {
        return Err(Error::usage("no workspace is set for this machine").hint(hint));
    };
    let is_name = |name: &String| {
        name.len() <= MAX_WORKSPACE_BYTES
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.into_string().ok().filter(is_name).ok_or_else(|| {
        Error::usage(format!("{WORKSPACE_ENV} is not a valid workspace name")).hint(hint)
    })
}

/// A JSON Web Token (RFC 7519), parsed without verification, because the broker verifies it.
pub(crate) struct IdToken {
    token: SecretString,
    claims: Map<String, Value>,
}

impl IdToken {
    /// Parses a token; the error says what is wrong with it and does not contain it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.len() as u64 > MAX_TOKEN_BYTES {
            return Err("it is larger than 64 KiB");
        }
        let mut parts = text.split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("it does not have three parts");
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !text.bytes().all(plain) {
            return Err("it has invalid characters");
        }
        let claims = URL_SAFE_NO_PAD.decode(payload).map_err(|_| "its claims cannot be read")?;
        let claims = serde_json::from_slice(&claims).map_err(|_| "its claims cannot be read")?;
        Ok(Self { token: text.into(), claims })
    }

    /// The token as it is sent.
    pub(crate) fn secret(&self) -> &str {
        self.token.expose_secret()
    }

    /// Name under which the workload's tokens are cached: a hash of all lasting claims, because any
    /// of them may decide what the broker issues. Two jobs on one disk never get each other's
    /// tokens. The colon distinguishes the name from profile names.
    pub(crate) fn cache_name(&self) -> String {
        let lasting: BTreeMap<&String, &Value> = self
            .claims
            .iter()
            .filter(|(name, _)| !VOLATILE_CLAIMS.contains(&name.as_str()))
            .collect();
        // Values that were parsed from JSON can be serialized as JSON.
        let text = serde_json::to_string(&lasting).unwrap_or_default();
        format!("{CACHE_NAME_PREFIX}{}", hash(&[&text]))
    }
}

/// Whether a cached token belongs to a workload.
pub(crate) fn is_cache_name(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with(CACHE_NAME_PREFIX))
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
    fn a_cache_name_identifies_one_workload() {
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
        let workload =
            WorkloadIdentity::from_env(&AccountFlags::default(), &both).unwrap().unwrap();
        // A missing file does not fall back to the variable.
        assert!(workload.token().err().unwrap().message.contains("cannot read the OIDC token"));
        for subject in ["one", "two"] {
            let token = jwt(&json!({"sub": subject}));
            std::fs::write(&path, format!("{token}\n")).unwrap();
            assert_eq!(workload.token().ok().unwrap().secret(), token);
        }
        let named = AccountFlags { profile: Some("work".to_owned()), ..AccountFlags::default() };
        assert_eq!(WorkloadIdentity::from_env(&named, &both).unwrap(), None);
        assert_eq!(WorkloadIdentity::from_env(&AccountFlags::default(), &env(&[])).unwrap(), None);
    }

    #[test]
    fn invalid_tokens_are_refused_and_not_shown() {
        for text in ["", " ", "s3cret", "a.b", "a.b.c.d", "e30.e30 .c", "e30.W10.c", "e30.!.c"] {
            let workload = WorkloadIdentity(Source::Variable(text.to_owned()));
            let error = workload.token().err().unwrap();
            assert!(error.message.contains("holds no OIDC token"), "{text}");
            assert!(!error.message.contains("s3cret"), "{error}");
        }
        let long = jwt(&json!({"sub": "x".repeat(70_000)}));
        assert_eq!(IdToken::parse(&long).err(), Some("it is larger than 64 KiB"));
    }

    #[test]
    fn workspace_names_are_validated() {
        let read = |value: &str| workspace_from_env(&env(&[(WORKSPACE_ENV, value)]));
        assert_eq!(read("tenant-1").unwrap(), "tenant-1");
        for bad in ["", "a b", "a/b", "a\nb", &"x".repeat(64)] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,200}", payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = IdToken::parse(&text);
            let _ = IdToken::parse(&format!("a.{}.b", URL_SAFE_NO_PAD.encode(payload)));
        }
    }
}
