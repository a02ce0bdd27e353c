//! Amounts in a Tenant: Kubernetes quantities that are not negative (apimachinery
//! `resource.Quantity`).

use serde_json::{Value, json};

use super::limits::MAX_AMOUNT_LENGTH;
use crate::cluster::is_quantity;

/// Whether a value is an amount: a whole number, or a text such as `8`, `500m`, `1.5Gi` or `1e3`.
pub(super) fn is_amount(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_AMOUNT_LENGTH && is_quantity(text),
        number => number.as_u64().is_some(),
    }
}

/// The schema of a map from names, such as `requests.cpu`, to amounts.
pub(super) fn amounts_schema(description: &str, max: usize) -> Value {
    json!({
        "description": description,
        "type": "object",
        "maxProperties": max,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maxLength": MAX_AMOUNT_LENGTH,
            "pattern":
                r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts() {
        for good in ["8", "500m", "1.5Gi", "0.5", ".5", "5.", "1k", "1e3", "1E-2", "2E", "3Ei"] {
            assert!(is_amount(&json!(good)), "{good}");
        }
        for bad in ["", "lots", "-1", "+1", "8 Gi", "8gi", "1.2.3", ".", "1e", "1e+", "1Mib", "e3"]
        {
            assert!(!is_amount(&json!(bad)), "{bad}");
        }
        assert!(!is_amount(&json!("1".repeat(33))));
        assert!(is_amount(&json!(8)));
        for bad in [json!(-1), json!(1.5), json!(null), json!([1]), json!({})] {
            assert!(!is_amount(&bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in ".{0,40}") {
            let _ = is_amount(&json!(text));
        }
    }
}
