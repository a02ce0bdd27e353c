//! Loopback listener for the redirect of the authorization response (RFC 8252 section 7.3).
//!
//! It accepts one request: `GET /callback` with the state of this sign-in. Every other request gets
//! 404 or 400 and changes nothing, because browsers request icons and open connections in advance,
//! and other programs on this machine can connect as well.

use std::{net::Ipv4Addr, time::Duration};

use secrecy::SecretString;
use subtle::ConstantTimeEq;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use url::Url;

use crate::error::Error;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Timeout of reading a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// An authorization response.
#[derive(Debug)]
pub(crate) enum Redirect {
    /// An authorization code, and the issuer that it comes from (RFC 9207).
    Code {
        /// Authorization code; it works once.
        code: SecretString,
        /// Parameter `iss`: the issuer.
        iss: Option<String>,
    },
    /// An error response (RFC 6749 section 4.1.2.1).
    Refused(String),
}

/// Reason for refusing an address as the redirect of this sign-in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RedirectError {
    /// It has neither a code nor an error, or has a parameter twice.
    Incomplete,
    /// It has the state of another sign-in.
    OtherState,
}

impl Redirect {
    /// Parses the query of a redirect. The state is compared in constant time.
    pub(crate) fn parse(url: &Url, state: &str) -> Result<Self, RedirectError> {
        let one = |name: &str| -> Result<Option<String>, RedirectError> {
            let mut values = url.query_pairs().filter(|(key, _)| key == name);
            let first = values.next().map(|(_, value)| value.into_owned());
            if values.next().is_some() { Err(RedirectError::Incomplete) } else { Ok(first) }
        };
        let received = one("state")?.ok_or(RedirectError::Incomplete)?;
        if !bool::from(received.as_bytes().ct_eq(state.as_bytes())) {
            return Err(RedirectError::OtherState);
        }
        if let Some(error) = one("error")? {
            return Ok(Self::Refused(one("error_description")?.unwrap_or(error)));
        }
        let code = one("code")?.ok_or(RedirectError::Incomplete)?;
        Ok(Self::Code { code: code.into(), iss: one("iss")? })
    }
}

/// A redirect, and the connection of the browser, which waits for a page.
#[derive(Debug)]
pub(crate) struct Callback {
    pub(crate) redirect: Redirect,
    browser: TcpStream,
}

impl Callback {
    /// Sends the browser a page with the result of the sign-in.
    pub(crate) async fn respond(mut self, outcome: &Result<(), Error>) {
        let page = match outcome {
            Ok(()) => page("200 OK", "Signed in", "You can close this window."),
            Err(error) => {
                page("400 Bad Request", "Not signed in", &format!("{error}. See the terminal."))
            }
        };
        send(&mut self.browser, &page).await;
    }
}

/// The running listener; it stops when it is dropped.
pub(crate) struct Listener {
    callbacks: mpsc::Receiver<Callback>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A bound listener that does not serve yet: the state belongs to an authorization request, which
/// needs the port of this listener first.
pub(crate) struct BoundListener {
    socket: TcpListener,
    port: u16,
}

impl BoundListener {
    /// Binds a free port of 127.0.0.1. The address is numeric, because `localhost` may resolve to
    /// another one.
    pub(crate) async fn bind() -> Result<Self, Error> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let bound = socket.and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
        let (port, socket) = bound.map_err(|error| {
            Error::other(format!("cannot listen on 127.0.0.1: {error}"))
                .hint("use --no-browser and paste the code")
        })?;
        Ok(Self { socket, port })
    }

    /// The redirect URI.
    pub(crate) fn redirect(&self) -> String {
        format!("http://127.0.0.1:{}/callback", self.port)
    }

    /// Starts to serve requests.
    pub(crate) fn serve(self, state: &str) -> Listener {
        let (sender, callbacks) = mpsc::channel(1);
        let (port, state, socket) = (self.port, state.to_owned(), self.socket);
        let accepting = tokio::spawn(async move {
            // One task for each connection, because a browser may open some that it never uses.
            while let Ok((stream, _)) = socket.accept().await {
                let (sender, state) = (sender.clone(), state.clone());
                tokio::spawn(async move {
                    if let Some(callback) = handle_connection(stream, port, &state).await {
                        let _ = sender.send(callback).await;
                    }
                });
            }
        });
        Listener { callbacks, accepting }
    }
}

impl Listener {
    /// Waits for the redirect of this sign-in; never resolves if the browser does not come back.
    pub(crate) async fn callback(&mut self) -> Callback {
        match self.callbacks.recv().await {
            Some(callback) => callback,
            None => std::future::pending().await,
        }
    }
}

/// Handles one request; returns it if it is the redirect of this sign-in, else responds to it.
async fn handle_connection(mut browser: TcpStream, port: u16, state: &str) -> Option<Callback> {
    let head = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut browser)).await.ok()??;
    let not_found = page("404 Not Found", "Nothing here", "This address only ends a sign-in.");
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    // Another host name means DNS rebinding: a web page that sends requests to this machine.
    let host_is_right = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .all(|(_, host)| host.trim() == format!("127.0.0.1:{port}"));
    let url = Url::parse(&format!("http://127.0.0.1:{port}{target}")).ok();
    let url = url.filter(|url| method == "GET" && url.path() == "/callback" && host_is_right);
    let Some(url) = url else {
        send(&mut browser, &not_found).await;
        return None;
    };
    match Redirect::parse(&url, state) {
        Ok(redirect) => Some(Callback { redirect, browser }),
        Err(why) => {
            let text = match why {
                RedirectError::Incomplete => "The address is incomplete.",
                RedirectError::OtherState => {
                    "This page belongs to another sign-in. Use the newest address in the terminal."
                }
            };
            send(&mut browser, &page("400 Bad Request", "Not signed in", text)).await;
            None
        }
    }
}

/// Reads everything up to the first empty line.
async fn read_head(browser: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::with_capacity(2048);
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        if bytes.len() > MAX_HEAD_BYTES || browser.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

async fn send(browser: &mut TcpStream, page: &str) {
    // A browser that closed the connection needs no page.
    let _ = browser.write_all(page.as_bytes()).await;
    let _ = browser.shutdown().await;
}

/// Renders a whole HTTP response: a small page that loads nothing and is not cached.
fn page(status: &str, title: &str, text: &str) -> String {
    let (title, text) = (escape(title), escape(text));
    let body = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>\
         <meta name=viewport content=\"width=device-width\"><style>\
         :root{{color-scheme:light dark}}body{{font:1.1rem/1.5 system-ui,sans-serif;\
         display:grid;place-content:center;min-height:90vh;text-align:center;margin:1rem}}\
         h1{{font-size:1.6rem;margin:0}}</style><h1>{title}</h1><p>{text}</p></html>\n"
    );
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
         frame-ancestors 'none'\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.replace("PORT", &port.to_string()).as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn only_the_callback_with_the_right_state_ends_the_wait() {
        let bound = BoundListener::bind().await.unwrap();
        let port = bound.port;
        let mut listener = bound.serve("right");
        // An idle connection, as browsers open them, blocks nothing.
        let _idle = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let host = "Host: 127.0.0.1:PORT\r\n\r\n";
        for (head, status) in [
            ("GET /favicon.ico HTTP/1.1\r\n", "404"),
            ("GET / HTTP/1.1\r\n", "404"),
            ("POST /callback?code=c&state=right HTTP/1.1\r\n", "404"),
            ("GET /callback HTTP/1.1\r\n", "400"),
            ("GET /callback?code=c&state=wrong HTTP/1.1\r\n", "400"),
            ("GET /callback?code=c&code=d&state=right HTTP/1.1\r\n", "400"),
            ("GET /callback?state=right HTTP/1.1\r\n", "400"),
            ("GET /callback?code=c&state=right HTTP/1.1\r\nHost: evil.example\r\n", "404"),
        ] {
            let response = request(port, &format!("{head}{host}")).await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {response}");
        }
        assert!(listener.callbacks.is_empty());
        let browser = tokio::spawn(async move {
            request(
                port,
                &format!("GET /callback?code=c%2F1&state=right&iss=https://i HTTP/1.1\r\n{host}"),
            )
            .await
        });
        let callback = listener.callback().await;
        let Redirect::Code { code, iss } = &callback.redirect else { panic!("no code") };
        assert_eq!(secrecy::ExposeSecret::expose_secret(code), "c/1");
        assert_eq!(iss.as_deref(), Some("https://i"));
        callback.respond(&Ok(())).await;
        let page = browser.await.unwrap();
        assert!(page.contains("200 OK") && page.contains("You can close this window"), "{page}");
    }

    #[tokio::test]
    async fn error_text_is_html_escaped() {
        let bound = BoundListener::bind().await.unwrap();
        let port = bound.port;
        let mut listener = bound.serve("s");
        let browser = tokio::spawn(async move {
            request(port, "GET /callback?error=access_denied&error_description=%3Cb%3E&state=s HTTP/1.1\r\n\r\n").await
        });
        let callback = listener.callback().await;
        let Redirect::Refused(why) = &callback.redirect else { panic!("not refused") };
        let outcome = Err(Error::refused(why.clone()));
        callback.respond(&outcome).await;
        let page = browser.await.unwrap();
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
    }
}
