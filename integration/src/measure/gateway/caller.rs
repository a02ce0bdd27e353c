//! A client on one kept connection, as lean as it can be, for it shares the machine with what is
//! measured.

use std::pin::Pin;

use anyhow::{Context, Result, bail};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::way::Way;

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// One client.
pub(crate) struct Caller {
    sender: http1::SendRequest<Empty<Bytes>>,
    // Polled where the answer is waited for, and not in a task of its own: no wake-up of another
    // thread is part of what a request takes.
    connection: Connection,
    host: HeaderValue,
    way: Way,
}

impl Caller {
    /// Connects, for streams or for single requests.
    pub(crate) async fn connect(way: &Way, for_streams: bool) -> Result<Self> {
        let address = if for_streams { way.for_streams } else { way.address };
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connect to {} ({address})", way.name))?;
        stream.set_nodelay(true).context("send at once")?;
        let (sender, connection) = match &way.tls {
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                speak(stream.with_context(|| format!("connect to {} with TLS", way.name))?).await?
            }
            None => speak(stream).await?,
        };
        let host = HeaderValue::try_from(address.to_string())?;
        Ok(Self { sender, connection, host, way: way.clone() })
    }

    /// Asks for this path of the API server, and returns the answer's head, which must be 200.
    pub(crate) async fn begin(&mut self, path: &str) -> Result<Response<Incoming>> {
        let answer = self.ask(path).await?;
        if answer.status() != StatusCode::OK {
            bail!("{} answered {} for {path}", self.way.name, answer.status());
        }
        Ok(answer)
    }

    async fn ask(&mut self, path: &str) -> Result<Response<Incoming>> {
        let mut request = Request::get(format!("{}{path}", self.way.prefix))
            .header(header::HOST, self.host.clone())
            .header(header::ACCEPT, "application/json")
            // Nobody compresses: the bytes are the same on all ways.
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some(authorization) = &self.way.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        let request = request.body(Empty::new())?;
        let Self { sender, connection, .. } = self;
        let answer = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer.with_context(|| format!("ask {}", self.way.name))?,
            end = connection => bail!("{} closed the connection: {end:?}", self.way.name),
        };
        Ok(answer)
    }

    /// The next piece of an answer's body; `None` at its end.
    pub(crate) async fn piece(&mut self, body: &mut Incoming) -> Result<Option<Bytes>> {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            end = &mut self.connection => bail!("{} closed the connection: {end:?}", self.way.name),
        };
        let frame = frame.transpose().with_context(|| format!("read from {}", self.way.name))?;
        Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    /// Asks for this path, and returns the length of the answer's body.
    pub(super) async fn get(&mut self, path: &str) -> Result<usize> {
        let answer = self.begin(path).await?;
        self.whole(answer).await
    }

    /// Asks for this path, and returns how that was answered, and the length of the body.
    pub(super) async fn try_get(&mut self, path: &str) -> Result<(StatusCode, usize)> {
        let answer = self.ask(path).await?;
        Ok((answer.status(), self.whole(answer).await?))
    }

    async fn whole(&mut self, answer: Response<Incoming>) -> Result<usize> {
        let mut body = answer.into_body();
        let mut length = 0;
        while let Some(piece) = self.piece(&mut body).await? {
            length += piece.len();
        }
        Ok(length)
    }
}

async fn speak<Io>(io: Io) -> Result<(http1::SendRequest<Empty<Bytes>>, Connection)>
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    Ok((sender, Box::pin(connection)))
}
