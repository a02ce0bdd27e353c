//! The sign-in on another device: show a code, then ask until somebody has confirmed it.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    error::{Error, Kind},
    oidc::{DeviceCode, Issuer, Polled, Tokens},
    output,
    world::World,
};

/// What `slow_down` adds to the time between two questions (RFC 8628 section 3.5).
const SLOWER: Duration = Duration::from_secs(5);
/// Longest time between two questions after failures of the network.
const SLOWEST_RETRY: Duration = Duration::from_secs(30);

/// When to ask next.
#[derive(Debug, PartialEq, Eq)]
struct Pace {
    /// What the issuer wants.
    interval: Duration,
    /// What was added because it did not answer.
    patience: Duration,
}

impl Pace {
    fn new(interval: Duration) -> Self {
        Self { interval, patience: Duration::ZERO }
    }

    fn wait(&self) -> Duration {
        self.interval + self.patience
    }

    fn answered(&mut self) {
        self.patience = Duration::ZERO;
    }

    /// For good, as the standard asks.
    fn slow_down(&mut self) {
        self.answered();
        self.interval += SLOWER;
    }

    /// The network failed: longer each time, until it answers.
    fn failed(&mut self) {
        self.patience = (self.patience * 2).max(SLOWER).min(SLOWEST_RETRY);
    }
}

/// Signs in on another device.
pub(super) async fn by_device(issuer: &Issuer, world: &World) -> Result<Tokens, Error> {
    let code = issuer.begin_device().await?;
    let deadline = Instant::now() + code.lifetime;
    world.say_lines(instructions(&code));
    let mut pace = Pace::new(code.interval);
    let mut outage_is_known = false;
    loop {
        let next = Instant::now() + pace.wait();
        if next >= deadline {
            return Err(Error::other("the code expired before anybody confirmed it")
                .hint("begin again: kubectl tenant login --device"));
        }
        tokio::time::sleep_until(next).await;
        match issuer.poll_device(&code, &world.clock).await {
            Ok(Polled::Done(tokens)) => return Ok(tokens),
            Ok(Polled::Pending) => pace.answered(),
            Ok(Polled::SlowDown) => pace.slow_down(),
            Err(error) if error.kind == Kind::Unreachable => {
                if !outage_is_known {
                    world.say(format!("{error}; still waiting"));
                }
                outage_is_known = true;
                pace.failed();
                continue;
            }
            Err(error) => return Err(error),
        }
        outage_is_known = false;
    }
}

/// What the person has to do.
fn instructions(code: &DeviceCode) -> String {
    let minutes = (code.lifetime.as_secs() / 60).max(1);
    let complete = code.complete_page.as_ref().map(|page| {
        format!("\nThis address has the code in it; compare before you confirm:\n\n  {page}\n")
    });
    format!(
        "Sign in on any device with a browser:\n\n  open       {}\n  enter      {}\n{}\n\
         Waiting, {minutes} min at most (Ctrl-C stops) …",
        code.page,
        output::plain(&code.user_code),
        complete.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pace: &Pace) -> u64 {
        pace.wait().as_secs()
    }

    #[test]
    fn slow_down_stays_and_patience_goes() {
        let mut pace = Pace::new(Duration::from_secs(5));
        pace.slow_down();
        assert_eq!(seconds(&pace), 10);
        for expected in [15, 20, 30, 40, 40] {
            pace.failed();
            assert_eq!(seconds(&pace), expected);
        }
        pace.answered();
        assert_eq!(seconds(&pace), 10);
        pace.slow_down();
        assert_eq!(seconds(&pace), 15);
    }
}
