//! The command `use`: becomes a member of a tenant, and points kubectl at its namespaces.

use secrecy::ExposeSecret;
use tenant_shared::{CONTEXT_NAME, TenantNamespace};
use tokio::time::Instant;

use super::membership;
use crate::{
    account::Account,
    broker::{Broker, Mode},
    cli::tenants::UseTenant,
    entry_name,
    error::Error,
    http::TOTAL_TIMEOUT,
    kubeconfig::Entries,
    runtime,
    store::AccountFlags,
    suggestion,
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
    let given = options.namespace.as_deref();
    let (membership, namespaces, document) = runtime::block_on(async {
        // Nobody becomes a member, and no token is issued, for a context that cannot work.
        let namespaces = match given {
            Some(name) => Some(namespaces_with(broker, tenant, name, world).await?),
            None => None,
        };
        let membership = membership::join(broker, tenant, world).await?;
        let namespaces = match namespaces {
            Some(namespaces) => namespaces,
            None => broker.tenant_namespaces(tenant).await?.items,
        };
        let document = broker.kubeconfig(options.mode, Some(membership.id)).await?;
        Ok::<_, Error>((membership, namespaces, document))
    })??;
    let mut entries = Entries::read(document.expose_secret(), options.mode, &account.key)?;
    entries.set_workspace(membership.id)?;
    let namespace = default_namespace(given, &namespaces);
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

/// The namespaces of a tenant, which has to have this one. A list that cannot be read is a warning.
async fn namespaces_with(
    broker: &Broker,
    tenant: &str,
    name: &str,
    world: &World,
) -> Result<Vec<TenantNamespace>, Error> {
    let namespaces = match broker.tenant_namespaces(tenant).await {
        Ok(found) => found.items,
        Err(error) => {
            world.print_message(format!(
                "warning: whether tenant {tenant} has a namespace {name} is not known: {error}"
            ));
            return Ok(Vec::new());
        }
    };
    if namespaces.iter().any(|it| it.name == name) {
        return Ok(namespaces);
    }
    Err(no_such_namespace(tenant, name, &namespaces))
}

fn no_such_namespace(tenant: &str, name: &str, namespaces: &[TenantNamespace]) -> Error {
    let error = Error::refused(format!("tenant {tenant} has no namespace {name}"));
    let names: Vec<&str> = namespaces.iter().map(|it| it.name.as_str()).collect();
    if names.is_empty() {
        return error.hint(format!(
            "it has none yet; an owner creates one: kubectl tenant namespaces create {tenant}-NAME"
        ));
    }
    let all = suggestion::listed(&names, suggestion::MAX_SUGGESTIONS);
    let nearest = suggestion::nearest(name, names);
    let question = nearest.map(|it| format!("did you mean {it}? ")).unwrap_or_default();
    error.hint(format!("{question}its namespaces: {all}"))
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
        // A warning says that it is not known.
        None => format!("Default namespace {chosen}"),
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
    fn a_namespace_that_does_not_exist_is_refused_with_those_that_do() {
        let namespaces = [namespace("solar-a", "active"), namespace("solar-prod", "active")];
        let text = |name: &str, namespaces: &[TenantNamespace]| {
            let error = no_such_namespace("solar", name, namespaces);
            format!("{error}\n{}", error.hint.clone().unwrap())
        };
        let texts = [text("nope", &namespaces), text("prod", &namespaces), text("nope", &[])];
        insta::assert_snapshot!(texts.join("\n"), @r"
        tenant solar has no namespace nope
        its namespaces: solar-a, solar-prod
        tenant solar has no namespace prod
        did you mean solar-prod? its namespaces: solar-a, solar-prod
        tenant solar has no namespace nope
        it has none yet; an owner creates one: kubectl tenant namespaces create solar-NAME
        ");
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
            (Some("other"), "Default namespace other"),
            (Some("solar-a"), "is terminating"),
            (Some("solar-c"), "Default namespace solar-c"),
        ] {
            let text = explanation("solar", chosen, &namespaces);
            assert!(text.contains(expected), "{text}");
        }
    }
}
