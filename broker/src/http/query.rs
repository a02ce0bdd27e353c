//! Query parameters that several operations have: `cursor`, `limit`, `name`.

use tenant_shared::{Code, Name, NameError};

use super::ApiError;
use crate::base::paging::{Cursor, InvalidCursor};

/// Parses the `cursor` of a request.
///
/// # Errors
/// 400: the text is not valid.
pub(crate) fn parse_cursor(text: &str) -> Result<Cursor, ApiError> {
    text.parse().map_err(|InvalidCursor| {
        let text =
            "cursor must be the next_cursor of the previous page; omit it for the first page";
        ApiError::new(Code::InvalidRequest, text)
    })
}

/// Parses the `name` that a request looks a resource up by.
///
/// # Errors
/// 400: the text is not valid.
pub(crate) fn parse_name(text: &str) -> Result<Name, ApiError> {
    text.parse().map_err(|error: NameError| ApiError::new(Code::InvalidRequest, error.to_string()))
}

/// Validates the `limit` of a request.
///
/// # Errors
/// 400: the limit is not from 1 to `max`.
pub(crate) fn parse_limit(requested: Option<u32>, default: u32, max: u32) -> Result<u32, ApiError> {
    let limit = requested.unwrap_or(default);
    if (1..=max).contains(&limit) {
        Ok(limit)
    } else {
        let text = format!("limit must be a number from 1 to {max}");
        Err(ApiError::new(Code::InvalidRequest, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_within_its_range() {
        assert!(parse_limit(Some(0), 5, 9).is_err() && parse_limit(Some(10), 5, 9).is_err());
        assert_eq!((parse_limit(None, 5, 9).unwrap(), parse_limit(Some(9), 5, 9).unwrap()), (5, 9));
    }
}
