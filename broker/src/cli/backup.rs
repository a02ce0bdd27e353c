//! `tenant-broker backup` and `tenant-broker restore`.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigArgs, open_database, print};
use crate::{
    app,
    backup::{KeyOutcome, Restored},
};

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    #[command(flatten)]
    config_args: ConfigArgs,
    /// The new folder for the backup
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    config_args: ConfigArgs,
    /// The folder of the backup
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// An exported audit trail that goes on after the backup: users and workspaces that were
    /// suspended since then are suspended again
    #[arg(long, value_name = "FILE")]
    trail: Option<PathBuf>,
}

pub(super) async fn back_up(args: BackupArgs) -> anyhow::Result<()> {
    let config = args.config_args.load()?;
    let db = open_database(&config).await?;
    let backup = app::back_up(&config, &db, &args.to).await?;
    db.close().await;
    let manifest = &backup.manifest;
    print(&format!(
        "backup in {}\n  database  {}, schema {}\n  size      {} bytes\n  \
         It contains the signing keys: keep it as secret as these.\n",
        backup.folder.display(),
        manifest.database.engine(),
        manifest.database.schema(),
        manifest.bytes(),
    ))
}

pub(super) async fn restore(args: RestoreArgs) -> anyhow::Result<()> {
    let config = args.config_args.load()?;
    let (restored, keys) = app::restore(&config, &args.from, args.trail.as_deref()).await?;
    print(&report(&restored, &keys))
}

/// The report of a restore.
fn report(restored: &Restored, keys: &[KeyOutcome]) -> String {
    let Restored { manifest, head, revoked, repeated, skipped } = restored;
    let mut lines = vec![
        format!(
            "restored the backup of {} (version {}, schema {})",
            manifest.created_at,
            manifest.program,
            manifest.database.schema()
        ),
        format!("  audit trail       continues after row {head}"),
        format!("  sessions          {} ended: everybody signs in again", revoked.sessions),
        format!(
            "  ServiceAccounts   {} workspaces get another one when the broker runs: older tokens end",
            revoked.workspaces_replaced
        ),
        format!(
            "  suspensions       {} workspaces are suspended again when the broker runs",
            revoked.workspaces_suspended
        ),
    ];
    lines.extend(keys.iter().map(|key| format!("  key               {key}")));
    lines.extend(
        skipped.iter().map(|table| {
            format!("  NOT RESTORED      the table {table}, which is not the broker's")
        }),
    );
    lines.push(repeated.as_ref().map_or_else(
        || {
            "  NOT REPEATED      suspensions of users after the backup: give the exported audit trail \
             with --trail, or suspend these users before others can reach the broker"
                .to_owned()
        },
        |repeated| {
            format!(
                "  later decisions   {} users and {} workspaces suspended, from {} rows of the \
                 exported trail",
                repeated.users, repeated.workspaces, repeated.rows
            )
        },
    ));
    lines.push(
        "next: start the broker, then run tenant-broker doctor, which names the namespaces of \
         workspaces that the backup does not have\n"
            .to_owned(),
    );
    lines.join("\n")
}
