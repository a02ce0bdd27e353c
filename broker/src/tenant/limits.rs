//! Limits of the fields of a Tenant. Lengths are in characters, as `maxLength` of the schema.

use tenant_shared::{MAX_TENANT_NAME_LENGTH, NAME_PREFIX};

/// Owners of a tenant.
pub(super) const MAX_OWNERS: usize = 64;
/// ClusterRoles of an owner.
pub(super) const MAX_CLUSTER_ROLES: usize = 16;
/// Proxy settings of an owner.
pub(super) const MAX_PROXY_SETTINGS: usize = 16;
/// Additional role bindings of a tenant.
pub(super) const MAX_BINDINGS: usize = 64;
/// Subjects of an additional role binding.
pub(super) const MAX_SUBJECTS: usize = 256;
/// Name of an owner or subject: `system:serviceaccount:`, a namespace, a colon and a name of 253.
pub(super) const MAX_SUBJECT_LENGTH: usize = 22 + 63 + 1 + 253;
/// Name of a ClusterRole, so that the name of its RoleBinding, `tenant-NAME-ROLE`, has 253 at most.
pub(super) const MAX_CLUSTER_ROLE_LENGTH: usize =
    253 - NAME_PREFIX.len() - "-".len() - MAX_TENANT_NAME_LENGTH;
/// Open tenants in a list.
pub(super) const MAX_TENANTS: u32 = 10_000;
/// Namespaces of a tenant.
pub(super) const MAX_NAMESPACES: usize = 10_000;
/// Labels or annotations of one kind, and keys of a node selector.
pub(super) const MAX_LABELS: usize = 32;
/// Labels, and annotations, that the request for a namespace names.
pub(super) const MAX_REQUESTED_METADATA: usize = 64;
/// Value of a label (Kubernetes, "Labels and Selectors").
pub(super) const MAX_LABEL_LENGTH: usize = 63;
/// Keys and values of all annotations that the request for a namespace names, in bytes.
pub(super) const MAX_REQUESTED_ANNOTATIONS_LENGTH: usize = 16 * 1024;
/// Value of an annotation; the API server limits all of an object together to 256 KiB.
pub(super) const MAX_ANNOTATION_LENGTH: usize = 4096;
/// Pattern for the value of a required label or annotation.
pub(super) const MAX_PATTERN_LENGTH: usize = 253;
/// Items of `resourceQuotas` and `limitRanges`, and limits of a LimitRange.
pub(super) const MAX_QUOTAS: usize = 16;
/// Scopes of a ResourceQuota.
pub(super) const MAX_QUOTA_SCOPES: usize = 8;
/// Amounts of a ResourceQuota or a limit.
pub(super) const MAX_AMOUNTS: usize = 64;
/// Text of an amount.
pub(super) const MAX_AMOUNT_LENGTH: usize = 32;
/// Top-level fields of a group of fields that the broker does not carry out.
pub(super) const MAX_KEPT_FIELDS: usize = 32;
/// Conditions of a status.
pub(super) const MAX_CONDITIONS: usize = 32;
/// Message of a condition.
pub(super) const MAX_CONDITION_MESSAGE_LENGTH: usize = 32_768;
