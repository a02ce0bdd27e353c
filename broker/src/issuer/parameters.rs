//! Parameters of a request: `application/x-www-form-urlencoded`, in a query or in a body.
//!
//! A parameter without a value counts as not sent, one that is not known is ignored, and none may be
//! sent twice (RFC 6749 sections 3.1 and 3.2). Everything is bounded.

use std::collections::BTreeMap;

use poem::{
    Request,
    http::{StatusCode, header},
};
use url::form_urlencoded;

/// Bytes of a query or body at most.
pub(super) const MOST_BYTES: usize = 8 * 1024;
/// Parameters at most; no request here has more than a dozen.
const MOST_PARAMETERS: usize = 32;

/// Parameters that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParameterFault {
    /// The whole is too large.
    #[error("the request is larger than 8 KiB")]
    TooLarge,
    /// There are too many.
    #[error("the request has more than 32 parameters")]
    TooMany,
    /// The body is of another type.
    #[error("send the body as application/x-www-form-urlencoded")]
    NotAForm,
    /// The body ended early.
    #[error("the body was cut off")]
    CutOff,
    /// One was sent twice.
    #[error("a parameter is sent more than once")]
    Repeated,
    /// One that is needed was not sent.
    #[error("the parameter {0} is missing")]
    Missing(&'static str),
    /// One has a value that it cannot have.
    #[error("the parameter {0} is too long or malformed")]
    Malformed(&'static str),
}

impl ParameterFault {
    /// The status that goes with it.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// The parameters of one request. They do not print, for some are secret.
#[derive(Default)]
pub(super) struct Parameters {
    /// `None` is one that was sent more than once.
    values: BTreeMap<String, Option<String>>,
}

impl Parameters {
    /// Parameters of a query or body, as they were sent.
    pub(super) fn parse(encoded: &[u8]) -> Result<Self, ParameterFault> {
        if encoded.len() > MOST_BYTES {
            return Err(ParameterFault::TooLarge);
        }
        let mut values = BTreeMap::new();
        for (number, (name, value)) in form_urlencoded::parse(encoded).enumerate() {
            if number == MOST_PARAMETERS {
                return Err(ParameterFault::TooMany);
            }
            let known = values.contains_key(name.as_ref());
            values.insert(name.into_owned(), (!known).then(|| value.into_owned()));
        }
        Ok(Self { values })
    }

    /// Parameters of a request's query.
    pub(super) fn of_query(request: &Request) -> Result<Self, ParameterFault> {
        Self::parse(request.uri().query().unwrap_or_default().as_bytes())
    }

    /// Parameters of a request's body, which must be a form.
    pub(super) async fn of_body(request: &mut Request) -> Result<Self, ParameterFault> {
        let media_type = request.header(header::CONTENT_TYPE).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(ParameterFault::NotAForm);
        }
        let body = request.take_body().into_bytes_limit(MOST_BYTES).await;
        Self::parse(&body.map_err(|error| match error {
            poem::error::ReadBodyError::PayloadTooLarge => ParameterFault::TooLarge,
            _ => ParameterFault::CutOff,
        })?)
    }

    /// Refuses the request if any parameter, known or not, was sent more than once.
    pub(super) fn refuse_repeated(&self) -> Result<(), ParameterFault> {
        if self.values.values().any(Option::is_none) {
            return Err(ParameterFault::Repeated);
        }
        Ok(())
    }

    /// Whether a parameter was sent at all.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value.as_deref() != Some(""))
    }

    /// A parameter, `None` if it was not sent; at most so many bytes, none of them a control
    /// character.
    pub(super) fn optional(
        &self,
        name: &'static str,
        most_bytes: usize,
    ) -> Result<Option<&str>, ParameterFault> {
        match self.verbatim(name, most_bytes)? {
            Some(value) if value.chars().any(char::is_control) => {
                Err(ParameterFault::Malformed(name))
            }
            value => Ok(value),
        }
    }

    /// A parameter whatever its characters, such as a password.
    pub(super) fn verbatim(
        &self,
        name: &'static str,
        most_bytes: usize,
    ) -> Result<Option<&str>, ParameterFault> {
        match self.values.get(name) {
            None => Ok(None),
            Some(None) => Err(ParameterFault::Repeated),
            Some(Some(value)) if value.is_empty() => Ok(None),
            Some(Some(value)) if value.len() > most_bytes => Err(ParameterFault::Malformed(name)),
            Some(Some(value)) => Ok(Some(value)),
        }
    }

    /// A parameter that must be there.
    pub(super) fn required(
        &self,
        name: &'static str,
        most_bytes: usize,
    ) -> Result<&str, ParameterFault> {
        self.optional(name, most_bytes)?.ok_or(ParameterFault::Missing(name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_is_absent_and_twice_is_refused() {
        let sent = Parameters::parse(b"a=1&b=&c=x%20y+z&d=1&d=1&e").unwrap();
        assert_eq!(sent.optional("a", 10), Ok(Some("1")));
        assert_eq!(sent.optional("b", 10), Ok(None));
        assert_eq!(sent.optional("e", 10), Ok(None));
        assert!(sent.has("a") && sent.has("d") && !sent.has("b") && !sent.has("z"));
        assert_eq!(sent.required("c", 10), Ok("x y z"));
        assert_eq!(sent.required("z", 10), Err(ParameterFault::Missing("z")));
        assert_eq!(sent.optional("d", 10), Err(ParameterFault::Repeated));
        assert_eq!(sent.refuse_repeated(), Err(ParameterFault::Repeated));
    }

    #[test]
    fn length_number_and_control_characters_are_bounded() {
        let sent = Parameters::parse(b"a=12345&b=1%0a2&c=1%002").unwrap();
        assert_eq!(sent.optional("a", 4), Err(ParameterFault::Malformed("a")));
        assert_eq!(sent.optional("b", 9), Err(ParameterFault::Malformed("b")));
        assert_eq!(sent.optional("c", 9), Err(ParameterFault::Malformed("c")));
        let many = (0..33).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
        assert_eq!(Parameters::parse(many.as_bytes()).err(), Some(ParameterFault::TooMany));
        let large = vec![b'a'; MOST_BYTES + 1];
        assert_eq!(Parameters::parse(&large).err(), Some(ParameterFault::TooLarge));
    }

    proptest! {
        #[test]
        fn whatever_is_sent_comes_out_whole_or_not_at_all(
            pairs in proptest::collection::vec(("[a-c]", ".{0,20}"), 0..6)
        ) {
            let encoded = form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
            let sent = Parameters::parse(encoded.as_bytes()).unwrap();
            for name in ["a", "b", "c"] {
                let values: Vec<_> = pairs.iter().filter(|(n, _)| n == name).collect();
                match (values.as_slice(), sent.optional(name, 100)) {
                    ([], found) => prop_assert_eq!(found, Ok(None)),
                    ([(_, value)], Ok(found)) => prop_assert_eq!(found.unwrap_or_default(), value),
                    ([(_, value)], Err(_)) => prop_assert!(value.chars().any(char::is_control)),
                    (_, found) => prop_assert_eq!(found, Err(ParameterFault::Repeated)),
                }
            }
        }

        #[test]
        fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(sent) = Parameters::parse(&bytes) {
                let _ = (sent.optional("a", 10), sent.refuse_repeated());
            }
        }
    }
}
