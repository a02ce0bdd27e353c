//! Amounts in a Tenant: Kubernetes quantities that are not negative (apimachinery
//! `resource.Quantity`).

use serde_json::{Value, json};

use super::limits::MAX_AMOUNT_LENGTH;

const SUFFIXES: [&str; 16] =
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Whether a value is an amount: a whole number, or a text such as `8`, `500m`, `1.5Gi` or `1e3`.
pub(super) fn is_amount(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_AMOUNT_LENGTH && is_amount_text(text),
        number => number.as_u64().is_some(),
    }
}

fn is_amount_text(text: &str) -> bool {
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - suffix.len()];
    let is_number = number.contains(|c: char| c.is_ascii_digit())
        && number.bytes().filter(|byte| *byte == b'.').count() <= 1;
    is_number && (SUFFIXES.contains(&suffix) || is_exponent(suffix))
}

/// Whether a suffix is a decimal exponent, such as `e3` or `E-2`.
fn is_exponent(suffix: &str) -> bool {
    suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
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
