//! A request that has to be refused, and what refuses it.

use serde_json::{Value, json};

use super::OWN;
use crate::tenants::attempt::Attempt;

/// What RBAC has to give somebody so that it lets an attack pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// The role `admin` in [`OWN`].
    Admin,
    /// The deletion of [`OWN`].
    DeleteNamespace,
    /// The creation of namespaces (`tenants.direct_namespaces`).
    CreateNamespace,
    /// Writes of namespaces, and of what the broker keeps in them. No role of a tenant has it, and an
    /// administrator may give it by mistake.
    WriteEverywhere,
    /// The rights of administrators of the cluster.
    ClusterAdmin,
}

impl Right {
    /// `resourceAttributes` of an access review that shows whether somebody has it.
    pub(super) fn review(self) -> Option<Value> {
        let rbac = "rbac.authorization.k8s.io";
        match self {
            Self::Admin => Some(json!({
                "namespace": OWN, "group": rbac, "verb": "create", "resource": "rolebindings",
            })),
            Self::CreateNamespace => Some(json!({"verb": "create", "resource": "namespaces"})),
            Self::WriteEverywhere => Some(json!({
                "group": rbac, "verb": "bind", "resource": "clusterroles", "name": "admin",
            })),
            Self::DeleteNamespace | Self::ClusterAdmin => None,
        }
    }
}

/// An attempt, and by what it is refused.
pub(super) struct Attack {
    pub(super) attempt: Attempt,
    pub(super) needs: Right,
    /// Texts of the refusal of somebody who has the right, one of which has to be in it. Without any
    /// they may do it.
    pub(super) policy: &'static [&'static str],
    /// Texts of the refusal of the gateway, if it handles the request itself.
    pub(super) at_gateway: Option<&'static [&'static str]>,
    /// Whether the gateway answers it with what the caller may see.
    pub(super) is_direct_only: bool,
    /// Whether the broker does this itself, so that a thief of its credential can do it, too.
    pub(super) is_of_broker: bool,
}

impl Attack {
    pub(super) fn new(attempt: Attempt, needs: Right, policy: &'static [&'static str]) -> Self {
        Self {
            attempt,
            needs,
            policy,
            at_gateway: None,
            is_direct_only: false,
            is_of_broker: false,
        }
    }

    pub(super) fn at_gateway(self, texts: &'static [&'static str]) -> Self {
        Self { at_gateway: Some(texts), ..self }
    }

    pub(super) fn direct_only(self) -> Self {
        Self { is_direct_only: true, ..self }
    }

    pub(super) fn of_broker(self) -> Self {
        Self { is_of_broker: true, ..self }
    }
}
