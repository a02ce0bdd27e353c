//! The one failure type: what failed, what to do about it, and the exit code that says so.

use std::{fmt, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{identity::Identity, output};

/// What kind of failure it is; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Anything that is none of the others.
    Other,
    /// The command line cannot be understood.
    Usage,
    /// There is no session, or it ended: a person has to sign in.
    SignIn,
    /// The broker cannot be reached or cannot answer now: network failures, 5xx and 429.
    Unreachable,
    /// The broker answered and said no: forbidden, suspended, not found, conflict.
    Refused,
}

impl Kind {
    /// The process's exit code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Other => 1,
            Self::Usage => 2,
            Self::SignIn => 3,
            Self::Unreachable => 4,
            Self::Refused => 5,
        }
    }
}

/// A failure as a person reads it. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// Decides the exit code.
    pub(crate) kind: Kind,
    /// What failed, one line.
    pub(crate) message: String,
    /// What to do about it, one line.
    pub(crate) hint: Option<String>,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        // What a broker or a library said may be a part of it.
        Self { kind, message: output::line(&message.into()), hint: None }
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(Kind::Other, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unreachable, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// The line that names the one thing to do. Complete without its hint, because programs that
    /// show only one line of a plugin's stderr show this one.
    pub(crate) fn sign_in(identity: &Identity, why: impl Into<String>) -> Self {
        let flags = identity.flags();
        Self::new(
            Kind::SignIn,
            format!("not signed in at {identity}; run: kubectl tenant login {flags}"),
        )
        .hint(why)
    }

    /// A file operation that failed.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::other(format!("cannot {doing} {}: {error}", path.display()))
    }

    /// The data did not get out.
    pub(crate) fn unwritable(error: &io::Error) -> Self {
        Self::other(format!("cannot write to stdout: {error}"))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(output::line(&hint.into()));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
