//! The schema of `status`.

use serde_json::{Value, json};

use super::limits::{MAX_CONDITION_MESSAGE_LENGTH, MAX_CONDITIONS, MAX_NAMESPACES};

/// The schema of `status`, a subresource that only the broker writes.
pub(super) fn status() -> Value {
    json!({
        "description": "What the broker found and did.",
        "type": "object",
        "properties": {
            "state": {
                "description": "Active; Suspended; Degraded: a condition says what is wrong; \
                                Terminating.",
                "type": "string",
                "enum": ["Active", "Suspended", "Degraded", "Terminating"],
            },
            "size": {
                "description": "Number of namespaces.",
                "type": "integer",
                "format": "int32",
                "minimum": 0,
            },
            "namespaces": {
                "description": "Names of the namespaces, sorted.",
                "type": "array",
                "maxItems": MAX_NAMESPACES,
                "items": {"type": "string", "maxLength": 63},
            },
            "observedGeneration": {
                "description": "Generation of the specification that the status is about.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
            "conditions": conditions(),
        },
    })
}

/// Conditions of the Kubernetes API (`meta/v1`, `Condition`), with its limits.
fn conditions() -> Value {
    json!({
        "description": "What could not be done, and what to do about it.",
        "type": "array",
        "maxItems": MAX_CONDITIONS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "minLength": 1, "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": MAX_CONDITION_MESSAGE_LENGTH},
            },
        },
    })
}
