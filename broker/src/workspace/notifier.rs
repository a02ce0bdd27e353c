//! Notifications to the gateway of this process: when a workspace loses its access, the gateway
//! closes its open streams at once instead of at the next poll, and acknowledges.

use std::time::Duration;

use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

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
pub struct Notifier(mpsc::Sender<oneshot::Sender<()>>);

/// The receiving end, which the gateway holds.
#[derive(Debug)]
pub struct NotificationReceiver(mpsc::Receiver<oneshot::Sender<()>>);

/// Makes a notifier and its receiver.
pub fn notification_channel() -> (Notifier, NotificationReceiver) {
    let (sender, receiver) = mpsc::channel(MAX_PENDING);
    (Notifier(sender), NotificationReceiver(receiver))
}

/// A notification that was sent and waits for its acknowledgement.
#[derive(Debug)]
pub(super) struct Notification(Result<oneshot::Receiver<()>, TrySendError<oneshot::Sender<()>>>);

impl Notifier {
    /// Notifies the receiver, which reads the database at once.
    pub(super) fn notify(&self) -> Notification {
        let (ack, acknowledged) = oneshot::channel();
        Notification(self.0.try_send(ack).map(|()| acknowledged))
    }
}

impl Notification {
    /// Returns once the receiver has acknowledged. Without a receiver there are no streams, so it
    /// returns at once.
    pub(super) async fn acknowledged(self) -> Result<(), NotAcknowledged> {
        match self.0 {
            Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(NotAcknowledged),
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
        let Some(first) = self.0.recv().await else { return std::future::pending().await };
        let mut pending = vec![first];
        while let Ok(next) = self.0.try_recv() {
            pending.push(next);
        }
        PendingAcks(pending)
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
