//! The command `usage`: gateway usage of a workspace.

use tenant_shared::UsageDay;

use crate::{
    account::Account, cli::workspaces::Usage as Options, error::Error, lookup, output, runtime,
    store::AccountFlags, world::World,
};

/// Runs `usage`.
pub(crate) fn usage(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker;
    let usage = runtime::block_on(async {
        let id = lookup::resolve(broker, options.workspace.as_ref()).await?;
        broker.usage(id, options.days).await
    })??;
    output::show(world, options.shown.output, &usage, |it| table(&it.items))
}

fn table(days: &[UsageDay]) -> String {
    let rows: Vec<[String; 7]> = days
        .iter()
        .map(|it| {
            [
                it.day.clone(),
                it.verb.clone(),
                it.requests.to_string(),
                it.throttled.to_string(),
                size(it.bytes_up),
                size(it.bytes_down),
                format!("{} s", it.stream_seconds),
            ]
        })
        .collect();
    output::columns(["DAY", "VERB", "REQUESTS", "THROTTLED", "SENT", "RECEIVED", "STREAMS"], &rows)
}

/// Formats a number of bytes with a binary prefix (IEC 80000-13) and at most four digits.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut whole, mut rest, mut unit) = (bytes, 0, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        (whole, rest, unit) = (whole / 1024, whole % 1024, unit + 1);
    }
    if unit == 0 || whole >= 100 {
        format!("{whole} {}", UNITS[unit])
    } else {
        format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_abbreviated() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (200 * 1024, "200 KiB"),
            (5 * 1024 * 1024 * 1024, "5.0 GiB"),
            (u64::MAX, "16777215 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
