//! Pagination of lists: cursors, page sizes and truncation.

use std::{fmt, str::FromStr};

use tenant_shared::{Code, Name, NameError};
use uuid::Uuid;

use crate::problem::ApiError;

/// Maximum length of the text of a [`Cursor`], in bytes.
pub(crate) const MAX_CURSOR_BYTES: usize = 64;

/// The position of a row in a list that is ordered by creation. The next page begins after it, even
/// if the row itself has been deleted by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// When the row was created, in milliseconds since 1970.
    pub(crate) created_at: i64,
    pub(crate) id: Uuid,
}

impl Cursor {
    /// A position before the oldest row.
    pub(crate) const OLDEST: Self = Self { created_at: i64::MIN, id: Uuid::nil() };
    /// A position after the newest row.
    pub(crate) const NEWEST: Self = Self { created_at: i64::MAX, id: Uuid::max() };

    /// Parses the `cursor` of a request.
    ///
    /// # Errors
    /// 400: the text is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        text.parse().map_err(|InvalidCursor| {
            let text =
                "cursor must be the next_cursor of the previous page; omit it for the first page";
            ApiError::new(Code::InvalidRequest, text)
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at, self.id)
    }
}

/// A text that is not a [`Cursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        if text.len() > MAX_CURSOR_BYTES {
            return Err(InvalidCursor);
        }
        let (created_at, id) = text.split_once('.').ok_or(InvalidCursor)?;
        let created_at = created_at.parse().map_err(|_| InvalidCursor)?;
        Ok(Self { created_at, id: id.parse().map_err(|_| InvalidCursor)? })
    }
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

/// Truncates rows that were read with one row more than `limit`. Returns the cursor of the last row
/// if there was an additional one.
pub(crate) fn truncate_page<T>(
    rows: &mut Vec<T>,
    limit: u32,
    cursor: impl Fn(&T) -> String,
) -> Option<String> {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    rows.last().filter(|_| more).map(cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_round_trips() {
        let one = Cursor { created_at: 1_767_323_045_678, id: Uuid::from_u128(7) };
        for cursor in [one, Cursor::OLDEST, Cursor::NEWEST] {
            assert!(cursor.to_string().len() <= MAX_CURSOR_BYTES);
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", ".", "1", "1.2", "x.00000000-0000-0000-0000-000000000000", &"1".repeat(99)]
        {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor), "{text:?}");
        }
    }

    #[test]
    fn a_page_says_whether_there_is_more() {
        let mut rows = vec![1, 2, 3];
        assert_eq!(truncate_page(&mut rows, 2, ToString::to_string), Some("2".to_owned()));
        assert_eq!(rows, [1, 2]);
        assert_eq!(truncate_page(&mut rows, 2, ToString::to_string), None);
        assert!(parse_limit(Some(0), 5, 9).is_err() && parse_limit(Some(10), 5, 9).is_err());
        assert_eq!((parse_limit(None, 5, 9).unwrap(), parse_limit(Some(9), 5, 9).unwrap()), (5, 9));
    }
}
