//! `tenant-broker migrate`: migrates the database, or says whether it has to be migrated.

use std::process::ExitCode;

use clap::Args;

use super::{
    ConfigArgs, database_exists, open_database,
    output::{print, print_error},
};
use crate::{app, base::db::SchemaStatus, config::Config};

/// Exit code of `--check` if this program cannot use the database, or the database does not answer.
const EXIT_UNUSABLE: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    config_args: ConfigArgs,
    /// Change nothing: exit code 0 if the schema is current, 1 if migrations are pending, 2 if this
    /// program cannot use the database
    #[arg(long)]
    check: bool,
}

pub(super) async fn run(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    if args.check {
        return match check(&args.config_args).await {
            Ok(code) => Ok(code),
            Err(error) => {
                print_error(&error);
                Ok(ExitCode::from(EXIT_UNUSABLE))
            }
        };
    }
    let db = app::open_database(&args.config_args.load()?).await?;
    let status = db.schema_status().await?;
    db.close().await;
    print(&describe(&status))?;
    Ok(ExitCode::SUCCESS)
}

async fn check(config_args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let status = status(&config_args.load()?).await?;
    print(&describe(&status))?;
    Ok(if status.pending.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn status(config: &Config) -> anyhow::Result<SchemaStatus> {
    if !database_exists(config) {
        return Ok(SchemaStatus::empty());
    }
    let db = open_database(config).await?;
    let status = db.schema_status().await?;
    db.close().await;
    Ok(status)
}

fn describe(status: &SchemaStatus) -> String {
    let SchemaStatus { schema, known, pending } = status;
    if pending.is_empty() && schema > known {
        return format!(
            "the database has schema {schema}, which this version may use; it knows schema {known}\n"
        );
    }
    if pending.is_empty() {
        return format!("the database has schema {schema}, the one of this version\n");
    }
    let head =
        format!("the database has schema {schema}; this version has schema {known}. Pending:\n");
    let lines: Vec<String> =
        pending.iter().map(|(number, name)| format!("  {number:04} {name}\n")).collect();
    head + &lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_is_pending() {
        let status = |schema, pending| SchemaStatus { schema, known: 14, pending };
        let current = describe(&status(14, Vec::new()));
        assert_eq!(current, "the database has schema 14, the one of this version\n");
        assert!(describe(&status(15, Vec::new())).contains("may use"));
        let text = describe(&status(12, vec![(13, "views".to_owned())]));
        assert!(text.contains("schema 12") && text.contains("  0013 views\n"), "{text}");
    }
}
