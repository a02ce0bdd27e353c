//! DNS labels.

/// Whether a text is a DNS label (RFC 1123), which is what Kubernetes requires of most names.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
