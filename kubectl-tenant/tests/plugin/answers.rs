//! A port that gives canned answers: what a broker, or a thing in its place, may say. It knows no
//! rules of its own; how the real broker behaves is tried with the real one.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::support::WORKSPACE;

/// A request, as far as the tests ask.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) bearer: String,
    pub(crate) body: String,
}

/// What is said to it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Nothing: the connection stays open.
    Silence,
    /// Status, content type, body.
    Given(u16, &'static str, String),
}

type Answerer = dyn Fn(&Asked, usize) -> Answer + Send + Sync;

/// The port, and what was asked.
pub(crate) struct Answers {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Answers {
    /// Gives what `answer` says to a request, which also gets the number of those before it.
    pub(crate) fn start(answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answerer> = Arc::new(answer);
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self, path: &str) -> usize {
        self.all().iter().filter(|asked| asked.path.starts_with(path)).count()
    }

    pub(crate) fn all(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Asked>>, answer: &Answerer) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let (mut length, mut bearer, mut host) = (0, String::new(), String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "host" => value.trim().clone_into(&mut host),
                "authorization" => {
                    value.trim().trim_start_matches("Bearer ").clone_into(&mut bearer);
                }
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let asked = Asked { method, host, path, bearer, body: String::from_utf8(body).ok()? };
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(asked.clone());
            seen.len() - 1
        };
        let Answer::Given(status, kind, body) = answer(&asked, number) else {
            std::thread::park();
            return None;
        };
        write!(
            stream,
            "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
    }
}

/// A JSON answer.
pub(crate) fn json_answer(status: u16, body: &Value) -> Answer {
    Answer::Given(status, "application/json", body.to_string())
}

/// A Kubernetes token.
pub(crate) fn credential(token: &str, expires_in: u32) -> Answer {
    // The broker's idea of the time is far off, which must not matter.
    json_answer(
        200,
        &json!({
            "token": token, "expiration_timestamp": "2001-01-01T00:00:00Z",
            "expires_in": expires_in, "credential_id": format!("jti-{token}"),
            "workspace_id": WORKSPACE,
        }),
    )
}

/// Tokens of the issuer.
pub(crate) fn tokens(number: u32) -> Answer {
    json_answer(
        200,
        &json!({
            "access_token": format!("access-c4n4ry-{number}"), "token_type": "Bearer",
            "expires_in": 900, "refresh_token": format!("refresh-c4n4ry-{number}"),
        }),
    )
}

/// A failure in the broker's form.
pub(crate) fn problem(status: u16, code: &str) -> Answer {
    let body = json!({
        "type": "about:blank", "title": "T", "status": status, "code": code,
        "detail": format!("Detail of {code}."), "request_id": "req-1",
    });
    Answer::Given(status, "application/problem+json", body.to_string())
}
