//! Signing in: authorization code with PKCE, through this machine's browser or by paste, or the
//! device grant.

mod browser;
mod command;
mod device;
mod listener;
mod way;

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
    credential::{Cache, Failures},
    error::Error,
    http::Http,
    identity::Identity,
    lock::{self, Outcome},
    oidc::{self, Attempt, Issuer, Tokens},
    paths::Paths,
    private_file, runtime,
    store::{Profiles, Session, Sessions, Storage, Wish},
    world::World,
};
use listener::{Bound, Callback, NotOurs, Redirect};
use way::Way;

/// How long a person may take.
const LONGEST_SIGN_IN: Duration = Duration::from_mins(10);
/// After a sign-in that `get-token` began and nobody finished: so many seconds without another.
const ABANDONED_PAUSE: i64 = 5 * 60;
/// Longest line that is read from stdin, in bytes.
const LONGEST_LINE: u64 = 8 * 1024;

/// How a sign-in went.
struct SignedIn {
    /// Seconds by which the broker's clock is ahead of ours.
    clock_offset: i64,
    /// Where the session is now.
    storage: Storage,
    /// Why it is not in the keyring, if one was tried that nobody asked for.
    no_keyring: Option<String>,
}

/// Signs in, stores the session, and revokes the one before.
async fn sign_in(
    http: &Http,
    identity: &Identity,
    way: Way,
    wish: Wish,
    paths: &Paths,
    world: &mut World,
) -> Result<SignedIn, Error> {
    let sessions = Sessions::new(paths, identity, world);
    // Better known now than after the person has typed a password.
    drop(sessions.prepare()?);
    let (storage, no_keyring) = sessions.probe(wish)?;
    let issuer = Issuer::discover(http, &identity.broker).await?;
    let endpoints = issuer.endpoints()?;
    // From now on, so that no moment is left in which it would end the program without a word.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Error::other(format!("cannot listen for Ctrl-C: {error}")))?;
    let ended = async {
        match way {
            Way::Browser { paste } => by_browser(&issuer, paste, world).await,
            Way::Paste => by_paste(&issuer, world).await,
            Way::Device(why) if issuer.offers_device_grant() => {
                why.text().into_iter().for_each(|line| world.say(line));
                device::by_device(&issuer, world).await
            }
            Way::Device(_) => {
                world.say("This broker offers no sign-in on another device; paste its code here.");
                by_paste(&issuer, world).await
            }
        }
    };
    let tokens = tokio::select! {
        ended = tokio::time::timeout(LONGEST_SIGN_IN, ended) => ended.map_err(|_| {
            Error::other("nobody finished the sign-in within 10 minutes")
                .hint("begin again: kubectl tenant login")
        })??,
        _ = interrupt.recv() => return Err(Error::other("the sign-in was cancelled")),
    };
    let mut session =
        Session::new(identity.clone(), tokens.subject, endpoints, storage, tokens.access);
    let refresh_token = tokens.refresh_token;
    let before = match replace(&sessions, &mut session, &refresh_token, wish).await {
        Ok(before) => before,
        Err(error) => {
            // Nobody could ever use it or end it.
            if let Some(endpoint) = &session.revocation_endpoint {
                let _ = oidc::revoke(http, endpoint, &refresh_token).await;
            }
            return Err(error);
        }
    };
    Cache::forget(&paths.tokens(), identity)?;
    Failures::new(paths).forget(identity);
    if let Some((before, refresh_token)) = before
        && let Some(endpoint) = &before.revocation_endpoint
        && let Err(error) = oidc::revoke(http, endpoint, &refresh_token).await
    {
        world.say(format!("warning: the session before this one could not be ended: {error}"));
    }
    Ok(SignedIn { clock_offset: tokens.clock_offset, storage: session.storage, no_keyring })
}

/// Stores a session in the place of another, which is returned with its refresh token.
async fn replace(
    sessions: &Sessions,
    session: &mut Session,
    refresh_token: &SecretString,
    wish: Wish,
) -> Result<Option<(Session, SecretString)>, Error> {
    let lock = lock::acquire(sessions.lock_path(), lock::LONGEST_WAIT, || None::<()>).await?;
    if let Outcome::Busy(who) = &lock {
        return Err(Error::other(format!(
            "another kubectl-tenant is renewing the session and does not finish (lock {who})"
        ))
        .hint("end that process, then sign in again"));
    }
    let before = sessions.read()?.map(|before| {
        let token = sessions.refresh_token(&before).ok().flatten();
        (before, token)
    });
    let how = (wish.patience(), !wish.chosen);
    sessions.save(sessions.prepare()?, session, refresh_token, how)?;
    if let Some((before, _)) = &before
        && session.storage != Storage::Keyring
    {
        sessions.clear_keyring(before);
    }
    Ok(before.and_then(|(before, token)| Some((before, token?))))
}

async fn by_browser(issuer: &Issuer, paste: bool, world: &mut World) -> Result<Tokens, Error> {
    let bound = Bound::any().await?;
    let attempt = issuer.begin(bound.redirect(), world.entropy)?;
    let mut listener = bound.serve(&attempt.state);
    world.say_lines(format!("Sign in on this page:\n\n  {}\n", attempt.url));
    world.say("Waiting for the browser, ten minutes at most (Ctrl-C stops) …");
    open_page(&attempt, world);
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
            callback = listener.callback() => return finish(issuer, attempt, callback, world).await,
            text = pasted => {
                line = None;
                match pasted_redirect(&text, &attempt.state) {
                    Ok(redirect) => return redeem(issuer, attempt, redirect, world).await,
                    Err(error) if !text.trim().is_empty() => {
                        world.say(format!("{error}; still waiting for the browser"));
                        line = Some(read_line(world));
                    }
                    // The end of the input: there is still the browser.
                    Err(_) => {}
                }
            }
        }
    }
}

/// Starts the browser beside everything else: it may run as long as it likes.
fn open_page(attempt: &Attempt, world: &World) {
    let (browser, env, messages) = (world.browser, world.env.clone(), world.stderr.clone());
    let url = attempt.url.to_string();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = browser(&env, &url) {
            messages.say(format!(
                "No browser could be opened ({error}). Open the page yourself, or use --no-browser."
            ));
        }
    });
}

/// Redeems the code and shows the browser how it went.
async fn finish(
    issuer: &Issuer,
    attempt: Attempt,
    mut callback: Callback,
    world: &World,
) -> Result<Tokens, Error> {
    let nothing = Redirect::Refused(String::new());
    let redirect = std::mem::replace(&mut callback.redirect, nothing);
    let outcome = redeem(issuer, attempt, redirect, world).await;
    let shown = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
    callback.show(&shown).await;
    outcome
}

async fn redeem(
    issuer: &Issuer,
    attempt: Attempt,
    redirect: Redirect,
    world: &World,
) -> Result<Tokens, Error> {
    match redirect {
        Redirect::Code { code, iss } => {
            issuer.check_sender(iss.as_deref())?;
            issuer.redeem(attempt, code, &world.clock).await
        }
        Redirect::Refused(why) => Err(Error::refused(format!("the sign-in was refused: {why}"))),
    }
}

async fn by_paste(issuer: &Issuer, world: &mut World) -> Result<Tokens, Error> {
    let attempt = issuer.begin(issuer.paste_redirect(), world.entropy)?;
    world.say_lines(format!("Sign in on this page, in any browser:\n\n  {}\n", attempt.url));
    world.stderr.write("Paste the code here: ");
    let line = read_line(world).await.unwrap_or_default();
    let text = line.trim();
    if text.is_empty() {
        return Err(Error::other("no code was given").hint(
            "the page shows it after the sign-in; begin again: kubectl tenant login --no-browser",
        ));
    }
    let redirect = if text.contains("://") {
        pasted_redirect(text, &attempt.state)?
    } else {
        // A bare code: PKCE and the nonce bind it to this sign-in.
        Redirect::Code { code: text.into(), iss: Some(issuer.name().to_owned()) }
    };
    redeem(issuer, attempt, redirect, world).await
}

/// The redirect in a pasted address.
fn pasted_redirect(text: &str, state: &str) -> Result<Redirect, Error> {
    let read = |text: &str| {
        let url = Url::parse(text.trim()).map_err(|_| NotOurs::Incomplete)?;
        Redirect::read(&url, state)
    };
    read(text).map_err(|why| match why {
        NotOurs::Incomplete => Error::other("this is not the address that the sign-in ends at")
            .hint("copy the whole address, it holds code= and state="),
        NotOurs::OtherState => Error::other("this address belongs to another sign-in")
            .hint("use the newest address in the terminal"),
    })
}

/// Reads a line in the background; the thread ends with the program if nobody types one.
fn read_line(world: &World) -> oneshot::Receiver<String> {
    let (sender, receiver) = oneshot::channel();
    let stdin = world.stdin.clone();
    std::thread::spawn(move || {
        let _ = sender.send(stdin.line(LONGEST_LINE));
    });
    receiver
}

/// A sign-in that `get-token` begins: one at a time, and not again soon if nobody finished it.
/// [`None`] if it was not tried.
pub(crate) fn from_get_token(
    identity: &Identity,
    paths: &Paths,
    world: &mut World,
) -> Result<Option<()>, Error> {
    let name = identity.key();
    let abandoned = paths.state.join(format!("abandoned-{name}"));
    let now = world.clock.now();
    let last = std::fs::read_to_string(&abandoned).ok().and_then(|text| text.parse::<i64>().ok());
    if last.is_some_and(|last| (0..ABANDONED_PAUSE).contains(&(now - last))) {
        return Ok(None);
    }
    let lock_path = paths.locks().join(format!("login-{name}.lock"));
    let signed_in = || Sessions::new(paths, identity, world).exists().then_some(());
    let outcome = runtime::block_on(lock::acquire(&lock_path, lock::LONGEST_WAIT, signed_in))??;
    let _lock = match outcome {
        Outcome::Held(lock) => lock,
        Outcome::Answered(()) => return Ok(Some(())),
        Outcome::Busy(_) => return Ok(None),
    };
    if Sessions::new(paths, identity, world).exists() {
        return Ok(Some(()));
    }
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let ca = profiles.ca_file(identity, &world.env);
    let wish = Wish::of(None, profiles.of(identity).storage, world.keyring, &world.env)?;
    // Standard input is kubectl's, so nothing is pasted here.
    let way = match way::fitting(world) {
        Way::Device(why) => Way::Device(why),
        Way::Browser { .. } | Way::Paste => Way::Browser { paste: false },
    };
    let ended = runtime::block_on(async {
        let http = Http::new(identity, ca.as_deref())?;
        sign_in(&http, identity, way, wish, paths, world).await
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
