//! The command `sessions`: where the person is signed in, and ending that.

use tenant_shared::SessionInfo;

use crate::{
    account::Account,
    cli::{RevokeSession, Sessions as Options, SessionsAction},
    error::Error,
    logout,
    output::{self, Format},
    runtime,
    store::{Choice, Sessions},
    world::World,
};

/// Runs `sessions`.
pub(crate) fn sessions(choice: &Choice, options: &Options, world: &mut World) -> Result<(), Error> {
    match &options.action {
        None => list(choice, options.shown.output, world),
        Some(SessionsAction::List(shown)) => list(choice, shown.output, world),
        Some(SessionsAction::Revoke(revoked)) => revoke(choice, revoked, world),
    }
}

fn list(choice: &Choice, format: Format, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let found = runtime::block_on(account.broker.sessions())??;
    output::show(world, format, &found, |it| table(&it.items))
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
                output::plain(it.ip_address.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    output::columns(["CURRENT", "ID", "CLIENT", "SINCE", "LAST USED", "UNTIL", "ADDRESS"], &rows)
}

/// How many sessions ended, in words.
pub(crate) fn ended(count: u32) -> String {
    if count == 1 { "1 session ended".to_owned() } else { format!("{count} sessions ended") }
}

fn revoke(choice: &Choice, options: &RevokeSession, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let broker = &account.broker;
    let (said, current_ended) = runtime::block_on(async {
        let Some(id) = options.id else {
            let ended = broker.end_sessions(options.others).await?.ended;
            return Ok::<_, Error>((format!("{}.", self::ended(ended)), !options.others));
        };
        let current = broker.me().await?.session_id;
        broker.end_session(id).await?;
        Ok((format!("The session {id} has ended."), id == current))
    })??;
    if current_ended {
        let sessions = Sessions::new(&account.paths, &account.identity, world);
        runtime::block_on(logout::forget(&sessions, &account.identity, &account.paths))??;
        world.say(format!("{said} Signed out at {}.", account.identity));
    } else {
        world.say(said);
    }
    Ok(())
}
