//! Sign-in: the authorization code flow with PKCE, through this machine's browser or with a pasted
//! code, or the device grant.

mod authorization_code;
mod command;
mod device;
mod listener;
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

/// Signs in, stores the session, and revokes the previous one.
async fn sign_in(
    http: &Http,
    account: &AccountKey,
    method: SignInMethod,
    preference: StoragePreference,
    paths: &Paths,
    world: &mut World,
) -> Result<SignInOutcome, Error> {
    let sessions = SessionStore::new(paths, account, world);
    // A failure must be reported before the person types a password.
    drop(sessions.prepare()?);
    let (storage, no_keyring) = sessions.probe_storage(preference)?;
    let issuer = Issuer::discover(http, &account.broker).await?;
    let endpoints = issuer.endpoints()?;
    let tokens = wait_for_tokens(&issuer, method, world).await?;
    let mut session =
        Session::new(account.clone(), tokens.subject, endpoints, storage, tokens.access);
    session.email = tokens.email.unwrap_or_default();
    let refresh_token = tokens.refresh_token;
    let now = world.clock.now();
    let before =
        replace_or_revoke(http, &sessions, &mut session, &refresh_token, preference, now).await?;
    Cache::remove_account(&paths.tokens(), account)?;
    NegativeCache::new(paths).remove_account(account);
    completion::clear_cache(paths);
    if let Some((before, refresh_token)) = before {
        revoke_previous(http, &before, &refresh_token, world).await;
    }
    Ok(SignInOutcome { clock_offset: tokens.clock_offset, storage: session.storage, no_keyring })
}

/// Waits until the person has signed in, until [`SIGN_IN_TIMEOUT`] or until Ctrl-C.
async fn wait_for_tokens(
    issuer: &Issuer,
    method: SignInMethod,
    world: &mut World,
) -> Result<Tokens, Error> {
    // Installed before the wait, so that Ctrl-C never ends the program without a message.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Error::other(format!("cannot listen for Ctrl-C: {error}")))?;
    let tokens = request_tokens(issuer, method, world);
    tokio::select! {
        ended = tokio::time::timeout(SIGN_IN_TIMEOUT, tokens) => ended.map_err(|_| {
            Error::other("the sign-in was not finished within 10 minutes")
                .hint("begin again: kubectl tenant login")
        })?,
        _ = interrupt.recv() => Err(Error::other("the sign-in was cancelled")),
    }
}

/// Requests tokens from the issuer with this method.
async fn request_tokens(
    issuer: &Issuer,
    method: SignInMethod,
    world: &mut World,
) -> Result<Tokens, Error> {
    match method {
        SignInMethod::Browser { paste } => by_browser(issuer, paste, world).await,
        SignInMethod::Paste => by_paste(issuer, world).await,
        SignInMethod::Device(reason) if issuer.offers_device_grant() => {
            reason.text().into_iter().for_each(|line| world.print_message(line));
            device::by_device(issuer, world).await
        }
        SignInMethod::Device(_) => {
            world.print_message(
                "This broker offers no sign-in on another device; paste its code here.",
            );
            by_paste(issuer, world).await
        }
    }
}

/// Stores a session like [`replace`]. If that fails, the session is revoked, because nobody could
/// ever use or revoke it.
async fn replace_or_revoke(
    http: &Http,
    sessions: &SessionStore,
    session: &mut Session,
    refresh_token: &SecretString,
    preference: StoragePreference,
    now: i64,
) -> Result<Option<(Session, SecretString)>, Error> {
    let before = replace(sessions, session, refresh_token, preference, now).await;
    if before.is_err()
        && let Some(endpoint) = &session.revocation_endpoint
    {
        let _ = oidc::revoke(http, endpoint, refresh_token).await;
    }
    before
}

/// Stores a session and returns the previous one with its refresh token.
async fn replace(
    sessions: &SessionStore,
    session: &mut Session,
    refresh_token: &SecretString,
    preference: StoragePreference,
    now: i64,
) -> Result<Option<(Session, SecretString)>, Error> {
    let lock = lock::acquire(sessions.lock_path(), lock::LOCK_TIMEOUT, || None::<()>).await?;
    if let LockOutcome::TimedOut(who) = &lock {
        return Err(Error::other(format!(
            "another kubectl-tenant is renewing the session and does not finish (lock {who})"
        ))
        .hint("end that process, then sign in again"));
    }
    let before = sessions.read()?;
    if let Some(before) = &before {
        check_same_person(before, session, now)?;
    }
    let before = before.map(|before| {
        let token = sessions.refresh_token(&before).ok().flatten();
        (before, token)
    });
    let how = (preference.keyring_timeout(), !preference.explicit);
    sessions.save(sessions.prepare()?, session, refresh_token, how)?;
    if let Some((before, _)) = &before
        && session.storage != Storage::Keyring
    {
        sessions.clear_keyring(before);
    }
    Ok(before.and_then(|(before, token)| Some((before, token?))))
}

/// Refuses to replace the session of another person: they would lose it, and the contexts of the
/// account in the kubeconfig would act as somebody else without a word.
fn check_same_person(before: &Session, session: &Session, now: i64) -> Result<(), Error> {
    if before.subject == session.subject || before.is_over(now) {
        return Ok(());
    }
    let named = |email: &str| match email {
        "" => "another person".to_owned(),
        email => email.to_owned(),
    };
    let (account, broker) = (before.account(), &before.broker);
    Err(Error::other(format!(
        "you signed in as {}, but {account} has the session of {}; nothing was replaced",
        named(&session.email),
        named(&before.email)
    ))
    .hint(format!(
        "to keep both, sign in to another account: kubectl tenant login --broker {broker} --profile \
         NAME; to replace the session, end it first: kubectl tenant logout {}",
        account.flags()
    )))
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
        sign_in(&http, account, method, preference, paths, world).await
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
