//! The tenants and namespaces of the testbed.

use std::ops::Range;

use serde_json::{Value, json};

use super::objects::{NAMESPACES, TENANTS, group, namespace, owned_by, owner, tenant, user};

/// The group whose people may be members of tenants.
pub(super) const DEVELOPERS: &str = "developers";
/// The group of the owners of [`NEWCOMERS_TENANT`].
pub(super) const NEWCOMERS: &str = "newcomers";
/// Tenant whose namespaces are created through the gateway, with a quota, limits and three
/// RoleBindings each.
pub(super) const CREATED: &str = "created";
/// Tenant whose namespaces are created directly at the API server.
pub(super) const DIRECT: &str = "direct";
/// User of the API server who owns [`DIRECT`].
pub(super) const DIRECTOR: &str = "director";
/// Tenant with a fifth of all namespaces, and three RoleBindings in each.
pub(super) const BIG: &str = "big";
/// Roles of the owner of [`BIG`].
pub(super) const BIG_ROLES: [&str; 3] = ["admin", "edit", "view"];
/// Tenant whose owners are a group, with [`MEDIUM`] namespaces.
pub(super) const NEWCOMERS_TENANT: &str = "newcomers";
/// Tenant whose namespaces its members watch. It is made for this.
pub(super) const WATCHED: &str = "watched";
/// The owner of [`WATCHED`] who creates and deletes namespaces.
pub(super) const WATCHER: &str = "watcher";
/// A group of owners of [`WATCHED`].
pub(super) const WATCHERS: &str = "watchers";
/// Tenant with [`SMALL`] namespaces.
pub(super) const LISTED: &str = "listed";
/// The only tenant of a person.
pub(super) const SINGLE: &str = "single";
/// Number of tenants of the person with many.
pub(super) const MANY: usize = 50;
/// Namespaces of the tenants that are suspended or joined.
pub(super) const MEDIUM: usize = 20;
/// Namespaces of a small tenant.
pub(super) const SMALL: usize = 5;

/// How much the testbed has.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of tenants.
    pub tenants: usize,
    /// Number of their namespaces, without homes.
    pub namespaces: usize,
    /// Number of tenants for the policies' last measurement.
    pub most_tenants: usize,
}

/// A tenant of the testbed.
#[derive(Clone, Debug)]
pub(super) struct PlannedTenant {
    pub(super) name: String,
    pub(super) spec: Value,
    /// Number of its namespaces.
    pub(super) namespaces: usize,
}

impl PlannedTenant {
    fn new(name: impl Into<String>, spec: Value, namespaces: usize) -> Self {
        Self { name: name.into(), spec, namespaces }
    }

    /// The Tenant, with its path.
    pub(super) fn object(&self) -> (String, Value) {
        (TENANTS.to_owned(), tenant(&self.name, &self.spec))
    }

    /// The namespaces, with their path.
    pub(super) fn namespace_objects(&self) -> impl Iterator<Item = (String, Value)> + '_ {
        (0..self.namespaces).map(|number| {
            let name = namespace_of(&self.name, number);
            (NAMESPACES.to_owned(), namespace(&name, &self.name))
        })
    }
}

/// Name of a namespace of a tenant.
pub(super) fn namespace_of(tenant: &str, number: usize) -> String {
    format!("{tenant}-{number:04}")
}

/// Name of a tenant that is suspended in this round.
pub(super) fn suspended_tenant(round: usize) -> String {
    format!("suspended{round}")
}

/// Name of a tenant of the person with many.
pub(super) fn tenant_of_many(number: usize) -> String {
    format!("many{number:02}")
}

/// Name of a tenant without a part of its own.
pub(super) fn other_tenant(number: usize) -> String {
    format!("other{number:04}")
}

/// The address by which Tenants name a person of the testbed.
pub(super) fn email(person: &str) -> String {
    format!("{person}@example.com")
}

/// The tenant of direct creations, which is there from the beginning.
pub(super) fn direct() -> PlannedTenant {
    PlannedTenant::new(DIRECT, owned_by(&user(DIRECTOR), &["admin"]), 0)
}

/// All other tenants, for this number of rounds of suspensions.
pub(super) fn plan(size: Size, suspensions: usize) -> Vec<PlannedTenant> {
    let admin = |person: &str| owned_by(&user(&email(person)), &["admin"]);
    let mut all = vec![
        PlannedTenant::new(CREATED, created(), 0),
        PlannedTenant::new(BIG, owned_by(&user(&email("big")), &BIG_ROLES), size.namespaces / 5),
        PlannedTenant::new(NEWCOMERS_TENANT, owned_by(&group(NEWCOMERS), &["admin"]), MEDIUM),
        PlannedTenant::new(LISTED, admin("lister"), SMALL),
        PlannedTenant::new(SINGLE, admin("single"), 1),
    ];
    all.extend(
        (0..suspensions)
            .map(|round| PlannedTenant::new(suspended_tenant(round), admin("suspended"), MEDIUM)),
    );
    all.extend(
        (0..MANY).map(|number| PlannedTenant::new(tenant_of_many(number), admin("many"), 1)),
    );
    // The direct tenant counts too.
    let others = size.tenants.saturating_sub(all.len() + 1);
    let planned: usize = all.iter().map(|planned| planned.namespaces).sum();
    let left = size.namespaces.saturating_sub(planned);
    all.extend((0..others).map(|number| {
        let namespaces = left / others + usize::from(number < left % others);
        PlannedTenant::new(other_tenant(number), admin("other"), namespaces)
    }));
    all
}

/// The tenant whose namespaces are watched, with one of them, and with this number of owners whose
/// entries are removed.
pub(super) fn watched(leaving: usize) -> PlannedTenant {
    PlannedTenant::new(WATCHED, watched_spec(0..leaving), 1)
}

/// Name of an owner of [`WATCHED`] whose entry is removed.
pub(super) fn leaving_owner(number: usize) -> String {
    format!("leaving{number:02}")
}

/// The specification of [`WATCHED`], with the entries of these leaving owners.
pub(super) fn watched_spec(leaving: Range<usize>) -> Value {
    let admin = &["admin"];
    let mut owners = vec![
        owner(&user(&email(WATCHER)), &["admin", "tenant-namespace-deleter"]),
        owner(&group(WATCHERS), admin),
    ];
    owners.extend(leaving.map(|number| owner(&user(&email(&leaving_owner(number))), admin)));
    json!({"owners": owners})
}

/// A Tenant whose namespaces have six objects: the namespace, a quota, limits and three RoleBindings.
fn created() -> Value {
    let mut spec = owned_by(&user(&email("creator")), &["admin", "tenant-namespace-deleter"]);
    spec["additionalRoleBindings"] =
        json!([{"clusterRoleName": "view", "subjects": [group(NEWCOMERS)]}]);
    spec["resourceQuotas"] = json!({"scope": "Namespace", "items": [{"hard": {"pods": "10"}}]});
    let limits = json!({"type": "Container", "default": {"cpu": "100m"},
        "defaultRequest": {"cpu": "10m"}});
    spec["limitRanges"] = json!({"items": [{"limits": [limits]}]});
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_as_many_tenants_and_namespaces_as_its_size() {
        for (tenants, namespaces) in [(1000, 5000), (100, 500)] {
            let size = Size { tenants, namespaces, most_tenants: tenants };
            let plan = plan(size, 3);
            assert_eq!(plan.len() + 1, tenants);
            let all: usize = plan.iter().map(|planned| planned.namespaces).sum();
            assert_eq!(all, namespaces);
            let big = plan.iter().find(|planned| planned.name == BIG).unwrap();
            assert_eq!(big.namespaces, namespaces / 5);
        }
    }
}
