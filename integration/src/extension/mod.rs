//! Servers that the API server calls: an authorizer and an aggregated API. They listen on loopback
//! with a certificate of an authority of their own.

mod authorizer;
mod projects;

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub use authorizer::Authorizer;
pub use projects::{Aggregation, PROJECTS, Project, ProjectList, ProjectsServer};

use crate::authority::Identity;
use crate::fault_proxy::acceptor;

/// Size limit of a request in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A request that the API server sent.
#[derive(Debug)]
struct Call {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// An HTTP server with TLS that answers with JSON. It ends when the value is dropped.
#[derive(Debug)]
struct JsonServer {
    port: u16,
    serving: JoinHandle<()>,
}

impl JsonServer {
    async fn start<F>(identity: &Identity, answer: F) -> Result<Self>
    where
        F: Fn(&Call) -> (StatusCode, Value) + Send + Sync + 'static,
    {
        let acceptor = acceptor(identity)?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("find a free port")?;
        let port = listener.local_addr().context("read the port")?.port();
        let answer = Arc::new(answer);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                while connections.try_join_next().is_some() {}
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                connections.spawn(async move {
                    // A client that disconnects needs no error.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| respond(request, &*answer));
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { port, serving })
    }

    /// Closes the port and all connections.
    async fn stop(mut self) {
        self.serving.abort();
        // The aborted task has closed them once it has ended.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for JsonServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: &(impl Fn(&Call) -> (StatusCode, Value) + Send + Sync),
) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    let path = head.uri.path().to_owned();
    let (status, answer) = answer(&Call { path, headers: head.headers, body });
    let mut response = Response::new(Full::from(answer.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
