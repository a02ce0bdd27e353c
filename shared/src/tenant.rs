//! Tenants: several people who share namespaces.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Step, WireTime, WorkspaceStatus};

/// Maximum length of a tenant's name, in bytes, so that `tenant-NAME` and the namespaces `NAME-…` are
/// DNS labels.
pub const MAX_TENANT_NAME_LENGTH: usize = 40;

/// A condition of a tenant: something that the broker could not carry out, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantCondition {
    /// Type of the condition, for example `RoleNotAllowed`.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", oai(rename = "type"))]
    pub kind: String,
    /// Reason and remedy.
    pub message: String,
}

/// A ClusterRole that a tenant gives a person in each of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantRole {
    /// Name of the ClusterRole.
    pub cluster_role: String,
    /// The entries of the Tenant that give it, for example `owner User alice`.
    pub given_by: Vec<String>,
}

/// A tenant, as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantInfo {
    /// Name of the tenant.
    pub name: String,
    /// API group of its object: `tenant-broker.io` or `capsule.clastix.io`.
    pub api_group: String,
    /// `Active`, `Degraded`, `Suspended` or `Terminating`, as in the status of the object; `Suspending` or
    /// `Resuming` until the suspension or resumption is complete.
    pub state: String,
    /// Whether the caller makes namespaces of the tenant.
    pub is_owner: bool,
    /// The ClusterRoles that the caller has in each namespace of the tenant, by name.
    pub roles: Vec<TenantRole>,
    /// Number of namespaces, including those that are being deleted.
    pub namespace_count: u32,
    /// Maximum number of namespaces; absent without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub namespace_quota: Option<u32>,
    /// Identifier of the caller's membership, by which the operations on workspaces address it;
    /// absent until the caller becomes a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub workspace: Option<Uuid>,
    /// Conditions of the tenant; for owners and administrators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", oai(default, skip_serializing_if_is_empty))]
    pub conditions: Vec<TenantCondition>,
}

/// Response body of `GET /tenants`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantList {
    /// Tenants, by name.
    pub items: Vec<TenantInfo>,
}

/// A member of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantMember {
    /// Identifier of the user.
    pub user: Uuid,
    /// E-mail address of the user.
    pub email: String,
    /// Identifier of the membership, by which the operations on workspaces address it.
    pub workspace: Uuid,
    /// Status of the membership.
    pub status: WorkspaceStatus,
    /// Whether the member makes namespaces of the tenant.
    pub is_owner: bool,
    /// The ClusterRoles that the member has in each namespace of the tenant, by name.
    pub roles: Vec<TenantRole>,
}

/// Response body of `GET /tenants/{name}/members`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantMemberList {
    /// Members, by e-mail address.
    pub items: Vec<TenantMember>,
}

/// A namespace of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantNamespace {
    /// Name of the namespace.
    pub name: String,
    /// `creating`, `active`, `terminating`, `over_quota` (nobody has rights in it) or `orphaned`.
    pub status: String,
    /// Identifier of the user who made it through the broker; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub made_by: Option<Uuid>,
    /// When the broker first knew it (RFC 3339, UTC).
    pub created_at: WireTime,
}

/// Response body of `GET /tenants/{name}/namespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantNamespaceList {
    /// Namespaces, by name.
    pub items: Vec<TenantNamespace>,
    /// Maximum number of namespaces; absent without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub quota: Option<u32>,
}

/// Request body of `POST /tenants/{name}/namespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct CreateNamespaceRequest {
    /// Name of the namespace. It begins with the name of the tenant and `-`, unless the Tenant
    /// allows others.
    #[cfg_attr(feature = "openapi", oai(validator(min_length = 1, max_length = 63)))]
    pub name: String,
    /// Labels of the namespace; at most 64. None of `tenant-broker.io`, `kubernetes.io` or `k8s.io`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", oai(default))]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the namespace; at most 64, as labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", oai(default))]
    pub annotations: BTreeMap<String, String>,
}

/// Response body of `GET /tenants/{name}/moves/{namespace}`: what the move of a namespace into the
/// tenant changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct NamespaceMovePlan {
    /// Name of the namespace.
    pub namespace: String,
    /// `metadata.uid` of the namespace.
    pub namespace_uid: String,
    /// `metadata.resourceVersion` of the namespace that the plan was made from.
    pub resource_version: String,
    /// The tenant that has the namespace; absent if none has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub from: Option<String>,
    /// The tenant that had the namespace until its Tenant was deleted; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub former: Option<String>,
    /// The tenant that gets the namespace.
    pub to: String,
    /// Labels that an administrator of the cluster sets on the namespace after the announcement.
    pub labels: BTreeMap<String, String>,
    /// Description of each change.
    pub changes: Vec<String>,
    /// Why the namespace cannot be moved, and what to do; empty if it can.
    pub refusals: Vec<String>,
}

/// Request body of `POST /tenants/{name}/moves/{namespace}`: what the plan said, so that a namespace
/// that changed meanwhile is not moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct MoveNamespaceRequest {
    /// `namespace_uid` of the plan.
    #[cfg_attr(feature = "openapi", oai(validator(min_length = 1, max_length = 64)))]
    pub namespace_uid: String,
    /// `from` of the plan; absent if no tenant has the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 40)))]
    pub from: Option<String>,
    /// Reason, for the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 1000)))]
    pub reason: Option<String>,
}

/// Response body of the suspension and of the resumption of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct TenantSuspension {
    /// Name of the tenant.
    pub name: String,
    /// State of the tenant: `Suspending`, `Suspended`, `Resuming` or `Active`.
    pub state: String,
    /// Steps of the operation.
    pub steps: Vec<Step>,
    /// In the response to a resumption: RoleBindings that the suspension deleted and that the broker did
    /// not make, by namespace and name, at most about 1,000. They are not restored; their owners make them
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", oai(default, skip_serializing_if_is_empty))]
    pub bindings_not_restored: Vec<RoleBindingName>,
}

/// A RoleBinding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct RoleBindingName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
