//! What an issuer says when it says no (RFC 6749 section 5.2).

use serde::Deserialize;

use crate::output;

/// Longest text of a stranger that is shown, in characters.
const LONGEST_TEXT: usize = 300;

/// An OAuth 2.0 error.
#[derive(Debug, Deserialize)]
pub(super) struct OauthError {
    /// Its code.
    pub(super) error: String,
    error_description: Option<String>,
}

impl OauthError {
    /// Reads the body of an answer; [`None`] if it is no error of an issuer.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(body).ok().filter(|read| !read.error.is_empty())
    }

    /// What to show: the description, else the code.
    pub(super) fn text(&self) -> String {
        let text = self.error_description.as_deref().filter(|text| !text.trim().is_empty());
        output::plain(text.unwrap_or(&self.error)).chars().take(LONGEST_TEXT).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_is_an_error() {
        let text = |body: &str| OauthError::read(body.as_bytes()).map(|error| error.text());
        assert_eq!(text(r#"{"error":"x"}"#).unwrap(), "x");
        assert_eq!(text(r#"{"error":"x","error_description":" "}"#).unwrap(), "x");
        let shown = text(r#"{"error":"x","error_description":"a\u001b[31m\nb"}"#).unwrap();
        assert_eq!(shown, "a [31m b");
        for none in ["", "{}", r#"{"error":""}"#, r#"{"error":1}"#, "<html>"] {
            assert_eq!(text(none), None, "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_said_stays_on_one_line(code in "\\PC{1,400}", text in ".{0,400}") {
            let body = serde_json::json!({"error": code, "error_description": text}).to_string();
            let shown = OauthError::read(body.as_bytes()).unwrap().text();
            proptest::prop_assert!(shown.chars().count() <= LONGEST_TEXT);
            proptest::prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
