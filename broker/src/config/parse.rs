//! Parsers of settings that several sections use.

use std::{fmt, str::FromStr};

pub(super) fn from_str<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// `None` for an empty text.
pub(super) fn optional<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { from_str(text).map(Some) }
}

/// Items with commas between them; empty ones are left out.
pub(super) fn list<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(from_str).collect()
}

/// An integer from `MIN` to `MAX`.
pub(super) fn within<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| (MIN..=MAX).contains(number))
        .ok_or_else(|| format!("a whole number from {MIN} to {MAX}"))
}
