//! The policies for the deletion of Tenants (`tenant-guard-tenants`,
//! `tenant-guard-capsule-tenants`).

use crate::{
    install::{
        policy::{Message, Namespaces, Policy, rule},
        quoted,
    },
    tenant::{ApiGroup, KEEP_NAMESPACES, ON_DELETE_ANNOTATION},
};

/// The policy for the Tenants of one API group. It exempts nobody, because it protects from a
/// mistake, and administrators make the mistake: the annotation is the way past it.
pub(super) fn policy(group: ApiGroup) -> Policy {
    let size = "oldObject.?status.?size.orValue(0)";
    let advice = format!(
        "delete them first, or let them stay with the annotation \
         {ON_DELETE_ANNOTATION}={KEEP_NAMESPACES}"
    );
    Policy {
        name: match group {
            ApiGroup::TenantBroker => "tenant-guard-tenants",
            ApiGroup::Capsule => "tenant-guard-capsule-tenants",
        },
        reason: "The deletion of a Tenant takes the permissions of all its people. It is refused \
                 for everybody while the tenant has namespaces, unless an annotation says that \
                 they stay.",
        rules: vec![rule(group.name(), &["tenants"], &["DELETE"], "Cluster")],
        conditions: vec![],
        variables: vec![],
        validations: vec![(
            format!(
                "{size} == 0 || oldObject.metadata.?annotations[{}].orValue(\"\") == {}",
                quoted(ON_DELETE_ANNOTATION),
                quoted(KEEP_NAMESPACES)
            ),
            Message::Built(
                format!(
                    "\"tenant \" + oldObject.metadata.name + \" still has \" + string({size}) + \
                     \" namespaces: \" + {}",
                    quoted(&advice)
                ),
                format!("the tenant still has namespaces: {advice}"),
            ),
        )],
        namespaces: Namespaces::All,
    }
}
