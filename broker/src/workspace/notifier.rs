//! Notifications to the gateway of this process: when a workspace loses its access, the gateway
//! closes its open streams at once instead of at the next poll, and acknowledges.

use std::time::Duration;

use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use tokio_util::sync::CancellationToken;

/// Notifications that wait for the receiver.
const MAX_PENDING: usize = 1024;
/// How long the receiver may take to acknowledge a notification.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// The receiver did not acknowledge a notification, so streams may still be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway did not confirm that open streams are closed")]
pub struct NotAcknowledged;

/// The sending end. Clones send to the same receiver.
#[derive(Clone, Debug)]
pub struct Notifier {
    sender: mpsc::Sender<oneshot::Sender<()>>,
    gateway_stopped: CancellationToken,
}

/// The receiving end, which the gateway holds.
#[derive(Debug)]
pub struct NotificationReceiver {
    receiver: mpsc::Receiver<oneshot::Sender<()>>,
    gateway_stopped: CancellationToken,
}

/// Makes a notifier and its receiver.
pub fn notification_channel() -> (Notifier, NotificationReceiver) {
    let (sender, receiver) = mpsc::channel(MAX_PENDING);
    let gateway_stopped = CancellationToken::new();
    let notifier = Notifier { sender, gateway_stopped: gateway_stopped.clone() };
    (notifier, NotificationReceiver { receiver, gateway_stopped })
}

/// A notification that was sent and waits for its acknowledgement.
#[derive(Debug)]
pub(super) struct Notification {
    sent: Result<oneshot::Receiver<()>, TrySendError<oneshot::Sender<()>>>,
    gateway_stopped: CancellationToken,
}

impl Notifier {
    /// Notifies the receiver, which reads the database at once.
    pub(super) fn notify(&self) -> Notification {
        let (ack, acknowledged) = oneshot::channel();
        Notification {
            sent: self.sender.try_send(ack).map(|()| acknowledged),
            gateway_stopped: self.gateway_stopped.clone(),
        }
    }
}

impl Notification {
    /// Returns once the receiver has acknowledged. A gateway that has stopped has no streams, so
    /// this returns at once.
    ///
    /// # Errors
    /// The receiver did not acknowledge in time, or it is gone although the gateway has not stopped,
    /// because its task panicked.
    pub(super) async fn acknowledged(self) -> Result<(), NotAcknowledged> {
        match self.sent {
            Err(TrySendError::Closed(_)) if self.gateway_stopped.is_cancelled() => Ok(()),
            Err(TrySendError::Closed(_) | TrySendError::Full(_)) => Err(NotAcknowledged),
            Ok(acknowledged) => match tokio::time::timeout(ACK_TIMEOUT, acknowledged).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(NotAcknowledged),
            },
        }
    }
}

impl NotificationReceiver {
    /// Waits for a notification. [`PendingAcks::acknowledge`] then acknowledges this one and all
    /// that were sent before it returned.
    pub async fn recv(&mut self) -> PendingAcks {
        let Some(first) = self.receiver.recv().await else { return std::future::pending().await };
        let mut pending = vec![first];
        while let Ok(next) = self.receiver.try_recv() {
            pending.push(next);
        }
        PendingAcks(pending)
    }

    /// The token to cancel when the gateway has stopped and nothing is in flight any more. From then
    /// on notifications need no acknowledgement.
    pub fn gateway_stopped(&self) -> CancellationToken {
        self.gateway_stopped.clone()
    }
}

/// Notifications that were received and not acknowledged yet.
#[derive(Debug, Default)]
pub struct PendingAcks(Vec<oneshot::Sender<()>>);

impl PendingAcks {
    /// Acknowledges them: the database was read after they were sent.
    pub fn acknowledge(self) {
        for ack in self.0 {
            let _ = ack.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_gateway_that_has_stopped_needs_no_acknowledgement() {
        let (notifier, receiver) = notification_channel();
        let gateway_stopped = receiver.gateway_stopped();
        // As when the task that holds the receiver panics.
        drop(receiver);
        assert_eq!(notifier.notify().acknowledged().await, Err(NotAcknowledged));
        gateway_stopped.cancel();
        assert_eq!(notifier.notify().acknowledged().await, Ok(()));
    }
}
