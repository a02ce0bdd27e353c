//! Tunnels: upgraded connections of exec, attach, port-forward and programs behind `/proxy/`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use super::{
    in_flight::{End, InFlightRequest},
    limiter::BodyMeter,
    usage::Direction,
};

/// Buffered bytes per direction; a side that does not read holds up the other.
const BUFFER_BYTES: usize = 16 * 1024;

/// One end of a tunnel. Bytes read from it are counted, and delayed if the tenant exceeds its byte
/// rate.
struct MeteredIo {
    io: TokioIo<Upgraded>,
    meter: BodyMeter,
}

impl AsyncRead for MeteredIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.meter.poll_ready(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        this.meter.record_bytes(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredIo {
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

/// Copies bytes in both directions until both ends are closed, one fails, or the request is
/// cancelled. An end that has finished sending may still receive.
pub(super) async fn run(client: OnUpgrade, server: OnUpgrade, mut in_flight: InFlightRequest) {
    let Ok((client, server)) = tokio::try_join!(client, server) else {
        in_flight.end(End::UpgradeFailed);
        return;
    };
    let metered =
        |io, direction| MeteredIo { io: TokioIo::new(io), meter: in_flight.body_meter(direction) };
    let mut client = metered(client, Direction::Up);
    let mut server = metered(server, Direction::Down);
    let copied =
        copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
    let end = tokio::select! {
        result = copied => result.map_or(End::ConnectionLost, |_| End::Complete),
        reason = in_flight.closed() => End::Closed(reason),
    };
    in_flight.end(end);
}
