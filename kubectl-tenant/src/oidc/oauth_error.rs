//! OAuth 2.0 error responses (RFC 6749 section 5.2).

use serde::Deserialize;

use crate::terminal;

/// Maximum length of an issuer's text that is shown, in characters.
const MAX_TEXT_CHARS: usize = 300;

/// An OAuth 2.0 error response.
#[derive(Debug, Deserialize)]
pub(super) struct OauthError {
    /// Error code.
    pub(super) error: String,
    error_description: Option<String>,
}

impl OauthError {
    /// Parses the body of a response; [`None`] if it is no error response.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(body).ok().filter(|read| !read.error.is_empty())
    }

    /// Text for a person: the description, else the code.
    pub(super) fn text(&self) -> String {
        let text = self.error_description.as_deref().filter(|text| !text.trim().is_empty());
        terminal::sanitize(text.unwrap_or(&self.error)).chars().take(MAX_TEXT_CHARS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_error_responses_are_parsed() {
        let text = |body: &str| OauthError::parse(body.as_bytes()).map(|error| error.text());
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
        fn text_stays_on_one_line(code in "\\PC{1,400}", text in ".{0,400}") {
            let body = serde_json::json!({"error": code, "error_description": text}).to_string();
            let shown = OauthError::parse(body.as_bytes()).unwrap().text();
            proptest::prop_assert!(shown.chars().count() <= MAX_TEXT_CHARS);
            proptest::prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
