//! The first bytes of a connection, which have to come within a time.
//!
//! What a connection begins with tells HTTP/2 from HTTP/1.1. hyper waits for it without a limit, and
//! only then begins to count how long a head takes; so a client that says nothing at all would be
//! kept for ever.

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

/// How every connection of HTTP/2 begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose client has to begin. Once it is clear what it speaks, it is as it was.
#[derive(Debug)]
pub(crate) struct Opening<Io> {
    io: Io,
    /// Bytes of the preface that have come.
    seen: usize,
    /// None once it is clear.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<Io> Opening<Io> {
    /// A connection that was just accepted, and may take so long.
    pub(crate) fn new(io: Io, limit: Duration) -> Self {
        Self { io, seen: 0, limit: Some(Box::pin(sleep(limit))) }
    }

    fn came(&mut self, bytes: &[u8]) {
        let rest = &PREFACE[self.seen..];
        if rest.len() > bytes.len() && rest.starts_with(bytes) {
            self.seen += bytes.len();
        } else {
            self.limit = None;
        }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Opening<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(context, buffer);
        let Some(limit) = &mut this.limit else { return read };
        if read.is_pending() {
            ready!(limit.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        this.came(&buffer.filled()[before..]);
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Opening<Io> {
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

    const LIMIT: Duration = Duration::from_millis(20);

    async fn reads(said: &[&str]) -> io::Result<String> {
        let (mut client, server) = duplex(64);
        let mut opening = Opening::new(server, LIMIT);
        let mut read = Vec::new();
        for piece in said {
            client.write_all(piece.as_bytes()).await?;
            opening.read_buf(&mut read).await?;
        }
        // Beyond the limit, if there is one.
        match tokio::time::timeout(LIMIT * 4, opening.read_u8()).await {
            Ok(end) => end.map(|_| String::new()),
            Err(_) => Ok(String::from_utf8_lossy(&read).into_owned()),
        }
    }

    #[tokio::test]
    async fn a_client_has_to_say_what_it_speaks() {
        let silent: [&[&str]; 3] = [&[], &["P"], &["PRI * ", "HTTP/2.0\r\n\r\nSM\r\n\r"]];
        for silent in silent {
            assert_eq!(reads(silent).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }

    #[tokio::test]
    async fn what_follows_is_not_its_affair() {
        let preface = str::from_utf8(PREFACE).unwrap();
        let more = format!("{preface}\0\0\0");
        let said: [&[&str]; 6] =
            [&["G"], &["PO"], &["PRI", "NT /"], &[preface], &["PRI", &preface[3..]], &[&more]];
        for said in said {
            assert_eq!(reads(said).await.unwrap(), said.concat());
        }
    }
}
