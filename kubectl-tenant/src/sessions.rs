//! The command `sessions`: lists and revokes the sessions of a user.

use tenant_shared::{SessionInfo, SessionList};

use crate::{
    account::Account,
    broker::Page,
    cli::sessions::{ListedSessions, RevokeSession, Sessions as Options, SessionsAction},
    error::Error,
    logout, output, runtime,
    store::{AccountFlags, SessionStore},
    users,
    world::World,
};

/// Runs `sessions`.
pub(crate) fn sessions(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(flags, &options.listed, world),
        Some(SessionsAction::List(listed)) => list(flags, listed, world),
        Some(SessionsAction::Revoke(revoked)) => revoke(flags, revoked, world),
    }
}

fn list(flags: &AccountFlags, options: &ListedSessions, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker.with_list_timeout();
    let Page { items, next_cursor, more } = runtime::block_on(async {
        let user = match &options.user {
            Some(name) => Some(users::resolve(broker, name).await?),
            None => None,
        };
        broker.sessions(user, options.listed.limit).await
    })??;
    let found = SessionList { items, next_cursor };
    output::show(world, options.listed.shown.output, &found, |it| table(&it.items))?;
    output::report_truncation(world, found.items.len(), more);
    Ok(())
}

fn table(sessions: &[SessionInfo]) -> String {
    let rows: Vec<[String; 7]> = sessions
        .iter()
        .map(|it| {
            [
                if it.current { "*".to_owned() } else { String::new() },
                it.id.to_string(),
                it.client.clone(),
                it.created_at.to_string(),
                it.last_used_at.to_string(),
                it.expires_at.to_string(),
                it.ip_address.clone().unwrap_or_default(),
            ]
        })
        .collect();
    output::columns(["CURRENT", "ID", "CLIENT", "SINCE", "LAST USED", "UNTIL", "ADDRESS"], &rows)
}

fn revoke(flags: &AccountFlags, options: &RevokeSession, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker;
    if let Some(name) = &options.user {
        let ended = runtime::block_on(async {
            let user = users::resolve(broker, name).await?;
            broker.end_sessions_of(user, options.id).await
        })??;
        return match (options.id, ended.ended) {
            (Some(id), 0) => Err(Error::refused(format!("{name} has no session {id}"))
                .hint(format!("list them: {}", flags.command(&format!("sessions --user {name}"))))),
            (_, count) => {
                world.print_message(format!("{}.", logout::ended_text(count)));
                let revoke = format!("credentials revoke ID --workspace {name}");
                explain_tokens(count, &flags.command(&revoke), world);
                Ok(())
            }
        };
    }
    let (said, count, current_ended) = runtime::block_on(async {
        let Some(id) = options.id else {
            let ended = broker.end_sessions(options.others).await?.ended;
            let said = format!("{}.", logout::ended_text(ended));
            return Ok::<_, Error>((said, ended, !options.others));
        };
        let current = broker.me().await?.session_id;
        broker.end_session(id).await?;
        Ok((format!("The session {id} has ended."), 1, id == current))
    })??;
    if current_ended {
        let sessions = SessionStore::new(&account.paths, &account.key, world);
        runtime::block_on(logout::delete_local_state(&sessions, &account.key, &account.paths))??;
        world.print_message(format!("{said} Signed out at {}.", account.key));
    } else {
        world.print_message(said);
    }
    explain_tokens(count, &flags.command("credentials revoke ID"), world);
    Ok(())
}

/// Explains what the end of sessions does not end. `revoke` is the command that does.
fn explain_tokens(ended: u32, revoke: &str, world: &World) {
    if ended > 0 {
        world.print_message(format!(
            "Kubernetes tokens that were issued already, also those in downloaded kubeconfigs, \
             work at the API server until they expire; to revoke one: {revoke}"
        ));
    }
}
