//! Sign-in: the authorization code flow with PKCE, through this machine's browser or with a pasted
//! code, or the device grant.

mod authorization_code;
mod command;
mod device;
mod listener;
mod person_check;
mod sign_in_method;

use std::time::Duration;

use secrecy::SecretString;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use command::login;

use crate::{
    account_key::AccountKey,
    completion,
    credential::{Cache, NegativeCache},
    error::Error,
    http::Http,
    lock::{self, LockOutcome},
    oidc::{self, Issuer, Tokens},
    paths::Paths,
    private_file, runtime,
    store::{Profiles, Session, SessionStore, Storage, StoragePreference},
    world::World,
};
use authorization_code::{by_browser, by_paste};
use listener::Callback;
use person_check::{SignInTrigger, check_person};
use sign_in_method::SignInMethod;

/// Timeout of a sign-in, in which the person has to act.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(10);
/// Seconds without another sign-in after one that `get-token` began and nobody finished.
const ABANDONED_BACKOFF_SECONDS: i64 = 5 * 60;

/// Result of a sign-in.
struct SignInOutcome {
    /// Seconds by which the broker's clock is ahead of this machine's.
    clock_offset: i64,
    /// Where the session is stored.
    storage: Storage,
    /// Reason for not using the keyring, if it was tried without being asked for.
    no_keyring: Option<String>,
}

/// A sign-in whose session is not stored yet.
struct PendingSignIn {
    tokens: Tokens,
    /// The browser on this machine, which waits for a page with the result.
    callback: Option<Callback>,
}

/// Result of storing a session.
struct StoredSession {
    /// The session before, and its refresh token, if it has to be revoked.
    previous: Option<(Session, SecretString)>,
    /// Warning that the account has the session of another person than before.
    warning: Option<String>,
}

/// Signs in, stores the session, and revokes the previous one.
async fn sign_in(
    http: &Http,
    account: &AccountKey,
    method: SignInMethod,
    preference: StoragePreference,
    trigger: SignInTrigger,
    paths: &Paths,
    world: &mut World,
) -> Result<SignInOutcome, Error> {
    let sessions = SessionStore::new(paths, account, world);
    // A failure must be reported before the person types a password.
    drop(sessions.prepare()?);
    sessions.read_ended()?;
    let (storage, no_keyring) = sessions.probe_storage(preference)?;
    let issuer = Issuer::discover(http, &account.broker).await?;
    let endpoints = issuer.endpoints()?;
    let PendingSignIn { tokens, callback } = wait_for_tokens(&issuer, method, world).await?;
    let mut session =
        Session::new(account.clone(), tokens.subject, endpoints, storage, tokens.access);
    session.email = tokens.email.unwrap_or_default();
    let refresh_token = tokens.refresh_token;
    let now = world.clock.now();
    let stored =
        store_session(&sessions, &mut session, &refresh_token, preference, (trigger, now)).await;
    if let Some(callback) = callback {
        // Not earlier, because the page must not show a success that is refused.
        callback.respond(&stored.as_ref().map(|_| ()).map_err(Clone::clone)).await;
    }
    let StoredSession { previous, warning } = match stored {
        Ok(stored) => stored,
        Err(error) => {
            revoke_unstored(http, &session, &refresh_token, world).await;
            return Err(error);
        }
    };
    Cache::remove_account(&paths.tokens(), account)?;
    NegativeCache::new(paths).remove_account(account);
    completion::clear_cache(paths);
    if let Some((previous, refresh_token)) = previous {
        revoke_previous(http, &previous, &refresh_token, world).await;
    }
    if let Some(warning) = warning {
        world.print_message(warning);
    }
    Ok(SignInOutcome { clock_offset: tokens.clock_offset, storage: session.storage, no_keyring })
}

/// Waits until the person has signed in, until [`SIGN_IN_TIMEOUT`] or until Ctrl-C.
async fn wait_for_tokens(
    issuer: &Issuer,
    method: SignInMethod,
    world: &mut World,
) -> Result<PendingSignIn, Error> {
    // Installed before the wait, so that Ctrl-C never ends the program without a message.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Error::other(format!("cannot listen for Ctrl-C: {error}")))?;
    let tokens = request_tokens(issuer, method, world);
    tokio::select! {
        ended = tokio::time::timeout(SIGN_IN_TIMEOUT, tokens) => ended.map_err(|_| {
            Error::other("the sign-in was not finished within 10 minutes")
                .hint(format!("begin again: {}", issuer.command("login")))
        })?,
        _ = interrupt.recv() => Err(Error::other("the sign-in was cancelled")),
    }
}

/// Requests tokens from the issuer with this method.
async fn request_tokens(
    issuer: &Issuer,
    method: SignInMethod,
    world: &mut World,
) -> Result<PendingSignIn, Error> {
    let tokens = match method {
        SignInMethod::Browser { paste } => return by_browser(issuer, paste, world).await,
        SignInMethod::Paste => by_paste(issuer, world).await?,
        SignInMethod::Device(reason) if issuer.offers_device_grant() => {
            reason.text().into_iter().for_each(|line| world.print_message(line));
            device::by_device(issuer, world).await?
        }
        SignInMethod::Device(_) => {
            world.print_message(
                "This broker offers no sign-in on another device; paste its code here.",
            );
            by_paste(issuer, world).await?
        }
    };
    Ok(PendingSignIn { tokens, callback: None })
}

/// Stores a session in the place of the previous one, unless that is refused because of its person.
async fn store_session(
    sessions: &SessionStore,
    session: &mut Session,
    refresh_token: &SecretString,
    preference: StoragePreference,
    (trigger, now): (SignInTrigger, i64),
) -> Result<StoredSession, Error> {
    let lock = lock::acquire(sessions.lock_path(), lock::LOCK_TIMEOUT, || None::<()>).await?;
    if let LockOutcome::TimedOut(who) = &lock {
        return Err(Error::other(format!(
            "another kubectl-tenant is renewing the session and does not finish (lock {who})"
        ))
        .hint("end that process, then sign in again"));
    }
    let before = sessions.read()?;
    let ended = sessions.read_ended()?;
    let warning = check_person(before.as_ref(), ended, session, (trigger, now))?;
    let before = before.map(|before| {
        let token = sessions.refresh_token(&before).ok().flatten();
        (before, token)
    });
    let how = (preference.keyring_timeout(), !preference.explicit);
    sessions.save(sessions.prepare()?, session, refresh_token, how)?;
    sessions.forget_ended();
    if let Some((before, _)) = &before
        && session.storage != Storage::Keyring
    {
        sessions.clear_keyring(before);
    }
    let previous = before.and_then(|(before, token)| Some((before, token?)));
    Ok(StoredSession { previous, warning })
}

/// Revokes a session that was not stored, because nobody could ever use or revoke it. A failure is
/// a warning, because the reason for not storing it is the error.
async fn revoke_unstored(
    http: &Http,
    session: &Session,
    refresh_token: &SecretString,
    world: &World,
) {
    let revoked = match &session.revocation_endpoint {
        Some(endpoint) => oidc::revoke(http, endpoint, refresh_token).await,
        None => Err(Error::other("the broker has no revocation endpoint")),
    };
    if let Err(error) = revoked {
        world.print_message(format!(
            "warning: the new session could not be ended at the broker: {error}. It is not \
             used here and ends there by itself; to end it now, sign in at {}",
            session.broker.join("/account")
        ));
    }
}

/// Revokes the session before this one. A failure is a warning, because the new session is stored.
async fn revoke_previous(
    http: &Http,
    before: &Session,
    refresh_token: &SecretString,
    world: &World,
) {
    if let Some(endpoint) = &before.revocation_endpoint
        && let Err(error) = oidc::revoke(http, endpoint, refresh_token).await
    {
        world.print_message(format!(
            "warning: the session before this one could not be ended: {error}"
        ));
    }
}

/// Signs in from `get-token`: one sign-in at a time, and none for a while after one that was not
/// finished. Returns [`None`] if it was not tried.
pub(crate) fn from_get_token(
    account: &AccountKey,
    paths: &Paths,
    world: &mut World,
) -> Result<Option<()>, Error> {
    let name = account.digest();
    let abandoned = paths.state.join(format!("abandoned-{name}"));
    let now = world.clock.now();
    let last = std::fs::read_to_string(&abandoned).ok().and_then(|text| text.parse::<i64>().ok());
    if last.is_some_and(|last| (0..ABANDONED_BACKOFF_SECONDS).contains(&(now - last))) {
        return Ok(None);
    }
    let lock_path = paths.locks().join(format!("login-{name}.lock"));
    let signed_in = || SessionStore::new(paths, account, world).exists().then_some(());
    let outcome = runtime::block_on(lock::acquire(&lock_path, lock::LOCK_TIMEOUT, signed_in))??;
    let _lock = match outcome {
        LockOutcome::Acquired(lock) => lock,
        LockOutcome::Satisfied(()) => return Ok(Some(())),
        LockOutcome::TimedOut(_) => return Ok(None),
    };
    if SessionStore::new(paths, account, world).exists() {
        return Ok(Some(()));
    }
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let ca = profiles.ca_file(account, &world.env);
    let preference =
        StoragePreference::resolve(None, profiles.get(account).storage, world.keyring, &world.env)?;
    // Standard input belongs to kubectl, so nothing can be pasted here.
    let method = match sign_in_method::detect(world) {
        SignInMethod::Device(reason) => SignInMethod::Device(reason),
        SignInMethod::Browser { .. } | SignInMethod::Paste => {
            SignInMethod::Browser { paste: false }
        }
    };
    let ended = runtime::block_on(async {
        let http = Http::new(account, ca.as_deref())?;
        let trigger = SignInTrigger::GetToken;
        sign_in(&http, account, method, preference, trigger, paths, world).await
    })?;
    match ended {
        Ok(_) => {
            private_file::remove(&abandoned)?;
            Ok(Some(()))
        }
        Err(error) => {
            let _ = private_file::write(&abandoned, world.clock.now().to_string().as_bytes());
            Err(error)
        }
    }
}
