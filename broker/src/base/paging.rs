//! Pagination of lists: cursors and truncation.

use std::{fmt, str::FromStr};

use uuid::Uuid;

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
    }
}
