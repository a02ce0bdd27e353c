//! The limits of the gateway in a measurement.

use crate::world::WorldBuilder;

/// The tier that has the limits with which `basic` is shipped.
pub(super) const LIMITED_TIER: &str = "limited";
/// These limits.
const TIER_LIMITS: [(&str, i64); 4] = [
    ("requests_per_second", 50),
    ("requests_at_once", 50),
    ("streams", 100),
    ("mebibytes_per_second", 64),
];

/// Raises the limits of the tier `basic`, so that the gateway is measured and not the limits; the
/// tier `limited` keeps them.
#[must_use]
pub fn without_limits(world: WorldBuilder) -> WorldBuilder {
    let key = |tier: &str, limit: &str| format!("tiers.{tier}.gateway_{limit}");
    TIER_LIMITS
        .iter()
        .fold(world, |world, (limit, usual)| {
            world.setting(&key("basic", limit), 100_000).setting(&key(LIMITED_TIER, limit), *usual)
        })
        // One session lasts for a whole run.
        .setting("issuer.access_token_seconds", 3600)
}
