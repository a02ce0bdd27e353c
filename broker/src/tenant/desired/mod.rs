//! The objects of a tenant as they should be in the cluster. Pure.
//!
//! A controller writes them: limits before rights, and what is wider before what is taken away.

mod bindings;
mod findings;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use uuid::Uuid;

pub use objects::pod_security_of;

use super::{Condition, QuotaScope, Tenant, TenantSettings, quota_name};
use crate::{cluster::Object, identity::RbacUser, tier::Tiers};

/// A person with a membership in the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identifier of the person.
    pub user: Uuid,
    /// The Kubernetes user name and groups of the member.
    pub person: RbacUser,
    /// Whether the membership is suspended, so that its ServiceAccount gets no right.
    pub suspended: bool,
}

/// Facts from which the desired state follows.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub tenant: &'a Tenant,
    /// Whether nobody may have rights in the tenant.
    pub suspended: bool,
    pub members: &'a [Member],
    /// Namespaces in which people may have rights: those that are being created or active, and not
    /// over the quota of namespaces.
    pub namespaces: &'a [&'a str],
    pub settings: &'a TenantSettings,
    pub tiers: &'a Tiers,
}

/// The desired state of a tenant in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The namespace `tenant-NAME` and, unless the tenant is suspended, the RoleBinding that names
    /// its owners. The ServiceAccounts of members are made at their first credential, and are not
    /// in here.
    pub home: Vec<Object>,
    /// By name of the namespace: the namespace, its quotas and limits, and last its RoleBindings.
    pub namespaces: BTreeMap<String, Vec<Object>>,
    /// The limits for the whole tenant, by name of the ResourceQuota (`scope: Tenant`). In
    /// `namespaces` these quotas have the amounts 0, with which they are created;
    /// [`lower_quotas`](super::lower_quotas) and [`raise_quotas`](super::raise_quotas) determine
    /// the amounts from then on.
    pub shared_quotas: BTreeMap<String, BTreeMap<String, Quantity>>,
    /// What of the Tenant is not carried out.
    pub conditions: Vec<Condition>,
}

/// The objects of a tenant, and what of the Tenant is not carried out.
pub fn desired_state(inputs: &Inputs<'_>) -> Desired {
    let mut home = vec![objects::home(inputs)];
    let mut grants = Vec::new();
    if !inputs.suspended {
        home.extend(bindings::of_owners(inputs));
        grants = bindings::grants(inputs);
    }
    let namespaces = inputs.namespaces.iter().map(|namespace| {
        let mut all = vec![objects::namespace(inputs, namespace)];
        all.extend(objects::limits(inputs.tenant, namespace));
        all.extend(grants.iter().map(|grant| grant.in_namespace(inputs.tenant, namespace)));
        ((*namespace).to_owned(), all)
    });
    Desired {
        home,
        namespaces: namespaces.collect(),
        shared_quotas: shared_quotas(inputs.tenant),
        conditions: findings::conditions(inputs),
    }
}

fn shared_quotas(tenant: &Tenant) -> BTreeMap<String, BTreeMap<String, Quantity>> {
    match tenant.quota_scope {
        QuotaScope::Namespace => BTreeMap::new(),
        QuotaScope::Tenant => {
            let quotas = tenant.quotas.iter().enumerate();
            quotas.map(|(index, quota)| (quota_name(index), quota.hard.clone())).collect()
        }
    }
}
