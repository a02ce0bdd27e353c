//! Comparison of Kubernetes quantities by amount, because an API server normalizes `0.5` to `500m`
//! and `1024Mi` to `1Gi`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The number of digits that are parsed; longer quantities are compared as text.
const MAX_DIGITS: usize = 18;

/// Whether both are the same amount.
pub(super) fn same(one: &Quantity, other: &Quantity) -> bool {
    one == other
        || amount(&one.0).is_some_and(|amount_of_one| Some(amount_of_one) == amount(&other.0))
}

/// The amount in units of 10⁻⁹; `None` if the text is no quantity, or the amount is too large.
fn amount(text: &str) -> Option<i128> {
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - suffix.len()];
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MAX_DIGITS || fraction.contains('.') {
        return None;
    }
    let digits: i128 = digits.parse().ok()?;
    let unit: i128 = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" | "M" | "G" | "T" | "P" | "E" => {
            let power = 1 + "kMGTPE".find(suffix)?;
            1_000_000_000 * 1_000_i128.pow(u32::try_from(power).ok()?)
        }
        _ => {
            let power = 1 + "KMGTPE".find(suffix.strip_suffix('i').filter(|it| it.len() == 1)?)?;
            1_000_000_000 * 1_024_i128.pow(u32::try_from(power).ok()?)
        }
    };
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = digits.checked_mul(unit)?;
    (scaled % scale == 0).then_some(scaled / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same_text(one: &str, other: &str) -> bool {
        same(&Quantity(one.to_owned()), &Quantity(other.to_owned()))
    }

    #[test]
    fn equal_amounts_in_different_notations_are_the_same() {
        for (one, other) in [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("2000k", "2M"),
            ("1E", "1000P"),
            ("0", "0Gi"),
            ("not one", "not one"),
        ] {
            assert!(same_text(one, other), "{one} {other}");
        }
        for (one, other) in
            [("1Gi", "1G"), ("4", "5"), ("1", "1m"), ("", "0"), (".", "0"), ("1x", "1")]
        {
            assert!(!same_text(one, other), "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(one in ".{0,40}", other in "[0-9.]{0,25}[numkKMGTPEi]{0,3}") {
            let _ = same_text(&one, &other);
            prop_assert!(same_text(&other, &other));
        }

        #[test]
        fn a_thousand_milli_units_are_one_unit(count in 1_u32..100_000) {
            let thousand = format!("{count}000m");
            prop_assert!(same_text(&thousand, &count.to_string()));
            let other = (count + 1).to_string();
            prop_assert!(!same_text(&thousand, &other));
        }
    }
}
