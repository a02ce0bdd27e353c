//! Rings where streams are kept, when a workspace is cut off: whoever keeps them ends them at once
//! instead of at their next look.

use std::time::Duration;

use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

/// Rings that wait to be heard.
const MOST: usize = 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Nobody confirmed that streams were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway did not confirm that open streams are closed")]
pub struct Unheard;

/// The bell. Clones ring the same.
#[derive(Clone, Debug)]
pub struct Bell(mpsc::Sender<oneshot::Sender<()>>);

/// Where it is heard.
#[derive(Debug)]
pub struct Rung(mpsc::Receiver<oneshot::Sender<()>>);

/// A bell and where it is heard.
pub fn bell() -> (Bell, Rung) {
    let (bell, rung) = mpsc::channel(MOST);
    (Bell(bell), Rung(rung))
}

/// A ring that waits for its answer.
#[derive(Debug)]
pub(super) struct Ring(Result<oneshot::Receiver<()>, TrySendError<oneshot::Sender<()>>>);

impl Bell {
    /// Rings; whoever hears it looks at once.
    pub(super) fn ring(&self) -> Ring {
        let (answer, answered) = oneshot::channel();
        Ring(self.0.try_send(answer).map(|()| answered))
    }
}

impl Ring {
    /// Returns once whoever heard it has looked. Where nobody keeps streams there is nothing to wait
    /// for.
    pub(super) async fn answered(self) -> Result<(), Unheard> {
        match self.0 {
            Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(Unheard),
            Ok(answered) => match tokio::time::timeout(PATIENCE, answered).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(Unheard),
            },
        }
    }
}

impl Rung {
    /// Waits for the bell. Everybody who rang until then gets their answer by [`Heard::done`].
    pub async fn heard(&mut self) -> Heard {
        let Some(first) = self.0.recv().await else { return std::future::pending().await };
        let mut waiting = vec![first];
        while let Ok(next) = self.0.try_recv() {
            waiting.push(next);
        }
        Heard(waiting)
    }
}

/// Whoever rang, until they are answered.
#[derive(Debug, Default)]
pub struct Heard(Vec<oneshot::Sender<()>>);

impl Heard {
    /// Says that everything was looked at after they rang.
    pub fn done(self) {
        for waiting in self.0 {
            let _ = waiting.send(());
        }
    }
}
