//! Deletion of objects that others may create again meanwhile, in rounds of a list and its deletions.

use std::time::Duration;

/// Pause between two lists, because another API server may lag behind by as much.
const ROUND_INTERVAL: Duration = Duration::from_millis(50);

/// Lists of objects that are to be deleted, with a pause between them, until two in a row have none:
/// another API server may lag behind by as much as the pause, and show a new object later.
#[derive(Debug)]
pub(in crate::cluster) struct DeletionRounds {
    left: u32,
    empty: u32,
}

impl DeletionRounds {
    /// At most this number of lists.
    pub(in crate::cluster) fn at_most(rounds: u32) -> Self {
        Self { left: rounds, empty: 0 }
    }

    /// Records whether a list had no object. Returns true after two such lists in a row, or else waits
    /// until the next list.
    ///
    /// # Errors
    /// This was the last list.
    pub(in crate::cluster) async fn is_over(
        &mut self,
        is_empty: bool,
    ) -> Result<bool, TooManyRounds> {
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if self.empty == 2 {
            return Ok(true);
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Err(TooManyRounds);
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
        Ok(false)
    }
}

/// There were objects to delete in too many lists.
#[derive(Debug)]
pub(in crate::cluster) struct TooManyRounds;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn deletions_end_after_two_empty_lists_in_a_row() {
        for (lists, expected) in [
            (vec![true, true], Some(2)),
            (vec![true, false, true, true], Some(4)),
            (vec![false, true, false, true], None),
            (vec![true, false, false, true, true], None),
        ] {
            let (mut rounds, mut over) = (DeletionRounds::at_most(4), None);
            for (index, is_empty) in lists.iter().enumerate() {
                match rounds.is_over(*is_empty).await {
                    Ok(true) => over = Some(index + 1),
                    Ok(false) => continue,
                    Err(TooManyRounds) => {}
                }
                break;
            }
            assert_eq!(over, expected, "{lists:?}");
        }
    }
}
