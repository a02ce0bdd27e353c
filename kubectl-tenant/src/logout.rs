//! The command `logout`: the broker first, so that what is deleted here works nowhere else either.

use crate::{
    broker::Broker,
    cli::Logout,
    credential::{Cache, Failures},
    error::Error,
    http::Http,
    identity::Identity,
    lock, oidc,
    paths::Paths,
    runtime,
    store::{Choice, Profiles, Session, Sessions},
    world::World,
};

/// Runs `logout`.
pub(crate) fn logout(choice: &Choice, options: &Logout, world: &mut World) -> Result<(), Error> {
    let paths = Paths::of(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let identity = profiles.choose(choice, &world.env)?;
    let sessions = Sessions::new(&paths, &identity, world);
    if options.all && sessions.exists() {
        let ca = profiles.ca_file(&identity, &world.env);
        let broker = Broker::new(&identity, ca.as_deref(), &paths, world)?;
        let ended = runtime::block_on(broker.end_sessions(false))?.map_err(|error| {
            let hint = error.hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
            Error { hint: None, ..error }.hint(format!(
                "{hint}nothing was ended or deleted; kubectl tenant logout signs out here only"
            ))
        })?;
        runtime::block_on(forget(&sessions, &identity, &paths))??;
        let ended = crate::sessions::ended(ended.ended);
        world.say(format!("Signed out everywhere at {identity}: {ended}."));
        return Ok(());
    }
    let (known, revoked) = runtime::block_on(async {
        // A renewal that is under way would put back what is deleted here. One that does not end
        // must not keep anybody from signing out.
        let lock = lock::acquire(sessions.lock_path(), lock::LONGEST_WAIT, || None::<()>).await?;
        let session = sessions.read()?;
        let revoked = match &session {
            None => Ok(()),
            Some(session) => {
                let ca = profiles.ca_file(&identity, &world.env);
                let broker = Broker::new(&identity, ca.as_deref(), &paths, world);
                match broker {
                    Ok(broker) => end(session, &sessions, &broker).await,
                    Err(error) => Err(error),
                }
            }
        };
        sessions.remove()?;
        drop(lock);
        Ok::<_, Error>((session.is_some(), revoked))
    })??;
    Cache::forget(&paths.tokens(), &identity)?;
    Failures::new(&paths).forget(&identity);
    if let Err(error) = revoked {
        world.say(format!(
            "warning: the session could not be ended at {identity} ({error}); it is deleted here \
             and ends there by itself"
        ));
    }
    world.say(if known {
        format!("Signed out at {identity}. The entries in the kubeconfig are still there.")
    } else {
        format!("Nobody was signed in at {identity}.")
    });
    Ok(())
}

/// Deletes everything of an account that its sign-in brought.
pub(crate) async fn forget(
    sessions: &Sessions,
    identity: &Identity,
    paths: &Paths,
) -> Result<(), Error> {
    let lock = lock::acquire(sessions.lock_path(), lock::LONGEST_WAIT, || None::<()>).await?;
    sessions.remove()?;
    drop(lock);
    Cache::forget(&paths.tokens(), identity)?;
    Failures::new(paths).forget(identity);
    Ok(())
}

/// Ends a session at the broker.
async fn end(session: &Session, sessions: &Sessions, broker: &Broker) -> Result<(), Error> {
    let http: &Http = &broker.http;
    match (sessions.refresh_token(session)?, &session.revocation_endpoint) {
        (Some(token), Some(endpoint)) => oidc::revoke(http, endpoint, &token).await,
        (Some(_), None) => Err(Error::other("it has no way to end a session")),
        // Nothing long-lived was kept: the access token can do it, as long as it lives.
        (None, _) => {
            let me = broker.me().await?;
            broker.end_session(me.session_id).await
        }
    }
}
