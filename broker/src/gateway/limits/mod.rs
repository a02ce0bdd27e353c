//! Limits of the requests of each tenant, and the usage that they count.

mod broker_read_limiter;
mod limiter;
pub(super) mod usage;
mod usage_flush;

pub use self::limiter::LIMITS;
pub(crate) use self::limiter::{LimitExceeded, TenantLimiter};
pub(super) use self::{
    broker_read_limiter::{BrokerReadLimiter, BrokerReadPermit},
    limiter::{BROKER_READS, BodyMeter, TenantLimiters, UsageMeter},
};
