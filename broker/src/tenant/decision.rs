//! The text of audit rows about decisions on a tenant. The audit trail has no column for the tenant, so
//! the reason names it, and a restore of a backup reads the name back.

use super::TenantName;

/// Beginning of the text, before the name.
const PREFIX: &str = "tenant ";

/// The reason of an audit row about a decision on this tenant.
pub fn decision_reason(tenant: &TenantName, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{PREFIX}{tenant}: {reason}"),
        None => format!("{PREFIX}{tenant}"),
    }
}

/// The tenant that such a reason names.
pub fn tenant_of_decision(reason: &str) -> Option<TenantName> {
    let rest = reason.strip_prefix(PREFIX)?;
    // A name has no colon.
    rest.split_once(':').map_or(rest, |(name, _)| name).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_decision_names_the_tenant() {
        let solar: TenantName = "solar-wind".parse().unwrap();
        for (reason, text) in [
            (None, "tenant solar-wind"),
            (Some("leak: tenant lunar"), "tenant solar-wind: leak: tenant lunar"),
            (Some(""), "tenant solar-wind: "),
        ] {
            assert_eq!(decision_reason(&solar, reason), text);
            assert_eq!(tenant_of_decision(text), Some(solar.clone()), "{text}");
        }
        for other in ["", "tenant ", "tenant Solar", "solar", "tenant solar wind"] {
            assert_eq!(tenant_of_decision(other), None, "{other}");
        }
    }
}
