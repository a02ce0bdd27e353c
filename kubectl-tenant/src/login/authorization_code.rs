//! Sign-in with the authorization code flow (RFC 6749 section 4.1) and PKCE (RFC 7636): the code
//! comes from a redirect to this machine, or the person pastes it.

use tokio::sync::oneshot;
use url::Url;

use super::{
    PendingSignIn,
    listener::{BoundListener, Callback, Redirect, RedirectError},
};
use crate::{
    error::Error,
    oidc::{AuthorizationRequest, Issuer, Tokens},
    world::World,
};

/// Maximum length of a line from stdin, in bytes.
const MAX_LINE_BYTES: u64 = 8 * 1024;

/// Signs in with this machine's browser. With `paste` the person may paste the redirect, too.
pub(super) async fn by_browser(
    issuer: &Issuer,
    paste: bool,
    world: &mut World,
) -> Result<PendingSignIn, Error> {
    let bound = BoundListener::bind().await?;
    let request = issuer.authorization_request(bound.redirect(), world.entropy)?;
    let mut listener = bound.serve(&request.state);
    world.print_lines(format!("Sign in on this page:\n\n  {}\n", request.url));
    world.print_message("Waiting for the browser, ten minutes at most (Ctrl-C stops) …");
    open_page(&request, world);
    let mut line = if paste && (world.stdin_is_terminal)() {
        world.print_message(
            "If the browser is on another machine, paste the address that it ends at here.",
        );
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
                    Ok(redirect) => {
                        let tokens = redeem(issuer, request, redirect, world).await?;
                        return Ok(PendingSignIn { tokens, callback: None });
                    }
                    Err(error) if !text.trim().is_empty() => {
                        world.print_message(format!("{error}; still waiting for the browser"));
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
            messages.print_message(format!(
                "No browser could be opened ({error}). Open the page yourself, or use --no-browser."
            ));
        }
    });
}

/// Redeems the code. A failure is shown in the browser at once; otherwise the browser waits until
/// the session is stored.
async fn finish(
    issuer: &Issuer,
    request: AuthorizationRequest,
    mut callback: Callback,
    world: &World,
) -> Result<PendingSignIn, Error> {
    let nothing = Redirect::Refused(String::new());
    let redirect = std::mem::replace(&mut callback.redirect, nothing);
    match redeem(issuer, request, redirect, world).await {
        Ok(tokens) => Ok(PendingSignIn { tokens, callback: Some(callback) }),
        Err(error) => {
            callback.respond(&Err(error.clone())).await;
            Err(error)
        }
    }
}

/// Redeems the code of a redirect for tokens.
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

/// Signs in with any browser: the person pastes the code, or the whole redirect.
pub(super) async fn by_paste(issuer: &Issuer, world: &mut World) -> Result<Tokens, Error> {
    let request = issuer.authorization_request(issuer.paste_redirect(), world.entropy)?;
    world.print_lines(format!("Sign in on this page, in any browser:\n\n  {}\n", request.url));
    world.stderr.write("Paste the code here: ");
    let line = read_line(world).await.unwrap_or_default();
    let text = line.trim();
    if text.is_empty() {
        return Err(Error::other("no code was given").hint(format!(
            "the page shows it after the sign-in; begin again: {}",
            issuer.command("login --no-browser")
        )));
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
