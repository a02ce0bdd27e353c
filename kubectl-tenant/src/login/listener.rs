//! The loopback address to which the browser comes back (RFC 8252 section 7.3).
//!
//! It answers one thing: `GET /callback` with the state of this sign-in. Everything else gets 404
//! or 400 and changes nothing: browsers ask for icons and open connections in advance, and other
//! programs of this machine may knock.

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

/// Longest head of a request, in bytes.
const LARGEST_HEAD: usize = 16 * 1024;
/// Longest time for one.
const LONGEST_HEAD: Duration = Duration::from_secs(10);

/// What the issuer sent back with the person's browser.
#[derive(Debug)]
pub(crate) enum Redirect {
    /// The code to redeem, and who says so (RFC 9207).
    Code {
        /// Works once.
        code: SecretString,
        /// The issuer.
        iss: Option<String>,
    },
    /// The issuer said no (RFC 6749 section 4.1.2.1).
    Refused(String),
}

/// Why an address is not the end of this sign-in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOurs {
    /// It carries no code and no error, or one of its parameters twice.
    Incomplete,
    /// It carries the state of another sign-in.
    OtherState,
}

impl Redirect {
    /// Reads the query of a redirect. The state is compared in constant time.
    pub(crate) fn read(url: &Url, state: &str) -> Result<Self, NotOurs> {
        let one = |name: &str| -> Result<Option<String>, NotOurs> {
            let mut values = url.query_pairs().filter(|(key, _)| key == name);
            let first = values.next().map(|(_, value)| value.into_owned());
            if values.next().is_some() { Err(NotOurs::Incomplete) } else { Ok(first) }
        };
        let given = one("state")?.ok_or(NotOurs::Incomplete)?;
        if !bool::from(given.as_bytes().ct_eq(state.as_bytes())) {
            return Err(NotOurs::OtherState);
        }
        if let Some(error) = one("error")? {
            return Ok(Self::Refused(one("error_description")?.unwrap_or(error)));
        }
        let code = one("code")?.ok_or(NotOurs::Incomplete)?;
        Ok(Self::Code { code: code.into(), iss: one("iss")? })
    }
}

/// A redirect and the browser that brought it, which waits for a page.
#[derive(Debug)]
pub(crate) struct Callback {
    pub(crate) redirect: Redirect,
    browser: TcpStream,
}

impl Callback {
    /// Shows how the sign-in ended.
    pub(crate) async fn show(mut self, outcome: &Result<(), Error>) {
        let page = match outcome {
            Ok(()) => page("200 OK", "Signed in", "You can close this window."),
            Err(error) => {
                page("400 Bad Request", "Not signed in", &format!("{error}. See the terminal."))
            }
        };
        send(&mut self.browser, &page).await;
    }
}

/// The address, until it is dropped.
pub(crate) struct Listener {
    callbacks: mpsc::Receiver<Callback>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A listener whose state is not known yet: the port has to be in the request that the state is
/// made for.
pub(crate) struct Bound {
    socket: TcpListener,
    port: u16,
}

impl Bound {
    /// Any free port of 127.0.0.1: the number, not `localhost`, which may mean another address.
    pub(crate) async fn any() -> Result<Self, Error> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let bound = socket.and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
        let (port, socket) = bound.map_err(|error| {
            Error::other(format!("cannot listen on 127.0.0.1: {error}"))
                .hint("use --no-browser and paste the code")
        })?;
        Ok(Self { socket, port })
    }

    /// The redirect address.
    pub(crate) fn redirect(&self) -> String {
        format!("http://127.0.0.1:{}/callback", self.port)
    }

    /// Begins to answer.
    pub(crate) fn serve(self, state: &str) -> Listener {
        let (sender, callbacks) = mpsc::channel(1);
        let (port, state, socket) = (self.port, state.to_owned(), self.socket);
        let accepting = tokio::spawn(async move {
            // Each connection by itself: a browser may open some that it never uses.
            while let Ok((stream, _)) = socket.accept().await {
                let (sender, state) = (sender.clone(), state.clone());
                tokio::spawn(async move {
                    if let Some(callback) = answer(stream, port, &state).await {
                        let _ = sender.send(callback).await;
                    }
                });
            }
        });
        Listener { callbacks, accepting }
    }
}

impl Listener {
    /// The redirect of this sign-in. Never resolves if the browser does not come back.
    pub(crate) async fn callback(&mut self) -> Callback {
        match self.callbacks.recv().await {
            Some(callback) => callback,
            None => std::future::pending().await,
        }
    }
}

/// Reads one request; answers it itself unless it is the one that is waited for.
async fn answer(mut browser: TcpStream, port: u16, state: &str) -> Option<Callback> {
    let head = tokio::time::timeout(LONGEST_HEAD, head(&mut browser)).await.ok()??;
    let not_found = page("404 Not Found", "Nothing here", "This address only ends a sign-in.");
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    // Another name for this address would be a web page that talks to this machine.
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
    match Redirect::read(&url, state) {
        Ok(redirect) => Some(Callback { redirect, browser }),
        Err(why) => {
            let text = match why {
                NotOurs::Incomplete => "The address is incomplete.",
                NotOurs::OtherState => {
                    "This page belongs to another sign-in. Use the newest address in the terminal."
                }
            };
            send(&mut browser, &page("400 Bad Request", "Not signed in", text)).await;
            None
        }
    }
}

/// Everything up to the first empty line.
async fn head(browser: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::with_capacity(2048);
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        if bytes.len() > LARGEST_HEAD || browser.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

async fn send(browser: &mut TcpStream, page: &str) {
    // A browser that went away has seen what it wanted.
    let _ = browser.write_all(page.as_bytes()).await;
    let _ = browser.shutdown().await;
}

/// A whole answer with a small page that loads nothing and remembers nothing.
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

    async fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.replace("PORT", &port.to_string()).as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_callback_with_the_right_state_ends_the_wait() {
        let bound = Bound::any().await.unwrap();
        let port = bound.port;
        let mut listener = bound.serve("right");
        // An idle connection, as browsers open them, is in nobody's way.
        let _idle = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let host = "Host: 127.0.0.1:PORT\r\n\r\n";
        for (request, status) in [
            ("GET /favicon.ico HTTP/1.1\r\n", "404"),
            ("GET / HTTP/1.1\r\n", "404"),
            ("POST /callback?code=c&state=right HTTP/1.1\r\n", "404"),
            ("GET /callback HTTP/1.1\r\n", "400"),
            ("GET /callback?code=c&state=wrong HTTP/1.1\r\n", "400"),
            ("GET /callback?code=c&code=d&state=right HTTP/1.1\r\n", "400"),
            ("GET /callback?state=right HTTP/1.1\r\n", "400"),
            ("GET /callback?code=c&state=right HTTP/1.1\r\nHost: evil.example\r\n", "404"),
        ] {
            let answer = ask(port, &format!("{request}{host}")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        }
        assert!(listener.callbacks.is_empty());
        let browser = tokio::spawn(async move {
            ask(
                port,
                &format!("GET /callback?code=c%2F1&state=right&iss=https://i HTTP/1.1\r\n{host}"),
            )
            .await
        });
        let callback = listener.callback().await;
        let Redirect::Code { code, iss } = &callback.redirect else { panic!("no code") };
        assert_eq!(secrecy::ExposeSecret::expose_secret(code), "c/1");
        assert_eq!(iss.as_deref(), Some("https://i"));
        callback.show(&Ok(())).await;
        let page = browser.await.unwrap();
        assert!(page.contains("200 OK") && page.contains("You can close this window"), "{page}");
    }

    #[tokio::test]
    async fn a_failure_is_shown_without_being_interpreted() {
        let bound = Bound::any().await.unwrap();
        let port = bound.port;
        let mut listener = bound.serve("s");
        let browser = tokio::spawn(async move {
            ask(port, "GET /callback?error=access_denied&error_description=%3Cb%3E&state=s HTTP/1.1\r\n\r\n").await
        });
        let callback = listener.callback().await;
        let Redirect::Refused(why) = &callback.redirect else { panic!("not refused") };
        let outcome = Err(Error::refused(why.clone()));
        callback.show(&outcome).await;
        let page = browser.await.unwrap();
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
    }
}
