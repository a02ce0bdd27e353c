//! Words that can complete a command line.

use serde::{Deserialize, Serialize};

use crate::terminal;

/// A word that can complete the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Candidate {
    /// The word.
    pub(super) value: String,
    /// What the shell shows beside it; may be empty.
    description: String,
}

impl Candidate {
    /// A word without a description.
    pub(super) fn plain(value: impl Into<String>) -> Self {
        Self { value: value.into(), description: String::new() }
    }

    /// A word from the broker; [`None`] if it has characters that a shell may interpret. The shell
    /// inserts a candidate into the command line as it is, so that a hostile broker could otherwise
    /// make the person run a command.
    pub(super) fn untrusted(value: &str, description: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@._+-".contains(&byte);
        (value.starts_with(|first: char| first.is_ascii_alphanumeric())
            && value.bytes().all(is_plain))
        .then(|| Self {
            value: value.to_owned(),
            description: terminal::sanitize_message(description),
        })
    }

    /// The line of cobra's protocol.
    pub(super) fn line(&self) -> String {
        let Self { value, description } = self;
        if description.is_empty() {
            format!("{value}\n")
        } else {
            format!("{value}\t{description}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_shell_may_interpret_are_no_candidates() {
        for value in ["tenant-a1", "ada+x@example.com", "a_b.c", "6BA7"] {
            let candidate = Candidate::untrusted(value, "a\tb\n\u{1b}c").unwrap();
            assert_eq!(candidate.line(), format!("{value}\ta b  c\n"));
        }
        for value in [
            "", "-x", "$(x)", "`x`", "a b", "a;b", "a|b", "a&b", "a>b", "a\nb", "a\tb", "a'b", "~",
            "é",
        ] {
            assert_eq!(Candidate::untrusted(value, ""), None, "{value:?}");
        }
    }
}
