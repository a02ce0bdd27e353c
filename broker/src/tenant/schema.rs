//! The schema of `spec` (OpenAPI v3, as structural schemas of `CustomResourceDefinition` have it).
//!
//! Every text, list and map has a limit. Lists are atomic, unless it is said why not.

use serde_json::{Value, json};

use super::{
    cluster_role_name,
    limits::{
        MAX_AMOUNTS, MAX_ANNOTATION_LENGTH, MAX_BINDINGS, MAX_CLUSTER_ROLES, MAX_KEPT_FIELDS,
        MAX_LABEL_LENGTH, MAX_LABELS, MAX_NAMESPACES, MAX_OWNERS, MAX_PATTERN_LENGTH,
        MAX_PROXY_SETTINGS, MAX_QUOTA_SCOPES, MAX_QUOTAS, MAX_SUBJECTS,
    },
    quantity::amounts_schema,
    subject,
};

/// ClusterRoles of an owner that names none.
pub(super) const DEFAULT_CLUSTER_ROLES: [&str; 2] = ["admin", "tenant-namespace-deleter"];
/// Cluster-scoped resources of proxy settings, with the names that Capsule gives them.
pub(super) const PROXY_KINDS: [&str; 6] = [
    "Nodes",
    "StorageClasses",
    "IngressClasses",
    "PriorityClasses",
    "RuntimeClasses",
    "PersistentVolumes",
];
/// Operations of proxy settings.
pub(super) const PROXY_OPERATIONS: [&str; 3] = ["List", "Update", "Delete"];

/// Kinds of objects that a LimitRange limits.
pub(super) const LIMIT_TYPES: [&str; 3] = ["Container", "Pod", "PersistentVolumeClaim"];

/// The schema of `spec`.
pub(super) fn spec() -> Value {
    json!({
        "description": "Who owns the tenant, and what its namespaces are like.",
        "type": "object",
        "required": ["owners"],
        "properties": {
            "owners": owners(),
            "additionalRoleBindings": additional_role_bindings(),
            "namespaceOptions": namespace_options(),
            "resourceQuotas": resource_quotas(),
            "limitRanges": limit_ranges(),
            "nodeSelector": labels("Labels of the nodes on which the tenant's pods run."),
            "bindings": {
                "description": "Whom owners may bind themselves: Own, ServiceAccounts of the same \
                                namespace; Any, also users, groups and other ServiceAccounts.",
                "type": "string",
                "enum": ["Own", "Any"],
                "default": "Own",
            },
            "tier": {
                "description": "Tier of the namespaces, of the broker's configuration.",
                "type": "string",
                "maxLength": 63,
                "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            },
            "networkPolicies": with_default(
                preserved_unknown_fields("NetworkPolicies of the namespaces. Not carried out.")
            ),
            "ingressOptions": ingress_options(),
            "containerRegistries": preserved_unknown_fields("Allowed image registries. Not carried out."),
        },
    })
}

/// The list of owners is a map by kind and name: nobody is named twice, and two managers of
/// server-side apply can each have owners of their own. The roles of an owner are atomic, because a
/// merged list would keep the default roles of an owner who gets others.
fn owners() -> Value {
    let (mut properties, rules) = subject::owner_schema();
    properties["clusterRoles"] = json!({
        "description": "ClusterRoles of the owner in each namespace of the tenant.",
        "type": "array",
        "maxItems": MAX_CLUSTER_ROLES,
        "default": DEFAULT_CLUSTER_ROLES,
        "items": cluster_role_name::schema("Name of a ClusterRole."),
    });
    properties["proxySettings"] = json!({
        "description": "Cluster-scoped resources that the owner can see through the gateway.",
        "type": "array",
        "maxItems": MAX_PROXY_SETTINGS,
        "items": {
            "type": "object",
            "required": ["kind", "operations"],
            "properties": {
                "kind": {
                    "description": "The resource.",
                    "type": "string",
                    "enum": PROXY_KINDS,
                },
                "operations": {
                    "description": "What the owner may do; only List is carried out.",
                    "type": "array",
                    "maxItems": 3,
                    "items": {"type": "string", "enum": PROXY_OPERATIONS},
                },
            },
        },
    });
    json!({
        "description": "Who makes and deletes namespaces of the tenant. Each is named once.",
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_OWNERS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["kind", "name"],
        "items": {
            "type": "object",
            "required": ["kind", "name"],
            "properties": properties,
            "x-kubernetes-validations": rules,
        },
    })
}

fn additional_role_bindings() -> Value {
    json!({
        "description": "Roles in each namespace for subjects that do not own the tenant.",
        "type": "array",
        "maxItems": MAX_BINDINGS,
        "items": {
            "type": "object",
            "required": ["clusterRoleName", "subjects"],
            "properties": {
                "clusterRoleName": cluster_role_name::schema("ClusterRole that is bound."),
                "subjects": {
                    "description": "Subjects, as in a RoleBinding.",
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_SUBJECTS,
                    "items": subject::bound_schema(),
                },
            },
        },
    })
}

fn namespace_options() -> Value {
    json!({
        "description": "Number, names and metadata of the namespaces.",
        "type": "object",
        "properties": {
            "quota": {
                "description": "How many namespaces the tenant may have.",
                "type": "integer",
                "format": "int32",
                "minimum": 1,
                "maximum": MAX_NAMESPACES,
            },
            "forceTenantPrefix": {
                "description": "Whether the name of a namespace has to begin with the name of the \
                                tenant and a dash.",
                "type": "boolean",
                "default": true,
            },
            "additionalMetadata": metadata(
                "Labels and annotations of each namespace.",
                &labels("Labels."),
                &texts("Annotations.", MAX_ANNOTATION_LENGTH),
            ),
            "requiredMetadata": metadata(
                "Labels and annotations that a new namespace must have.",
                &texts("Patterns of the values of labels.", MAX_PATTERN_LENGTH),
                &texts("Patterns of the values of annotations.", MAX_PATTERN_LENGTH),
            ),
        },
    })
}

fn metadata(description: &str, labels: &Value, annotations: &Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "properties": {"labels": labels, "annotations": annotations},
    })
}

fn resource_quotas() -> Value {
    with_default(json!({
        "description": "Limits of the tenant's resources.",
        "type": "object",
        "properties": {
            "scope": {
                "description": "Tenant: the limits hold for all namespaces together. Namespace: \
                                for each.",
                "type": "string",
                "enum": ["Tenant", "Namespace"],
                "default": "Tenant",
            },
            "items": {
                "description": "Limits, as spec of a ResourceQuota.",
                "type": "array",
                "maxItems": MAX_QUOTAS,
                "items": {
                    "type": "object",
                    "properties": {
                        "hard": amounts_schema("Limit of each resource.", MAX_AMOUNTS),
                        "scopes": {
                            "description": "Objects that the limits apply to.",
                            "type": "array",
                            "maxItems": MAX_QUOTA_SCOPES,
                            "items": {"type": "string", "minLength": 1, "maxLength": 63},
                        },
                        "scopeSelector": preserved_unknown_fields("Objects that the limits apply to."),
                    },
                },
            },
        },
    }))
}

fn limit_ranges() -> Value {
    let amounts = |description| amounts_schema(description, MAX_AMOUNTS);
    with_default(json!({
        "description": "Limits and defaults of single objects.",
        "type": "object",
        "properties": {
            "items": {
                "description": "Limits and defaults, as spec of a LimitRange.",
                "type": "array",
                "maxItems": MAX_QUOTAS,
                "items": {
                    "type": "object",
                    "required": ["limits"],
                    "properties": {
                        "limits": {
                            "description": "Limits by kind of object.",
                            "type": "array",
                            "maxItems": MAX_QUOTAS,
                            "items": {
                                "type": "object",
                                "required": ["type"],
                                "properties": {
                                    "type": {
                                        "description": "Kind of object.",
                                        "type": "string",
                                        "enum": LIMIT_TYPES,
                                    },
                                    "max": amounts("Upper limits."),
                                    "min": amounts("Lower limits."),
                                    "default": amounts("Default limits of containers."),
                                    "defaultRequest": amounts("Default requests of containers."),
                                    "maxLimitRequestRatio": amounts(
                                        "Upper limits of the ratio of limit and request."
                                    ),
                                },
                            },
                        },
                    },
                },
            },
        },
    }))
}

fn ingress_options() -> Value {
    let mut schema =
        with_default(preserved_unknown_fields("Rules for Ingresses. Not carried out."));
    schema["properties"] = json!({
        "hostnameCollisionScope": {
            "description": "Where a host name may occur once only. Not carried out.",
            "type": "string",
            "enum": ["Cluster", "Tenant", "Namespace", "Disabled"],
            "default": "Disabled",
        },
    });
    schema
}

/// Gives an object's schema the default `{}`, which the defaults of its fields then fill.
fn with_default(mut schema: Value) -> Value {
    schema["default"] = json!({});
    schema
}

/// A map to values of labels. No schema restricts the keys of a map.
fn labels(description: &str) -> Value {
    let mut schema = texts(description, MAX_LABEL_LENGTH);
    schema["additionalProperties"]["pattern"] =
        json!("^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$");
    schema
}

/// A map to texts of this length.
fn texts(description: &str, max_length: usize) -> Value {
    json!({
        "description": description,
        "type": "object",
        "maxProperties": MAX_LABELS,
        "additionalProperties": {"type": "string", "maxLength": max_length},
    })
}

/// An object of any content. The API server keeps its fields, so that files that have them can be
/// applied.
fn preserved_unknown_fields(description: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "maxProperties": MAX_KEPT_FIELDS,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
