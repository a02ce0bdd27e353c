//! The command `logout`: ends the session at the broker first, then deletes the local files, so
//! that what is deleted here works nowhere else.

use crate::{
    account_key::AccountKey,
    broker::Broker,
    cli::accounts::Logout,
    completion,
    credential::{Cache, NegativeCache},
    error::Error,
    http::Http,
    lock, oidc,
    paths::Paths,
    runtime,
    store::{AccountFlags, Profiles, Session, SessionStore},
    world::World,
};

/// Runs `logout`.
pub(crate) fn logout(
    flags: &AccountFlags,
    options: &Logout,
    world: &mut World,
) -> Result<(), Error> {
    let paths = Paths::from_env(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let account = profiles.choose(flags, &world.env)?;
    let sessions = SessionStore::new(&paths, &account, world);
    if options.all && sessions.exists() {
        let ca = profiles.ca_file(&account, &world.env);
        let broker = Broker::new(&account, ca.as_deref(), &paths, world)?;
        let ended = runtime::block_on(broker.end_sessions(false))?.map_err(|error| {
            let hint = error.hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
            Error { hint: None, ..error }.hint(format!(
                "{hint}nothing was ended or deleted; {} signs out here only",
                flags.command("logout")
            ))
        })?;
        runtime::block_on(delete_local_state(&sessions, &account, &paths))??;
        let ended = ended_text(ended.ended);
        world.print_message(format!("Signed out everywhere at {account}: {ended}."));
        return Ok(());
    }
    let (known, revoked) = runtime::block_on(async {
        // A renewal in flight would store again what is deleted here. A renewal that hangs must not
        // keep anybody from signing out.
        let lock = lock::acquire(sessions.lock_path(), lock::LOCK_TIMEOUT, || None::<()>).await?;
        let session = sessions.read()?;
        let revoked = match &session {
            None => Ok(()),
            Some(session) => {
                let ca = profiles.ca_file(&account, &world.env);
                let broker = Broker::new(&account, ca.as_deref(), &paths, world);
                match broker {
                    Ok(broker) => end_at_broker(session, &sessions, &broker).await,
                    Err(error) => Err(error),
                }
            }
        };
        sessions.remove()?;
        drop(lock);
        Ok::<_, Error>((session.is_some(), revoked))
    })??;
    Cache::remove_account(&paths.tokens(), &account)?;
    NegativeCache::new(&paths).remove_account(&account);
    completion::clear_cache(&paths);
    if let Err(error) = revoked {
        world.print_message(format!(
            "warning: the session could not be ended at {account} ({error}); it is deleted here \
             and ends there by itself"
        ));
    }
    world.print_message(if known {
        format!("Signed out at {account}. The entries in the kubeconfig are still there.")
    } else {
        format!("Nobody was signed in at {account}.")
    });
    Ok(())
}

/// Deletes the session, tokens and cached failures of an account, and all cached completions.
pub(crate) async fn delete_local_state(
    sessions: &SessionStore,
    account: &AccountKey,
    paths: &Paths,
) -> Result<(), Error> {
    let lock = lock::acquire(sessions.lock_path(), lock::LOCK_TIMEOUT, || None::<()>).await?;
    sessions.remove()?;
    drop(lock);
    Cache::remove_account(&paths.tokens(), account)?;
    NegativeCache::new(paths).remove_account(account);
    completion::clear_cache(paths);
    Ok(())
}

/// Text for the number of revoked sessions.
pub(crate) fn ended_text(count: u32) -> String {
    if count == 1 { "1 session ended".to_owned() } else { format!("{count} sessions ended") }
}

/// Revokes a session at the broker.
async fn end_at_broker(
    session: &Session,
    sessions: &SessionStore,
    broker: &Broker,
) -> Result<(), Error> {
    let http: &Http = &broker.http;
    match (sessions.refresh_token(session)?, &session.revocation_endpoint) {
        (Some(token), Some(endpoint)) => oidc::revoke(http, endpoint, &token).await,
        (Some(_), None) => Err(Error::other("the broker has no revocation endpoint")),
        // Without a refresh token the access token revokes the session, as long as it lives.
        (None, _) => {
            let me = broker.me().await?;
            broker.end_session(me.session_id).await
        }
    }
}
