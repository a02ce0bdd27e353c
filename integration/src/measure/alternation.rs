//! A measurement and its baseline in turn.

use anyhow::Result;

/// Repeats a measurement and its baseline, and returns both of each round. The order alternates, so that
/// neither always runs after the other.
///
/// # Errors
/// A run fails.
pub(super) async fn alternate<T>(
    rounds: usize,
    mut value: impl AsyncFnMut() -> Result<T>,
    mut baseline: impl AsyncFnMut() -> Result<T>,
) -> Result<Vec<(T, T)>> {
    let mut pairs = Vec::with_capacity(rounds);
    for round in 0..rounds {
        pairs.push(if round % 2 == 0 {
            let of_value = value().await?;
            (of_value, baseline().await?)
        } else {
            let of_baseline = baseline().await?;
            (value().await?, of_baseline)
        });
    }
    Ok(pairs)
}
