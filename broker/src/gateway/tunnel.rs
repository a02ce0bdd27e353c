//! Streams that leave HTTP: exec, attach, port-forward, and what people do behind `/proxy/`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use super::{
    passage::Passage,
    share::{Direction, Flow},
};

/// Bytes that are on their way in each direction at most; a side that does not read holds the
/// other up.
const BUFFER: usize = 16 * 1024;

/// One end of a tunnel; what is read from it is counted, and held up where the tenant has had its share.
struct End {
    io: TokioIo<Upgraded>,
    flow: Flow,
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.flow.poll_ready(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        this.flow.flowed(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Carries bytes both ways until both ends are done, one breaks off, or the passage is cut. One end
/// that is done sending may still receive.
pub(super) async fn carry(client: OnUpgrade, server: OnUpgrade, mut passage: Passage) {
    let Ok((client, server)) = tokio::try_join!(client, server) else {
        passage.ended("the upgrade broke off");
        return;
    };
    let end = |io, direction| End { io: TokioIo::new(io), flow: passage.flow(direction) };
    let mut client = end(client, Direction::Up);
    let mut server = end(server, Direction::Down);
    tokio::select! {
        done = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER) => {
            if done.is_err() {
                passage.ended("an end broke off");
            }
        }
        why = passage.cut() => passage.ended(why.as_str()),
    }
}
