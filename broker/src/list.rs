//! Lists in pages: where a page begins, and how many rows it has.

use std::{fmt, str::FromStr};

use tenant_shared::{Code, Name, NameError};
use uuid::Uuid;

use crate::problem::Failure;

/// Longest text of a [`Cursor`], in bytes.
pub(crate) const MOST_CURSOR_BYTES: usize = 64;

/// A row of a list that is in the order of creation. The next page begins after it, also if the row
/// itself is gone by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// In milliseconds since 1970.
    pub(crate) created_at: i64,
    pub(crate) id: Uuid,
}

impl Cursor {
    /// Before the oldest row.
    pub(crate) const OLDEST: Self = Self { created_at: i64::MIN, id: Uuid::nil() };
    /// After the newest row.
    pub(crate) const NEWEST: Self = Self { created_at: i64::MAX, id: Uuid::max() };

    /// The cursor that a request names.
    ///
    /// # Errors
    /// 400: it is none.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        text.parse().map_err(|NotACursor| {
            let text =
                "cursor is the next_cursor of the page before; leave it out for the first page";
            Failure::new(Code::InvalidRequest, text)
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at, self.id)
    }
}

/// Text that is no [`Cursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        if text.len() > MOST_CURSOR_BYTES {
            return Err(NotACursor);
        }
        let (created_at, id) = text.split_once('.').ok_or(NotACursor)?;
        let created_at = created_at.parse().map_err(|_| NotACursor)?;
        Ok(Self { created_at, id: id.parse().map_err(|_| NotACursor)? })
    }
}

/// The name that a request looks something up by.
///
/// # Errors
/// 400: it is none.
pub(crate) fn name(text: &str) -> Result<Name, Failure> {
    text.parse().map_err(|error: NameError| Failure::new(Code::InvalidRequest, error.to_string()))
}

/// The number of rows that a request asks for.
///
/// # Errors
/// 400: it is not from 1 to `most`.
pub(crate) fn limit(given: Option<u32>, default: u32, most: u32) -> Result<u32, Failure> {
    let limit = given.unwrap_or(default);
    if (1..=most).contains(&limit) {
        Ok(limit)
    } else {
        let text = format!("limit is a number from 1 to {most}");
        Err(Failure::new(Code::InvalidRequest, text))
    }
}

/// A page of rows that were asked for with one row more than `limit`: takes the additional row off,
/// and gives the place of the last one if there was an additional one.
pub(crate) fn page<T>(rows: &mut Vec<T>, limit: u32, at: impl Fn(&T) -> String) -> Option<String> {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    rows.last().filter(|_| more).map(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let one = Cursor { created_at: 1_767_323_045_678, id: Uuid::from_u128(7) };
        for cursor in [one, Cursor::OLDEST, Cursor::NEWEST] {
            assert!(cursor.to_string().len() <= MOST_CURSOR_BYTES);
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", ".", "1", "1.2", "x.00000000-0000-0000-0000-000000000000", &"1".repeat(99)]
        {
            assert_eq!(text.parse::<Cursor>(), Err(NotACursor), "{text:?}");
        }
    }

    #[test]
    fn a_page_says_whether_there_is_more() {
        let mut rows = vec![1, 2, 3];
        assert_eq!(page(&mut rows, 2, ToString::to_string), Some("2".to_owned()));
        assert_eq!(rows, [1, 2]);
        assert_eq!(page(&mut rows, 2, ToString::to_string), None);
        assert!(limit(Some(0), 5, 9).is_err() && limit(Some(10), 5, 9).is_err());
        assert_eq!((limit(None, 5, 9).unwrap(), limit(Some(9), 5, 9).unwrap()), (5, 9));
    }
}
