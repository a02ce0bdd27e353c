//! Sign-in: the authorization code flow with PKCE, through this machine's browser or with a pasted
//! code, or the device grant.

mod browser;
mod command;
mod device;
mod listener;
mod sign_in_method;

use std::time::Duration;

use secrecy::SecretString;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use url::Url;

pub(crate) use browser::open_browser;
pub(crate) use command::login;

use crate::{
    account_key::AccountKey,
    credential::{Cache, NegativeCache},
    error::Error,
    http::Http,
    lock::{self, LockOutcome},
    oidc::{self, AuthorizationRequest, Issuer, Tokens},
    paths::Paths,
    private_file, runtime,
    store::{Profiles, Session, SessionStore, Storage, StoragePreference},
    world::World,
};
use listener::{BoundListener, Callback, Redirect, RedirectError};
use sign_in_method::SignInMethod;

/// Timeout of a sign-in, in which the person has to act.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(10);
/// Seconds without another sign-in after one that `get-token` began and nobody finished.
const ABANDONED_BACKOFF_SECONDS: i64 = 5 * 60;
/// Maximum length of a line from stdin, in bytes.
const MAX_LINE_BYTES: u64 = 8 * 1024;

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
    // Installed before the wait, so that Ctrl-C never ends the program without a message.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Error::other(format!("cannot listen for Ctrl-C: {error}")))?;
    let ended = async {
        match method {
            SignInMethod::Browser { paste } => by_browser(&issuer, paste, world).await,
            SignInMethod::Paste => by_paste(&issuer, world).await,
            SignInMethod::Device(reason) if issuer.offers_device_grant() => {
                reason.text().into_iter().for_each(|line| world.say(line));
                device::by_device(&issuer, world).await
            }
            SignInMethod::Device(_) => {
                world.say("This broker offers no sign-in on another device; paste its code here.");
                by_paste(&issuer, world).await
            }
        }
    };
    let tokens = tokio::select! {
        ended = tokio::time::timeout(SIGN_IN_TIMEOUT, ended) => ended.map_err(|_| {
            Error::other("the sign-in was not finished within 10 minutes")
                .hint("begin again: kubectl tenant login")
        })??,
        _ = interrupt.recv() => return Err(Error::other("the sign-in was cancelled")),
    };
    let mut session =
        Session::new(account.clone(), tokens.subject, endpoints, storage, tokens.access);
    let refresh_token = tokens.refresh_token;
    let before = match replace(&sessions, &mut session, &refresh_token, preference).await {
        Ok(before) => before,
        Err(error) => {
            // Nobody could ever use or revoke this session.
            if let Some(endpoint) = &session.revocation_endpoint {
                let _ = oidc::revoke(http, endpoint, &refresh_token).await;
            }
            return Err(error);
        }
    };
    Cache::remove_account(&paths.tokens(), account)?;
    NegativeCache::new(paths).remove_account(account);
    if let Some((before, refresh_token)) = before
        && let Some(endpoint) = &before.revocation_endpoint
        && let Err(error) = oidc::revoke(http, endpoint, &refresh_token).await
    {
        world.say(format!("warning: the session before this one could not be ended: {error}"));
    }
    Ok(SignInOutcome { clock_offset: tokens.clock_offset, storage: session.storage, no_keyring })
}

/// Stores a session and returns the previous one with its refresh token.
async fn replace(
    sessions: &SessionStore,
    session: &mut Session,
    refresh_token: &SecretString,
    preference: StoragePreference,
) -> Result<Option<(Session, SecretString)>, Error> {
    let lock = lock::acquire(sessions.lock_path(), lock::LOCK_TIMEOUT, || None::<()>).await?;
    if let LockOutcome::TimedOut(who) = &lock {
        return Err(Error::other(format!(
            "another kubectl-tenant is renewing the session and does not finish (lock {who})"
        ))
        .hint("end that process, then sign in again"));
    }
    let before = sessions.read()?.map(|before| {
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

async fn by_browser(issuer: &Issuer, paste: bool, world: &mut World) -> Result<Tokens, Error> {
    let bound = BoundListener::bind().await?;
    let request = issuer.authorization_request(bound.redirect(), world.entropy)?;
    let mut listener = bound.serve(&request.state);
    world.say_lines(format!("Sign in on this page:\n\n  {}\n", request.url));
    world.say("Waiting for the browser, ten minutes at most (Ctrl-C stops) …");
    open_page(&request, world);
    let mut line = if paste && (world.stdin_is_terminal)() {
        world.say("If the browser is on another machine, paste the address that it ends at here.");
        Some(read_line(world))
    } else {
        None
    };
    loop {
        let pasted = async {
            match &mut line {
                Some(line) => line.await.unwrap_or_default(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            callback = listener.callback() => return finish(issuer, request, callback, world).await,
            text = pasted => {
                line = None;
                match pasted_redirect(&text, &request.state) {
                    Ok(redirect) => return redeem(issuer, request, redirect, world).await,
                    Err(error) if !text.trim().is_empty() => {
                        world.say(format!("{error}; still waiting for the browser"));
                        line = Some(read_line(world));
                    }
                    // The input ended, but the browser may still come back.
                    Err(_) => {}
                }
            }
        }
    }
}

/// Opens the browser in the background, because its command may run for a long time.
fn open_page(request: &AuthorizationRequest, world: &World) {
    let (browser, env, messages) = (world.browser, world.env.clone(), world.stderr.clone());
    let url = request.url.to_string();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = browser(&env, &url) {
            messages.say(format!(
                "No browser could be opened ({error}). Open the page yourself, or use --no-browser."
            ));
        }
    });
}

/// Redeems the code and shows the browser the result.
async fn finish(
    issuer: &Issuer,
    request: AuthorizationRequest,
    mut callback: Callback,
    world: &World,
) -> Result<Tokens, Error> {
    let nothing = Redirect::Refused(String::new());
    let redirect = std::mem::replace(&mut callback.redirect, nothing);
    let outcome = redeem(issuer, request, redirect, world).await;
    let shown = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
    callback.respond(&shown).await;
    outcome
}

async fn redeem(
    issuer: &Issuer,
    request: AuthorizationRequest,
    redirect: Redirect,
    world: &World,
) -> Result<Tokens, Error> {
    match redirect {
        Redirect::Code { code, iss } => {
            issuer.check_iss(iss.as_deref())?;
            issuer.redeem(request, code, &world.clock).await
        }
        Redirect::Refused(why) => Err(Error::refused(format!("the sign-in was refused: {why}"))),
    }
}

async fn by_paste(issuer: &Issuer, world: &mut World) -> Result<Tokens, Error> {
    let request = issuer.authorization_request(issuer.paste_redirect(), world.entropy)?;
    world.say_lines(format!("Sign in on this page, in any browser:\n\n  {}\n", request.url));
    world.stderr.write("Paste the code here: ");
    let line = read_line(world).await.unwrap_or_default();
    let text = line.trim();
    if text.is_empty() {
        return Err(Error::other("no code was given").hint(
            "the page shows it after the sign-in; begin again: kubectl tenant login --no-browser",
        ));
    }
    let redirect = if text.contains("://") {
        pasted_redirect(text, &request.state)?
    } else {
        // A bare code without state: PKCE and the nonce bind it to this sign-in.
        Redirect::Code { code: text.into(), iss: Some(issuer.identifier().to_owned()) }
    };
    redeem(issuer, request, redirect, world).await
}

/// Parses the redirect in a pasted address.
fn pasted_redirect(text: &str, state: &str) -> Result<Redirect, Error> {
    let read = |text: &str| {
        let url = Url::parse(text.trim()).map_err(|_| RedirectError::Incomplete)?;
        Redirect::parse(&url, state)
    };
    read(text).map_err(|why| match why {
        RedirectError::Incomplete => {
            Error::other("this is not the address that the sign-in ends at")
                .hint("copy the whole address, it holds code= and state=")
        }
        RedirectError::OtherState => Error::other("this address belongs to another sign-in")
            .hint("use the newest address in the terminal"),
    })
}

/// Reads a line in the background; the thread ends with the program if nobody types one.
fn read_line(world: &World) -> oneshot::Receiver<String> {
    let (sender, receiver) = oneshot::channel();
    let stdin = world.stdin.clone();
    std::thread::spawn(move || {
        let _ = sender.send(stdin.line(MAX_LINE_BYTES));
    });
    receiver
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
