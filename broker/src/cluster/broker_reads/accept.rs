//! The header `Accept` of a read. Pure.
//!
//! The header of a client is parsed, and what is sent is written anew from the media types and
//! parameters that lists of the API server have (API concepts, "Alternate representations of
//! resources").

use http::HeaderValue;

/// Representations of one header, at most; others are left out.
const MAX_ITEMS: usize = 16;

const MEDIA_TYPES: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/cbor",
    "application/vnd.kubernetes.protobuf",
    "application/*",
    "*/*",
];

/// Parameters, except for `q`.
const PARAMETERS: [&str; 9] = [
    "as=Table",
    "as=PartialObjectMetadata",
    "as=PartialObjectMetadataList",
    "v=v1",
    "v=v1beta1",
    "g=meta.k8s.io",
    "stream=watch",
    "charset=utf-8",
    "charset=UTF-8",
];

/// The representations in a client's header that a list can have, in their order. Without any the
/// API server chooses JSON.
pub(super) fn accepted(header: &HeaderValue) -> Option<HeaderValue> {
    let items = header.to_str().ok()?.split(',').take(MAX_ITEMS);
    let items: Vec<String> = items.filter_map(item).collect();
    if items.is_empty() { None } else { HeaderValue::try_from(items.join(",")).ok() }
}

/// One representation; `None` if the media type or a parameter is another one.
fn item(text: &str) -> Option<String> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next()?;
    let media_type = MEDIA_TYPES.iter().find(|known| known.eq_ignore_ascii_case(media_type))?;
    let mut item = (*media_type).to_owned();
    for parameter in parts {
        if !PARAMETERS.contains(&parameter) && !is_weight(parameter) {
            return None;
        }
        item.push(';');
        item.push_str(parameter);
    }
    Some(item)
}

/// Whether a parameter is a weight (RFC 9110 section 12.4.2).
fn is_weight(parameter: &str) -> bool {
    parameter.strip_prefix("q=").is_some_and(|weight| {
        (1..=5).contains(&weight.len())
            && weight.starts_with(['0', '1'])
            && weight.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        let header = accepted(&HeaderValue::from_str(text).unwrap())?;
        Some(header.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_headers_of_clients_are_kept() {
        for (given, expected) in [
            ("application/json", Some("application/json")),
            ("*/*", Some("*/*")),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            ),
            (
                "application/vnd.kubernetes.protobuf, application/json;q=0.9",
                Some("application/vnd.kubernetes.protobuf,application/json;q=0.9"),
            ),
            ("application/json;stream=watch", Some("application/json;stream=watch")),
            // A browser.
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some("*/*;q=0.8")),
            ("text/html", None),
            ("", None),
            ("application/json;as=Secret", None),
            ("application/json;x=y", None),
            ("application/json;q=0.9999", None),
            ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", None),
        ] {
            assert_eq!(read(given).as_deref(), expected, "{given}");
        }
        let many = ["*/*"; 40].join(",");
        assert_eq!(read(&many), Some(["*/*"; MAX_ITEMS].join(",")));
    }

    proptest! {
        /// Whatever a client sends, each part of the header is a known one.
        #[test]
        fn only_known_parts_are_sent(
            text in "(application/(json|yaml|\\*|x)|as=(Table|X)|v=v1|q=[0-9.]{0,4}|[;, a-z=\"]){0,12}"
        ) {
            for item in read(&text).iter().flat_map(|header| header.split(',')) {
                let mut parts = item.split(';');
                prop_assert!(MEDIA_TYPES.contains(&parts.next().unwrap()));
                prop_assert!(parts.all(|part| PARAMETERS.contains(&part) || is_weight(part)));
            }
        }
    }
}
