//! Sign-in with the device grant: shows a user code and polls until the person has confirmed it.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    broker_url,
    error::{Error, Kind},
    oidc::{DeviceCode, DevicePoll, Issuer, Tokens},
    terminal,
    world::World,
};

/// Increase of the polling interval after `slow_down` (RFC 8628 section 3.5).
const SLOW_DOWN_INCREMENT: Duration = Duration::from_secs(5);
/// Maximum backoff after network failures.
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(30);

/// Schedule of the polling requests.
#[derive(Debug, PartialEq, Eq)]
struct PollSchedule {
    /// Polling interval that the issuer asked for.
    interval: Duration,
    /// Additional delay after network failures.
    backoff: Duration,
}

impl PollSchedule {
    fn new(interval: Duration) -> Self {
        Self { interval, backoff: Duration::ZERO }
    }

    fn delay(&self) -> Duration {
        self.interval + self.backoff
    }

    fn reset_backoff(&mut self) {
        self.backoff = Duration::ZERO;
    }

    /// Increases the interval permanently, as RFC 8628 section 3.5 demands.
    fn slow_down(&mut self) {
        self.reset_backoff();
        self.interval += SLOW_DOWN_INCREMENT;
    }

    /// Increases the backoff after a network failure, until the issuer responds again.
    fn back_off(&mut self) {
        self.backoff = (self.backoff * 2).max(SLOW_DOWN_INCREMENT).min(MAX_RETRY_BACKOFF);
    }
}

/// Signs in with the device grant.
pub(super) async fn by_device(issuer: &Issuer, world: &World) -> Result<Tokens, Error> {
    let code = issuer.request_device_code().await?;
    let deadline = Instant::now() + code.lifetime;
    world.print_lines(instructions(&code));
    let mut schedule = PollSchedule::new(code.interval);
    let mut outage_reported = false;
    loop {
        let next = Instant::now() + schedule.delay();
        if next >= deadline {
            return Err(Error::other("the code expired before anybody confirmed it")
                .hint(format!("begin again: {}", issuer.command("login --device"))));
        }
        tokio::time::sleep_until(next).await;
        match issuer.poll_device(&code, &world.clock).await {
            Ok(DevicePoll::Done(tokens)) => return Ok(tokens),
            Ok(DevicePoll::Pending) => schedule.reset_backoff(),
            Ok(DevicePoll::SlowDown) => schedule.slow_down(),
            Err(error) if error.kind == Kind::Unreachable => {
                if !outage_reported {
                    world.print_message(format!("{error}; still waiting"));
                }
                outage_reported = true;
                schedule.back_off();
                continue;
            }
            Err(error) => return Err(error),
        }
        outage_reported = false;
    }
}

/// Text that tells the person what to do.
fn instructions(code: &DeviceCode) -> String {
    let minutes = (code.lifetime.as_secs() / 60).max(1);
    let complete = code.complete_page.as_ref().map(|page| {
        format!("\nThis address has the code in it; compare before you confirm:\n\n  {page}\n")
    });
    // No other machine reaches a loopback address.
    let place = if broker_url::is_loopback(&code.page) {
        "in a browser on this machine"
    } else {
        "on any device with a browser"
    };
    format!(
        "Sign in {place}:\n\n  open       {}\n  enter      {}\n{}\n\
         Waiting, {minutes} min at most (Ctrl-C stops) …",
        code.page,
        terminal::sanitize(&code.user_code),
        complete.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(schedule: &PollSchedule) -> u64 {
        schedule.delay().as_secs()
    }

    #[test]
    fn slow_down_is_permanent_and_backoff_is_reset() {
        let mut schedule = PollSchedule::new(Duration::from_secs(5));
        schedule.slow_down();
        assert_eq!(seconds(&schedule), 10);
        for expected in [15, 20, 30, 40, 40] {
            schedule.back_off();
            assert_eq!(seconds(&schedule), expected);
        }
        schedule.reset_backoff();
        assert_eq!(seconds(&schedule), 10);
        schedule.slow_down();
        assert_eq!(seconds(&schedule), 15);
    }
}
