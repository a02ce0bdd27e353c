//! Deletion of objects that others may create again meanwhile, in rounds of a list and its deletions.

use std::{ops::ControlFlow, time::Duration};

/// Pause between two lists that both have to be empty, because another API server may lag behind by as
/// much.
pub const EMPTY_LIST_INTERVAL: Duration = Duration::from_millis(50);

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

    /// Ends a round, whose list had no object if `was_empty`. Breaks after two such rounds in a row, or
    /// else waits until the next one.
    ///
    /// # Errors
    /// This was the last round.
    pub(in crate::cluster) async fn end_round(
        &mut self,
        was_empty: bool,
    ) -> Result<ControlFlow<()>, TooManyRounds> {
        self.empty = if was_empty { self.empty + 1 } else { 0 };
        if self.empty == 2 {
            return Ok(ControlFlow::Break(()));
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Err(TooManyRounds);
        }
        tokio::time::sleep(EMPTY_LIST_INTERVAL).await;
        Ok(ControlFlow::Continue(()))
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
            for (index, was_empty) in lists.iter().enumerate() {
                match rounds.end_round(*was_empty).await {
                    Ok(ControlFlow::Break(())) => over = Some(index + 1),
                    Ok(ControlFlow::Continue(())) => continue,
                    Err(TooManyRounds) => {}
                }
                break;
            }
            assert_eq!(over, expected, "{lists:?}");
        }
    }
}
