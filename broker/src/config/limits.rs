//! Settings of rate limits (`limits.*`).

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::within,
};
use crate::base::{rate_limit::RateLimitSettings, throttle::WindowQuota};

pub(super) const INIT_PER_HOUR: Setting<WindowQuota> = Setting::new(
    "limits.init_per_hour",
    "20",
    per_hour::<10_000>,
    "Calls of POST /workspaces/init per user and hour.",
);
pub(super) const SIGN_IN_FAILURES_PER_ACCOUNT: Setting<WindowQuota> = Setting::new(
    "limits.sign_in_failures_per_account",
    "10",
    per_five_minutes::<10_000>,
    "Failed sign-ins per account in five minutes, counted for each address on its own, and for \
     each browser that signed in before.",
);
pub(super) const SIGN_IN_FAILURES_PER_ADDRESS: Setting<WindowQuota> = Setting::new(
    "limits.sign_in_failures_per_address",
    "50",
    per_five_minutes::<100_000>,
    "Failed sign-ins per address in five minutes; wrong passwords and refused sign-ins at \
     providers are counted apart.",
);
pub(super) const SIGN_IN_FAILURES_EVERYWHERE: Setting<WindowQuota> = Setting::new(
    "limits.sign_in_failures_everywhere",
    "100",
    per_hour::<100_000>,
    "Failed sign-ins per account in an hour, from all addresses; sign-ins in browsers that signed \
     in before are not limited by it.",
);
pub(super) const SIGN_INS_BEGUN_PER_ADDRESS: Setting<WindowQuota> = Setting::new(
    "limits.sign_ins_begun_per_address",
    "600",
    per_five_minutes::<100_000>,
    "Started sign-ins per address in five minutes, finished or not.",
);
pub(super) const DEVICE_CODES_PER_ADDRESS: Setting<WindowQuota> = Setting::new(
    "limits.device_codes_per_address",
    "60",
    per_five_minutes::<100_000>,
    "Requested device codes per address in five minutes.",
);
pub(super) const USER_CODE_FAILURES_PER_ADDRESS: Setting<WindowQuota> = Setting::new(
    "limits.user_code_failures_per_address",
    "20",
    per_five_minutes::<100_000>,
    "Wrong user codes per address in five minutes.",
);
pub(super) const REGISTRATIONS_PER_ADDRESS: Setting<WindowQuota> = Setting::new(
    "limits.registrations_per_address",
    "10",
    per_hour::<100_000>,
    "Registrations of accounts per address in an hour.",
);
pub(super) const EXCHANGES_PER_ADDRESS: Setting<WindowQuota> = Setting::new(
    "limits.exchanges_per_address",
    "600",
    per_five_minutes::<1_000_000>,
    "Token exchanges of machines per address in five minutes, successful or not.",
);
const UNAUTHENTICATED_PER_ADDRESS: Setting<u32> = Setting::new(
    "limits.unauthenticated_per_address",
    "50",
    within::<1, 100_000>,
    "Requests per second and address that may use the database without a session that was valid \
     in the last 15 minutes: steps of a sign-in, token requests, unknown tokens and cookies. The \
     burst is ten seconds' worth. Further requests get 429 before they reach the database. \
     Requests with a valid session do not count. Each replica counts for itself.",
);
const UNAUTHENTICATED: Setting<u32> = Setting::new(
    "limits.unauthenticated",
    "200",
    within::<1, 1_000_000>,
    "The same for all addresses together. The burst is three seconds' worth.",
);
const UNAUTHENTICATED_AT_ONCE: Setting<u32> = Setting::new(
    "limits.unauthenticated_at_once",
    "64",
    within::<2, 10_000>,
    "Limit of concurrent requests of this kind; half of it for one address.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &INIT_PER_HOUR,
    &SIGN_IN_FAILURES_PER_ACCOUNT,
    &SIGN_IN_FAILURES_PER_ADDRESS,
    &SIGN_IN_FAILURES_EVERYWHERE,
    &SIGN_INS_BEGUN_PER_ADDRESS,
    &DEVICE_CODES_PER_ADDRESS,
    &USER_CODE_FAILURES_PER_ADDRESS,
    &REGISTRATIONS_PER_ADDRESS,
    &EXCHANGES_PER_ADDRESS,
    &UNAUTHENTICATED_PER_ADDRESS,
    &UNAUTHENTICATED,
    &UNAUTHENTICATED_AT_ONCE,
];

/// Reads the rate limits of requests without a known session.
pub(super) fn unauthenticated(s: &mut Settings) -> RateLimitSettings {
    RateLimitSettings {
        per_client: UNAUTHENTICATED_PER_ADDRESS.read(s),
        total: UNAUTHENTICATED.read(s),
        at_once: UNAUTHENTICATED_AT_ONCE.read(s),
    }
}

/// From one use to `MAX` uses in an hour.
fn per_hour<const MAX: u32>(text: &str) -> Result<WindowQuota, String> {
    within::<1, MAX>(text).map(|count| WindowQuota { count, window_seconds: 3600 })
}

/// From one use to `MAX` uses in five minutes.
fn per_five_minutes<const MAX: u32>(text: &str) -> Result<WindowQuota, String> {
    within::<1, MAX>(text).map(|count| WindowQuota { count, window_seconds: 300 })
}
