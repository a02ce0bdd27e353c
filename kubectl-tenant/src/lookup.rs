//! Which workspace a name on the command line means.

use tenant_shared::{Code, NAME_PREFIX, Name, Workspace, is_dns_label, is_tenant_namespace};
use uuid::Uuid;

use crate::{
    broker::Broker,
    error::{Error, Kind},
    suggestion::MAX_SUGGESTIONS,
};

/// The workspaces of a name.
pub(crate) enum Found {
    One(Box<Workspace>),
    /// An identifier that the broker did not look up.
    Identifier(Uuid),
    /// Several workspaces of one person.
    Several(Vec<Workspace>),
}

/// The user's own workspace. A membership in a tenant does not take the place of the personal one.
async fn own(broker: &Broker) -> Result<Workspace, Error> {
    let mut own = broker.own_workspaces().await?.items;
    let personal = own.iter().position(|it| it.tenant.is_none()).unwrap_or_default();
    if own.is_empty() {
        return Err(
            Error::refused("you have no workspace yet").hint("create one: kubectl tenant init")
        );
    }
    Ok(own.swap_remove(personal))
}

/// The namespace of the user's own workspace. It becomes a part of commands that people copy.
pub(crate) async fn own_namespace(broker: &Broker) -> Result<String, Error> {
    let namespace = own(broker).await?.namespace;
    if is_dns_label(&namespace) {
        Ok(namespace)
    } else {
        Err(Error::other("the broker's answer has a namespace with an invalid name"))
    }
}

/// Finds the workspaces of a name. The broker looks them up, because the list of all workspaces may
/// be long.
pub(crate) async fn find(broker: &Broker, name: &Name) -> Result<Found, Error> {
    let mut found = match (broker.workspaces_named(name).await, name) {
        // An identifier needs no lookup: the next request is refused with the reason and recorded
        // in the audit trail. An older broker has no lookup.
        (Err(error), Name::Id(id)) if error.kind == Kind::Refused => {
            return Ok(Found::Identifier(*id));
        }
        (Err(error), _) => return Err(explain_home(error, name)),
        (Ok(found), _) => found.items,
    };
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(Found::One(Box::new(one))),
        (Some(last), false) => {
            found.push(last);
            Ok(Found::Several(found))
        }
        (None, _) => Err(Error::refused(format!("there is no workspace named {name}"))
            .hint("kubectl tenant workspaces lists yours, with --all everybody's")),
    }
}

/// Resolves a name to a workspace's identifier; without a name, the user's own workspace.
pub(crate) async fn resolve(broker: &Broker, name: Option<&Name>) -> Result<Uuid, Error> {
    let Some(name) = name else { return Ok(own(broker).await?.id) };
    match find(broker, name).await? {
        Found::One(workspace) => Ok(workspace.id),
        Found::Identifier(id) => Ok(id),
        Found::Several(several) => Err(ambiguous(name, &several)),
    }
}

/// The error for a name of several workspaces: it names each by what the command accepts.
pub(crate) fn ambiguous(name: &Name, several: &[Workspace]) -> Error {
    let names: Vec<String> = several
        .iter()
        .take(MAX_SUGGESTIONS)
        .map(|it| match &it.tenant {
            None => name_of(it),
            Some(tenant) => format!("{} (member of tenant {tenant})", name_of(it)),
        })
        .collect();
    let more = match several.len() - names.len() {
        0 => String::new(),
        count => format!(", and {count} more: kubectl tenant workspaces --all"),
    };
    Error::refused(format!("{name} has {} workspaces", several.len()))
        .hint(format!("name one of them: {}{more}", names.join(", ")))
}

/// A name that means this workspace and no other. The namespace of a membership is the home of its
/// tenant, which all members share.
pub(crate) fn name_of(workspace: &Workspace) -> String {
    match &workspace.tenant {
        None => workspace.namespace.clone(),
        Some(_) => workspace.id.to_string(),
    }
}

/// The workspace at the beginning of a sentence.
pub(crate) fn title(workspace: &Workspace) -> String {
    let owner = workspace.owner_email.as_ref().map(|email| format!(" of {email}"));
    let owner = owner.unwrap_or_default();
    match &workspace.tenant {
        None => format!("Workspace {}{owner}", workspace.namespace),
        Some(tenant) => format!("The membership{owner} in tenant {tenant}"),
    }
}

/// Adds advice to the error of an unknown name that may be the home of a tenant.
fn explain_home(error: Error, name: &Name) -> Error {
    let tenant = match name {
        Name::Namespace(namespace) if !is_tenant_namespace(namespace) => {
            namespace.strip_prefix(NAME_PREFIX)
        }
        Name::Namespace(_) | Name::Id(_) | Name::Email(_) => None,
    };
    match tenant {
        Some(tenant) if error.code == Some(Code::NotFound) => error.hint(format!(
            "the home of a tenant names none of its members; if this is one, `kubectl tenant \
             tenants members {tenant}` shows their identifiers, and `kubectl tenant tenants` has \
             the commands for the tenant itself"
        )),
        _ => error,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tenant_shared::{Quota, WorkspaceStatus};

    use super::*;

    /// A workspace of bob: a personal one, or a membership in this tenant.
    pub(crate) fn workspace(number: u128, tenant: Option<&str>) -> Workspace {
        let id = Uuid::from_u128(number);
        Workspace {
            id,
            namespace: format!("tenant-{}", tenant.map_or_else(|| id.to_string(), str::to_owned)),
            status: WorkspaceStatus::Provisioned,
            quota: Quota { cpu: "4".to_owned(), memory: "8Gi".to_owned() },
            tier: "basic".to_owned(),
            cluster: "internal-cluster".to_owned(),
            owner: Uuid::from_u128(7),
            owner_email: Some("bob@example.com".to_owned()),
            created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            unfinished: None,
            drift: Vec::new(),
            tenant: tenant.map(str::to_owned),
        }
    }

    #[test]
    fn an_ambiguous_name_suggests_names_that_the_command_accepts() {
        let name = "bob@example.com".parse().unwrap();
        let mut several = vec![workspace(1, None), workspace(2, Some("lunar"))];
        let error = ambiguous(&name, &several);
        insta::assert_snapshot!(
            format!("{error}\n{}", error.hint.clone().unwrap()),
            @r"
        bob@example.com has 2 workspaces
        name one of them: tenant-00000000-0000-0000-0000-000000000001, 00000000-0000-0000-0000-000000000002 (member of tenant lunar)
        "
        );
        several.extend((3..13).map(|number| workspace(number, Some("solar"))));
        let hint = ambiguous(&name, &several).hint.unwrap();
        assert!(hint.ends_with(", and 2 more: kubectl tenant workspaces --all"), "{hint}");
        for it in &several {
            assert!(name_of(it).parse::<Name>().is_ok());
            assert_ne!(name_of(it), "tenant-solar");
        }
    }

    #[test]
    fn a_title_names_the_person_and_not_the_identifier() {
        let personal = title(&workspace(1, None));
        assert!(
            personal.starts_with("Workspace tenant-") && personal.ends_with(" of bob@example.com")
        );
        let membership = title(&workspace(2, Some("solar")));
        assert_eq!(membership, "The membership of bob@example.com in tenant solar");
    }

    #[test]
    fn the_home_of_a_tenant_is_explained() {
        let not_found = || Error { code: Some(Code::NotFound), ..Error::refused("not found") };
        let hint = |name: &str| explain_home(not_found(), &name.parse().unwrap()).hint;
        assert!(hint("tenant-lunar").unwrap().contains("tenants members lunar"));
        for name in ["lunar", "tenant-6ba7b810-9dad-11d1-80b4-00c04fd430c8", "bob@example.com"] {
            assert_eq!(hint(name), None, "{name}");
        }
        let other = explain_home(Error::unreachable("x"), &"tenant-lunar".parse().unwrap());
        assert_eq!(other.hint, None);
    }
}
