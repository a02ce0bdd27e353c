//! `tenant-broker backup` and `tenant-broker restore`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::{ConfigArgs, open_database, output::print, stop_signal};
use crate::{
    app,
    backup::{KeyOutcome, ReappliedSuspensions, Restored},
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
    /// An exported audit trail that goes on after the backup: users, workspaces, memberships and
    /// tenants that were suspended since then are suspended again
    #[arg(long, value_name = "FILE")]
    trail: Option<PathBuf>,
}

pub(super) async fn back_up(args: BackupArgs) -> anyhow::Result<()> {
    let config = args.config_args.load()?;
    let db = open_database(&config).await?;
    let backup = until_stopped(Box::pin(app::back_up(&config, &db, &args.to))).await?;
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
    let restore = Box::pin(app::restore(&config, &args.from, args.trail.as_deref()));
    let (restored, keys) = until_stopped(restore).await?;
    print(&report(&restored, &keys))
}

/// Runs this work until it is done, or until SIGTERM or Ctrl-C: it is dropped then, which deletes
/// its folder.
async fn until_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let stop = stop_signal()?;
    tokio::select! {
        biased;
        done = work => done,
        () = stop => bail!("stopped by a signal before it was done"),
    }
}

/// The lines about decisions after the backup.
fn suspensions_after_backup(repeated: Option<&ReappliedSuspensions>) -> Vec<String> {
    let Some(repeated) = repeated else {
        let line = "  NOT REPEATED      suspensions of users and of memberships after the backup: give the \
                    exported audit trail with --trail, or suspend them before others can reach the \
                    broker";
        return vec![line.to_owned()];
    };
    let mut lines = vec![format!(
        "  later decisions   {} users and {} workspaces suspended, {} tenants suspended, {} users and {} \
         memberships not, from {} rows of the exported trail",
        repeated.users,
        repeated.workspaces,
        repeated.tenants,
        repeated.not_in_backup.len(),
        repeated.memberships_not_in_backup.len(),
        repeated.rows
    )];
    lines.push(repeated.last.map_or_else(
        || "  end of the trail  it has no rows: decisions after the backup are unknown".to_owned(),
        |last| {
            let (sequence, at) = (last.sequence, last.at);
            format!("  end of the trail  row {sequence} of {at}: decisions after {at} are unknown")
        },
    ));
    lines.extend(repeated.not_in_backup.iter().map(|user| {
        let created = user
            .created
            .as_deref()
            .map_or_else(String::new, |reason| format!(" (created {})", reason.escape_debug()));
        format!(
            "  NOT REPEATED      user {}{created} is not in the backup: block this person at the \
             provider, or suspend them after their first sign-in",
            user.id
        )
    }));
    lines.extend(repeated.memberships_not_in_backup.iter().map(|membership| {
        let user = membership.user.map_or_else(String::new, |user| format!(" of user {user}"));
        let tenant = membership.tenant.as_ref();
        let tenant = tenant.map_or_else(String::new, |tenant| format!(" in tenant {tenant}"));
        format!(
            "  NOT REPEATED      the membership {}{user}{tenant} is not in the backup: suspend the user, \
             or their new membership after they have joined again",
            membership.id
        )
    }));
    lines
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
            "  suspensions       {} workspaces and {} tenants are suspended again when the broker runs",
            revoked.workspaces_suspended, revoked.tenants_suspended
        ),
    ];
    lines.extend(keys.iter().map(|key| format!("  key               {key}")));
    lines.extend(
        skipped.iter().map(|table| {
            format!("  NOT RESTORED      the table {table}, which is not the broker's")
        }),
    );
    lines.extend(suspensions_after_backup(repeated.as_ref()));
    lines.push(
        "next: start the broker, then run tenant-broker doctor, which names the namespaces of \
         workspaces that the backup does not have\n"
            .to_owned(),
    );
    lines.join("\n")
}
