//! The plugin's error type: what failed, what to do about it, and the exit code.

use std::{fmt, io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use tenant_shared::Code;

use crate::terminal;

/// Kind of an error; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Every other error.
    Other,
    /// The command line is invalid.
    Usage,
    /// There is no session, or it ended: a person has to sign in.
    SignIn,
    /// The broker cannot be reached or cannot answer now: network failures, 5xx and 429.
    Unreachable,
    /// The broker refused the request: forbidden, suspended, not found, conflict.
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

/// An error as a person reads it. Never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// Kind of the error, which decides the exit code.
    pub(crate) kind: Kind,
    /// Description of the failure, on one line.
    pub(crate) message: String,
    /// Advice for the user, on one line.
    pub(crate) hint: Option<String>,
    /// How long the broker asks to wait before the same request is sent again (RFC 9110 section
    /// 10.2.3).
    pub(crate) retry_after: Option<Duration>,
    /// Code of the broker's refusal.
    pub(crate) code: Option<Code>,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        // The text may contain parts of a broker's response or a library's message.
        Self {
            kind,
            message: terminal::sanitize_message(&message.into()),
            hint: None,
            retry_after: None,
            code: None,
        }
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

    /// The error of a person who has to sign in; `AccountKey::sign_in_error` has its text.
    pub(crate) fn sign_in(message: impl Into<String>) -> Self {
        Self::new(Kind::SignIn, message)
    }

    /// A failed file operation; `doing` is a verb with its object, as in "cannot open …".
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::other(format!("cannot {doing} {}: {error}", path.display()))
    }

    /// The data could not be written to stdout.
    pub(crate) fn unwritable(error: &io::Error) -> Self {
        Self::other(format!("cannot write to stdout: {error}"))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(terminal::sanitize_message(&hint.into()));
        self
    }

    /// Adds advice to the hint.
    pub(crate) fn also_hint(self, advice: &str) -> Self {
        let hint = self.hint.as_ref().map(|hint| format!("{hint}; {advice}"));
        self.hint(hint.unwrap_or_else(|| advice.to_owned()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
