//! The command `use`: becomes a member of a tenant, and points kubectl at its namespaces.

use secrecy::ExposeSecret;
use tenant_shared::{CONTEXT_NAME, TenantNamespace};
use tokio::time::Instant;

use super::membership;
use crate::{
    account::Account,
    broker::Mode,
    cli::tenants::UseTenant,
    entry_name,
    error::Error,
    http::TOTAL_TIMEOUT,
    kubeconfig::Entries,
    runtime,
    store::AccountFlags,
    workspace::{ContextOptions, PROVISIONING_TIMEOUT, install_context},
    world::World,
};

/// Status of a namespace in which the members of its tenant have their rights.
const ACTIVE: &str = "active";

/// Runs `use`.
pub(crate) fn use_tenant(
    flags: &AccountFlags,
    options: &UseTenant,
    world: &mut World,
) -> Result<(), Error> {
    let mut account = Account::open(flags, world)?;
    let deadline = Instant::now() + PROVISIONING_TIMEOUT + TOTAL_TIMEOUT;
    account.broker = account.broker.with_deadline(deadline);
    let tenant = &options.tenant;
    let mut profile = account.profiles.get(&account.key);
    // The personal workspace keeps its context.
    let name = if let Some(name) = &options.entry.context {
        name.clone()
    } else {
        let own = profile.entry_name(&account.key);
        context_name(own.as_deref(), tenant)?
    };
    let broker = &account.broker;
    let (membership, namespaces, document) = runtime::block_on(async {
        let membership = membership::join(broker, tenant, world).await?;
        let namespaces = broker.tenant_namespaces(tenant).await?.items;
        let document = broker.kubeconfig(options.mode, Some(membership.id)).await?;
        Ok::<_, Error>((membership, namespaces, document))
    })??;
    let mut entries = Entries::read(document.expose_secret(), options.mode, &account.key)?;
    entries.set_workspace(membership.id)?;
    let namespace = default_namespace(options.namespace.as_deref(), &namespaces);
    entries.set_namespace(namespace);
    let exec_api_version = options.entry.exec_api_version.or(profile.exec_api_version);
    if options.mode != Mode::Static {
        profile.exec_api_version = exec_api_version;
    }
    let context = ContextOptions {
        mode: options.mode,
        name: Some(name),
        exec_api_version,
        use_context: true,
        dry_run: false,
        entry: &options.entry,
    };
    install_context(&mut account, entries, &context, profile, world)?;
    world.print_message(explanation(tenant, namespace, &namespaces));
    Ok(())
}

/// Name of a tenant's context, after the name that the account chose for its entries.
fn context_name(own: Option<&str>, tenant: &str) -> Result<String, Error> {
    let name = format!("{}-{tenant}", own.unwrap_or("tenant"));
    if name == CONTEXT_NAME {
        return Err(Error::usage(format!("{name} is the context of the personal workspace"))
            .hint("choose another name: --context NAME"));
    }
    entry_name::check(&name).map_err(Error::usage)
}

/// The default namespace of the context: the given one, or the first active one.
fn default_namespace<'a>(
    given: Option<&'a str>,
    namespaces: &'a [TenantNamespace],
) -> Option<&'a str> {
    let active = || namespaces.iter().find(|it| it.status == ACTIVE).map(|it| it.name.as_str());
    given.or_else(active)
}

/// What the person can do next.
fn explanation(tenant: &str, chosen: Option<&str>, namespaces: &[TenantNamespace]) -> String {
    let Some(chosen) = chosen else {
        return format!(
            "The tenant has no active namespace, so the context has no default one. An owner \
             creates one: kubectl tenant namespaces create {tenant}-NAME"
        );
    };
    match namespaces.iter().find(|it| it.name == chosen) {
        None => format!(
            "warning: tenant {tenant} has no namespace {chosen}: kubectl tenant namespaces \
             --tenant {tenant}"
        ),
        Some(it) if it.status != ACTIVE => {
            format!(
                "warning: namespace {chosen} is {}, so your rights in it may be missing",
                it.status
            )
        }
        Some(_) => format!("Default namespace {chosen}; try: kubectl get pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, status: &str) -> TenantNamespace {
        TenantNamespace {
            name: name.to_owned(),
            status: status.to_owned(),
            made_by: None,
            created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_tenant_has_a_context_of_its_own() {
        assert_eq!(context_name(None, "solar").unwrap(), "tenant-solar");
        assert_eq!(context_name(Some("work"), "solar").unwrap(), "work-solar");
        assert!(context_name(None, "context").is_err());
    }

    #[test]
    fn the_first_active_namespace_is_the_default() {
        let namespaces = [
            namespace("solar-a", "terminating"),
            namespace("solar-b", "active"),
            namespace("solar-c", "active"),
        ];
        assert_eq!(default_namespace(None, &namespaces), Some("solar-b"));
        assert_eq!(default_namespace(Some("solar-c"), &namespaces), Some("solar-c"));
        assert_eq!(default_namespace(None, &namespaces[..1]), None);
        for (chosen, expected) in [
            (None, "namespaces create solar-NAME"),
            (Some("other"), "has no namespace other"),
            (Some("solar-a"), "is terminating"),
            (Some("solar-c"), "Default namespace solar-c"),
        ] {
            let text = explanation("solar", chosen, &namespaces);
            assert!(text.contains(expected), "{text}");
        }
    }
}
