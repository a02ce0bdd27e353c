//! Parameters of a request: `application/x-www-form-urlencoded`, in a query or in a body.
//!
//! A parameter without a value counts as not sent, an unknown parameter is ignored, and none may be
//! sent twice (RFC 6749 sections 3.1 and 3.2). Number and size are limited.

use std::collections::BTreeMap;

use poem::{
    Request,
    http::{StatusCode, header},
};
use url::form_urlencoded;

/// Bytes of a query or body at most.
pub(super) const MAX_BYTES: usize = 8 * 1024;
/// Bytes of a token, a code or a handle at most, with some tolerance for additional pasted
/// characters.
pub(super) const MAX_SECRET_BYTES: usize = 128;
/// Parameters of a request at most; no valid request has more than a dozen.
const MAX_PARAMETERS: usize = 32;

/// The parameters of a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParameterError {
    /// The query or body is too large.
    #[error("the request is larger than 8 KiB")]
    TooLarge,
    /// There are too many parameters.
    #[error("the request has more than 32 parameters")]
    TooMany,
    /// The body has another content type.
    #[error("send the body as application/x-www-form-urlencoded")]
    NotAForm,
    /// The body ended early or cannot be read.
    #[error("the body was cut off")]
    CutOff,
    /// A parameter was sent twice.
    #[error("a parameter is sent more than once")]
    Repeated,
    /// A required parameter was not sent.
    #[error("the parameter {0} is missing")]
    Missing(&'static str),
    /// A parameter has an invalid value.
    #[error("the parameter {0} is too long or malformed")]
    Malformed(&'static str),
}

impl ParameterError {
    /// The HTTP status of the error.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// The parameters of one request. There is no `Debug`, because some are secret.
#[derive(Default)]
pub(super) struct Parameters {
    /// Values by name; `None` for a parameter that was sent more than once.
    values: BTreeMap<String, Option<String>>,
}

impl Parameters {
    /// Parses the encoded parameters of a query or body.
    pub(super) fn parse(encoded: &[u8]) -> Result<Self, ParameterError> {
        if encoded.len() > MAX_BYTES {
            return Err(ParameterError::TooLarge);
        }
        let mut values = BTreeMap::new();
        for (number, (name, value)) in form_urlencoded::parse(encoded).enumerate() {
            if number == MAX_PARAMETERS {
                return Err(ParameterError::TooMany);
            }
            let known = values.contains_key(name.as_ref());
            values.insert(name.into_owned(), (!known).then(|| value.into_owned()));
        }
        Ok(Self { values })
    }

    /// Parses the parameters of a request's query.
    pub(super) fn from_query(request: &Request) -> Result<Self, ParameterError> {
        Self::parse(request.uri().query().unwrap_or_default().as_bytes())
    }

    /// Parses the parameters of a request's body, which must be a form.
    pub(super) async fn from_body(request: &mut Request) -> Result<Self, ParameterError> {
        let media_type = request.header(header::CONTENT_TYPE).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(ParameterError::NotAForm);
        }
        let body = request.take_body().into_bytes_limit(MAX_BYTES).await;
        Self::parse(&body.map_err(|error| match error {
            poem::error::ReadBodyError::PayloadTooLarge => ParameterError::TooLarge,
            _ => ParameterError::CutOff,
        })?)
    }

    /// Refuses the request if any parameter, known or not, was sent more than once.
    pub(super) fn refuse_repeated(&self) -> Result<(), ParameterError> {
        if self.values.values().any(Option::is_none) {
            return Err(ParameterError::Repeated);
        }
        Ok(())
    }

    /// Whether a parameter was sent at all.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value.as_deref() != Some(""))
    }

    /// An optional parameter of at most `max_bytes` bytes and without control characters; `None` if
    /// it was not sent.
    pub(super) fn optional(
        &self,
        name: &'static str,
        max_bytes: usize,
    ) -> Result<Option<&str>, ParameterError> {
        match self.verbatim(name, max_bytes)? {
            Some(value) if value.chars().any(char::is_control) => {
                Err(ParameterError::Malformed(name))
            }
            value => Ok(value),
        }
    }

    /// An optional parameter that may have any characters, such as a password.
    pub(super) fn verbatim(
        &self,
        name: &'static str,
        max_bytes: usize,
    ) -> Result<Option<&str>, ParameterError> {
        match self.values.get(name) {
            None => Ok(None),
            Some(None) => Err(ParameterError::Repeated),
            Some(Some(value)) if value.is_empty() => Ok(None),
            Some(Some(value)) if value.len() > max_bytes => Err(ParameterError::Malformed(name)),
            Some(Some(value)) => Ok(Some(value)),
        }
    }

    /// A required parameter.
    pub(super) fn required(
        &self,
        name: &'static str,
        max_bytes: usize,
    ) -> Result<&str, ParameterError> {
        self.optional(name, max_bytes)?.ok_or(ParameterError::Missing(name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_is_absent_and_twice_is_refused() {
        let params = Parameters::parse(b"a=1&b=&c=x%20y+z&d=1&d=1&e").unwrap();
        assert_eq!(params.optional("a", 10), Ok(Some("1")));
        assert_eq!(params.optional("b", 10), Ok(None));
        assert_eq!(params.optional("e", 10), Ok(None));
        assert!(params.has("a") && params.has("d") && !params.has("b") && !params.has("z"));
        assert_eq!(params.required("c", 10), Ok("x y z"));
        assert_eq!(params.required("z", 10), Err(ParameterError::Missing("z")));
        assert_eq!(params.optional("d", 10), Err(ParameterError::Repeated));
        assert_eq!(params.refuse_repeated(), Err(ParameterError::Repeated));
    }

    #[test]
    fn length_number_and_control_characters_are_bounded() {
        let params = Parameters::parse(b"a=12345&b=1%0a2&c=1%002").unwrap();
        assert_eq!(params.optional("a", 4), Err(ParameterError::Malformed("a")));
        assert_eq!(params.optional("b", 9), Err(ParameterError::Malformed("b")));
        assert_eq!(params.optional("c", 9), Err(ParameterError::Malformed("c")));
        let many = (0..33).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
        assert_eq!(Parameters::parse(many.as_bytes()).err(), Some(ParameterError::TooMany));
        let large = vec![b'a'; MAX_BYTES + 1];
        assert_eq!(Parameters::parse(&large).err(), Some(ParameterError::TooLarge));
    }

    proptest! {
        #[test]
        fn a_sent_value_is_returned_unchanged_or_refused(
            pairs in proptest::collection::vec(("[a-c]", ".{0,20}"), 0..6)
        ) {
            let mut serializer = form_urlencoded::Serializer::new(String::new());
            let encoded = serializer.extend_pairs(&pairs).finish();
            let params = Parameters::parse(encoded.as_bytes()).unwrap();
            for name in ["a", "b", "c"] {
                let values: Vec<_> = pairs.iter().filter(|(n, _)| n == name).collect();
                match (values.as_slice(), params.optional(name, 100)) {
                    ([], found) => prop_assert_eq!(found, Ok(None)),
                    ([(_, value)], Ok(found)) => prop_assert_eq!(found.unwrap_or_default(), value),
                    ([(_, value)], Err(_)) => prop_assert!(value.chars().any(char::is_control)),
                    (_, found) => prop_assert_eq!(found, Err(ParameterError::Repeated)),
                }
            }
        }

        #[test]
        fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(params) = Parameters::parse(&bytes) {
                let _ = (params.optional("a", 10), params.refuse_repeated());
            }
        }
    }
}
