//! A timeout for the first bytes of a connection (the HTTP/2 connection preface).
//!
//! hyper waits for the preface without a limit and starts its timeout for the request head only
//! afterwards, so a client that sends nothing at all would keep its connection for ever.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The preface that a client of HTTP/2 sends first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that fails with [`io::ErrorKind::TimedOut`] if the client does not send the whole
/// preface in time. It passes everything through once the preface is complete, or once the bytes
/// are no preface.
#[derive(Debug)]
pub(crate) struct PrefaceTimeout<Io> {
    io: Io,
    /// Number of bytes of the preface that were received.
    matched: usize,
    /// `None` once the preface is complete, or the bytes are no preface.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<Io> PrefaceTimeout<Io> {
    /// Wraps a connection that was just accepted. `timeout` runs from now on.
    pub(crate) fn new(io: Io, timeout: Duration) -> Self {
        Self { io, matched: 0, deadline: Some(Box::pin(sleep(timeout))) }
    }

    /// Compares received bytes with the preface.
    fn inspect(&mut self, bytes: &[u8]) {
        let rest = &PREFACE[self.matched..];
        if rest.len() > bytes.len() && rest.starts_with(bytes) {
            self.matched += bytes.len();
        } else {
            self.deadline = None;
        }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(context, buffer);
        let Some(deadline) = &mut this.deadline else { return read };
        if read.is_pending() {
            ready!(deadline.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        this.inspect(&buffer.filled()[before..]);
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for PrefaceTimeout<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(20);

    async fn read_after(sent: &[&str]) -> io::Result<String> {
        let (mut client, server) = duplex(64);
        let mut connection = PrefaceTimeout::new(server, TIMEOUT);
        let mut read = Vec::new();
        for piece in sent {
            client.write_all(piece.as_bytes()).await?;
            connection.read_buf(&mut read).await?;
        }
        // Wait until after the timeout, if it still runs.
        match tokio::time::timeout(TIMEOUT * 4, connection.read_u8()).await {
            Ok(end) => end.map(|_| String::new()),
            Err(_) => Ok(String::from_utf8_lossy(&read).into_owned()),
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_complete_the_preface_times_out() {
        let silent: [&[&str]; 3] = [&[], &["P"], &["PRI * ", "HTTP/2.0\r\n\r\nSM\r\n\r"]];
        for silent in silent {
            assert_eq!(read_after(silent).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }

    #[tokio::test]
    async fn the_timeout_ends_with_the_preface_or_with_other_bytes() {
        let preface = str::from_utf8(PREFACE).unwrap();
        let more = format!("{preface}\0\0\0");
        let complete: [&[&str]; 6] =
            [&["G"], &["PO"], &["PRI", "NT /"], &[preface], &["PRI", &preface[3..]], &[&more]];
        for sent in complete {
            assert_eq!(read_after(sent).await.unwrap(), sent.concat());
        }
    }
}
