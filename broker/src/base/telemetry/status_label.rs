//! The label `status` of requests.

use std::fmt::{self, Write as _};

use http::StatusCode;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// An HTTP status as the value of a label: the code if IANA has registered it, else its class
/// (`4xx`). A tenant's program behind `/proxy/` chooses the status of its responses, and must not
/// create a series for each of 900 codes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) enum StatusLabel {
    /// A registered code.
    Registered(u16),
    /// The first digit of another code.
    Class(u16),
    /// The client disconnected before there was a response.
    NoResponse,
}

impl StatusLabel {
    /// The label of this code, 100 to 999, or of 0, which is no response.
    pub(super) fn new(code: u16) -> Self {
        if code == 0 {
            return Self::NoResponse;
        }
        let registered = StatusCode::from_u16(code).ok().and_then(|it| it.canonical_reason());
        if registered.is_some() { Self::Registered(code) } else { Self::Class(code / 100) }
    }
}

impl EncodeLabelValue for StatusLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Registered(code) => code.encode(encoder),
            Self::Class(class) => write!(encoder, "{class}xx"),
            Self::NoResponse => 0_u16.encode(encoder),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::telemetry::Metrics;

    #[test]
    fn a_status_that_is_not_registered_counts_for_its_class() {
        let metrics = Metrics::default();
        for status in [0, 200, 404, 499, 498, 503, 599, 999] {
            metrics.request(&http::Method::GET, "/clusters/c/api", status, 0.1);
        }
        let text = metrics.render();
        for (status, count) in
            [("0", 1), ("200", 1), ("404", 1), ("4xx", 2), ("503", 1), ("5xx", 1), ("9xx", 1)]
        {
            let labels = format!("{{method=\"GET\",area=\"gateway\",status=\"{status}\"}}");
            let sample = format!("tenant_broker_requests_total{labels} {count}\n");
            assert!(text.contains(&sample), "{sample}{text}");
        }
    }

    #[test]
    fn all_codes_together_have_fewer_than_a_hundred_values() {
        let values: HashSet<StatusLabel> = (100..=999).map(StatusLabel::new).collect();
        assert!(values.len() < 100, "{}", values.len());
        for code in [200, 201, 400, 401, 403, 404, 409, 429, 500, 502, 503, 504] {
            assert_eq!(StatusLabel::new(code), StatusLabel::Registered(code));
        }
    }
}
