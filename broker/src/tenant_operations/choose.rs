//! Choice of the tenant that a new namespace is for.

use super::{TenantOperations, error::TenantError};
use crate::{
    identity::Caller,
    tenant::{TenantName, longest_prefix},
};

impl TenantOperations {
    /// The tenant that a new namespace is for: the one that the label names; else the one of the
    /// caller's own whose name is the longest prefix of the namespace's; else their only one. Whether
    /// the caller may make the namespace is decided by [`Self::create_namespace`].
    ///
    /// # Errors
    /// [`TenantError::NotFound`] for a label that cannot name a tenant; [`TenantError::NoTenant`];
    /// [`TenantError::AmbiguousTenant`]; the Tenants were not read yet; or the database failed.
    pub async fn choose_tenant(
        &self,
        caller: &Caller,
        label: Option<&str>,
        namespace: &str,
    ) -> Result<TenantName, TenantError> {
        match label {
            Some(label) => label.parse().map_err(|_| TenantError::NotFound),
            None => choose(self.owned_by(caller).await?, namespace),
        }
    }
}

fn choose(owned: Vec<TenantName>, namespace: &str) -> Result<TenantName, TenantError> {
    match (longest_prefix(&owned, namespace), owned.as_slice()) {
        (Some(name), _) | (None, [name]) => Ok(name.clone()),
        (None, []) => Err(TenantError::NoTenant),
        (None, _) => Err(TenantError::AmbiguousTenant(owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_or_the_only_tenant_is_chosen() {
        let two = &["solar", "solar-wind"][..];
        for (owned, namespace, expected) in [
            (two, "solar-x", Ok("solar")),
            (two, "solar-wind-x", Ok("solar-wind")),
            (two, "solar-wind", Ok("solar")),
            (two, "lunar-x", Err("you own several tenants (solar, solar-wind)")),
            (two, "solarium-x", Err("you own several tenants (solar, solar-wind)")),
            (&["solar"], "solar-x", Ok("solar")),
            // The name is refused then, with the rule.
            (&["solar"], "lunar-x", Ok("solar")),
            (&[], "solar-x", Err("you own no tenant")),
        ] {
            let owned: Vec<TenantName> = owned.iter().map(|name| name.parse().unwrap()).collect();
            match (choose(owned, namespace), expected) {
                (Ok(chosen), Ok(expected)) => assert_eq!(chosen.as_str(), expected, "{namespace}"),
                (Err(error), Err(text)) => {
                    assert!(error.to_string().starts_with(text), "{namespace}: {error}");
                }
                (chosen, _) => panic!("{namespace}: {chosen:?}"),
            }
        }
    }
}
