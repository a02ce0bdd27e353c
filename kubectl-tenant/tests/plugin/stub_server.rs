//! Stub HTTP server with canned responses, as a broker or a proxy in its place may send them. It
//! implements no rules; the tests with the real broker are in `integration`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::support::WORKSPACE;

/// The parts of a request that the tests check.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) bearer: String,
    pub(crate) user_agent: String,
    pub(crate) body: String,
}

/// Response of the stub.
#[derive(Clone, Debug)]
pub(crate) enum StubResponse {
    /// No response: the connection stays open.
    Silent,
    /// Status, content type and body.
    Http(u16, &'static str, String),
    /// A response with further header lines, each with its CR LF.
    WithHeaders(&'static str, Box<Self>),
}

type Handler = dyn Fn(&RecordedRequest, usize) -> StubResponse + Send + Sync;

/// The server and its recorded requests.
pub(crate) struct StubServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl StubServer {
    /// Starts a server that responds with `handler`, which gets the request and the number of
    /// earlier requests.
    pub(crate) fn start(
        handler: impl Fn(&RecordedRequest, usize) -> StubResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Handler> = Arc::new(handler);
        let recorded = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (recorded, handler) = (recorded.clone(), handler.clone());
                std::thread::spawn(move || serve(stream, &recorded, &*handler));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn request_count(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.path.starts_with(path)).count()
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    recorded: &Mutex<Vec<RecordedRequest>>,
    handler: &Handler,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let (mut length, mut bearer, mut host) = (0, String::new(), String::new());
        let mut user_agent = String::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "host" => value.trim().clone_into(&mut host),
                "user-agent" => value.trim().clone_into(&mut user_agent),
                "authorization" => {
                    value.trim().trim_start_matches("Bearer ").clone_into(&mut bearer);
                }
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).ok()?;
        let request = RecordedRequest { method, host, path, bearer, user_agent, body };
        let number = {
            let mut recorded = recorded.lock().unwrap();
            recorded.push(request.clone());
            recorded.len() - 1
        };
        let (more, response) = match handler(&request, number) {
            StubResponse::WithHeaders(more, response) => (more, *response),
            response => ("", response),
        };
        let StubResponse::Http(status, kind, body) = response else {
            std::thread::park();
            return None;
        };
        write!(
            stream,
            "HTTP/1.1 {status} x\r\n{more}content-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
    }
}

/// A JSON response.
pub(crate) fn json_response(status: u16, body: &Value) -> StubResponse {
    StubResponse::Http(status, "application/json", body.to_string())
}

/// A response with a Kubernetes token.
pub(crate) fn credential(token: &str, expires_in: u32) -> StubResponse {
    // The broker's clock is far off, which must not matter.
    json_response(
        200,
        &json!({
            "token": token, "expiration_timestamp": "2001-01-01T00:00:00Z",
            "expires_in": expires_in, "credential_id": format!("jti-{token}"),
            "workspace_id": WORKSPACE,
        }),
    )
}

/// A token response of the issuer.
pub(crate) fn tokens(number: u32) -> StubResponse {
    json_response(
        200,
        &json!({
            "access_token": format!("access-c4n4ry-{number}"), "token_type": "Bearer",
            "expires_in": 900, "refresh_token": format!("refresh-c4n4ry-{number}"),
        }),
    )
}

/// An error response in the broker's format.
pub(crate) fn problem(status: u16, code: &str) -> StubResponse {
    let body = json!({
        "type": "about:blank", "title": "T", "status": status, "code": code,
        "detail": format!("Detail of {code}."), "request_id": "req-1",
    });
    StubResponse::Http(status, "application/problem+json", body.to_string())
}
