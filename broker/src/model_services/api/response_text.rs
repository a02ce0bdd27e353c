//! The text of a JSON response. It is written once, part by part, and the memory of a part is reserved
//! before the part is filled.

use std::{
    io::{self, Write},
    mem,
};

use bytes::Bytes;
use serde::Serialize;

use crate::model_services::{
    Failure,
    limits::{UnsentError, UnsentReservation},
};

/// Size from which a response holds memory until it is sent.
pub(super) const LARGE_RESPONSE_BYTES: usize = 16 * 1024;
/// Length of a part in bytes. It is the unit of reservations, too, so a text uses what it reserves.
const PART_BYTES: usize = LARGE_RESPONSE_BYTES;

/// A text and its memory.
#[derive(Debug)]
pub(super) struct ResponseText {
    /// All of them are full but the last one.
    pub(super) parts: Vec<Bytes>,
    /// `None` if the text is not large, so that it has one part.
    pub(super) reservation: Option<UnsentReservation>,
}

/// A value without a text.
#[derive(Debug)]
pub(super) enum TextError {
    /// It is too long, or there is no memory for it.
    NotReserved(UnsentError),
    /// The value cannot be serialized.
    NotSerialized(serde_json::Error),
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        match error {
            TextError::NotReserved(error) => error.into(),
            TextError::NotSerialized(error) => Self::internal_error(&error),
        }
    }
}

/// Writes the text of a value, which is at most `max` bytes long, a multiple of the length of a part.
///
/// # Errors
/// It is longer; its memory cannot be reserved; the value cannot be serialized.
pub(super) fn write(
    value: &impl Serialize,
    reservation: UnsentReservation,
    max: usize,
) -> Result<ResponseText, TextError> {
    let last = Vec::with_capacity(PART_BYTES);
    let mut writer = PartWriter { parts: Vec::new(), last, reservation, max, refused: None };
    match serde_json::to_writer(&mut writer, value) {
        Ok(()) => writer.finish().map_err(TextError::NotReserved),
        Err(error) => Err(match writer.refused {
            Some(refused) => TextError::NotReserved(refused),
            None => TextError::NotSerialized(error),
        }),
    }
}

/// The writer of a text.
struct PartWriter {
    /// Parts that are full.
    parts: Vec<Bytes>,
    /// The part that is being filled.
    last: Vec<u8>,
    reservation: UnsentReservation,
    max: usize,
    /// Why no further part was begun.
    refused: Option<UnsentError>,
}

impl PartWriter {
    /// Begins a part after the last one, which is full.
    fn begin_part(&mut self) -> Result<(), UnsentError> {
        let bytes = (self.parts.len() + 2) * PART_BYTES;
        if bytes > self.max {
            return Err(UnsentError::TooLarge);
        }
        self.reservation.grow_to(bytes)?;
        let full = mem::replace(&mut self.last, Vec::with_capacity(PART_BYTES));
        self.parts.push(full.into());
        Ok(())
    }

    fn finish(mut self) -> Result<ResponseText, UnsentError> {
        let length = self.parts.len() * PART_BYTES + self.last.len();
        let reservation = if length < LARGE_RESPONSE_BYTES {
            None
        } else {
            // Nothing is missing but for a single part that is full.
            self.reservation.grow_to(length)?;
            Some(self.reservation)
        };
        self.last.shrink_to_fit();
        self.parts.push(self.last.into());
        Ok(ResponseText { parts: self.parts, reservation })
    }
}

impl Write for PartWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.last.len() == PART_BYTES
            && let Err(refused) = self.begin_part()
        {
            self.refused = Some(refused);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let length = data.len().min(PART_BYTES - self.last.len());
        self.last.extend_from_slice(&data[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::{Serializer, ser::Error as _};

    use super::*;
    use crate::{
        base::rate_limit::ClientNetwork,
        model_services::limits::{MAX_RESPONSE_BYTES, UnsentMemory},
    };

    const CLIENT: ClientNetwork = ClientNetwork::Unknown;

    /// A value whose text has this number of bytes.
    fn value(bytes: usize) -> String {
        "x".repeat(bytes - 2)
    }

    fn text_of(unsent: &UnsentMemory, bytes: usize, max: usize) -> Result<ResponseText, TextError> {
        write(&value(bytes), unsent.begin(CLIENT), max)
    }

    /// Whether there is this number of bytes for the client.
    fn has_left(unsent: &UnsentMemory, bytes: usize) -> bool {
        unsent.reserve(CLIENT, bytes).is_ok()
    }

    #[test]
    fn a_text_is_written_in_parts_within_its_reserved_memory() {
        for (bytes, lengths, reserved) in [
            (2, vec![2], 0),
            (PART_BYTES - 1, vec![PART_BYTES - 1], 0),
            (PART_BYTES, vec![PART_BYTES], 1),
            (PART_BYTES + 1, vec![PART_BYTES, 1], 2),
            (3 * PART_BYTES, vec![PART_BYTES; 3], 3),
        ] {
            let unsent = UnsentMemory::default();
            let text = text_of(&unsent, bytes, MAX_RESPONSE_BYTES).unwrap();
            let found: Vec<usize> = text.parts.iter().map(Bytes::len).collect();
            assert_eq!(found, lengths, "{bytes}");
            assert_eq!(text.reservation.is_some(), reserved > 0, "{bytes}");
            let left = MAX_RESPONSE_BYTES - reserved * PART_BYTES;
            assert!(has_left(&unsent, left), "{bytes}");
            assert!(reserved == 0 || !has_left(&unsent, left + 1), "{bytes}");
            let whole: Vec<u8> = text.parts.iter().flat_map(|part| part.to_vec()).collect();
            assert_eq!(whole, serde_json::to_vec(&value(bytes)).unwrap(), "{bytes}");
            drop(text);
            assert!(has_left(&unsent, MAX_RESPONSE_BYTES), "{bytes}");
        }
    }

    #[test]
    fn a_text_that_does_not_fit_is_refused_and_returns_its_memory() {
        let unsent = UnsentMemory::default();
        assert!(text_of(&unsent, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES).is_ok());
        let too_long = |bytes, max| {
            let refused = text_of(&unsent, bytes, max);
            matches!(refused, Err(TextError::NotReserved(UnsentError::TooLarge)))
        };
        assert!(too_long(MAX_RESPONSE_BYTES + 1, MAX_RESPONSE_BYTES));
        assert!(too_long(4 * PART_BYTES + 1, 4 * PART_BYTES));
        assert!(has_left(&unsent, MAX_RESPONSE_BYTES));
        let held = unsent.reserve(CLIENT, MAX_RESPONSE_BYTES - 2 * PART_BYTES).unwrap();
        let exhausted = text_of(&unsent, 2 * PART_BYTES + 1, MAX_RESPONSE_BYTES);
        assert!(matches!(exhausted, Err(TextError::NotReserved(UnsentError::Exhausted))));
        assert!(text_of(&unsent, 2 * PART_BYTES, MAX_RESPONSE_BYTES).is_ok());
        drop(held);
        assert!(has_left(&unsent, MAX_RESPONSE_BYTES));
    }

    #[test]
    fn a_value_that_cannot_be_serialized_is_no_large_response() {
        struct Invalid;
        impl Serialize for Invalid {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(S::Error::custom("invalid"))
            }
        }
        let refused = write(&Invalid, UnsentMemory::default().begin(CLIENT), MAX_RESPONSE_BYTES);
        assert!(matches!(refused, Err(TextError::NotSerialized(_))));
        assert_eq!(Failure::from(refused.unwrap_err()).status().as_u16(), 500);
    }
}
