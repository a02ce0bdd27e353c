//! Kubernetes quantities (apimachinery `resource.Quantity`): their syntax, and their amounts as
//! numbers. Quantities are compared by amount, because an API server normalizes `0.5` to `500m` and
//! `1024Mi` to `1Gi`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// One unit in units of 10⁻⁹, the smallest amount that Kubernetes knows.
pub const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// The largest amount, 2⁶³ - 1 units. Kubernetes takes it for larger ones.
const MAX_NANOS: i128 = 9_223_372_036_854_775_807 * NANOS_PER_UNIT;
/// The number of digits that are parsed; longer quantities are compared as text.
const MAX_DIGITS: usize = 36;

/// Whether both are the same amount.
pub(in crate::cluster) fn same(one: &Quantity, other: &Quantity) -> bool {
    one == other
        || nanos_of(one).is_some_and(|amount_of_one| Some(amount_of_one) == nanos_of(other))
}

/// Whether a text is a quantity that is not negative, such as `8`, `500m`, `1.5Gi` or `1e3`.
pub fn is_quantity(text: &str) -> bool {
    let (number, suffix) = split(text);
    let is_number = number.contains(|c: char| c.is_ascii_digit())
        && number.bytes().filter(|byte| *byte == b'.').count() <= 1;
    is_number && multiplier(suffix).is_some()
}

/// The amount in units of 10⁻⁹, rounded up; `None` if the text is no quantity, or is longer than 36
/// digits. An amount that Kubernetes cannot express is the largest one.
pub fn nanos_of(quantity: &Quantity) -> Option<i128> {
    if !is_quantity(&quantity.0) {
        return None;
    }
    let (number, suffix) = split(&quantity.0);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.len() > MAX_DIGITS {
        return None;
    }
    let digits: i128 = digits.parse().ok()?;
    let multiplier = multiplier(suffix)?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let power = multiplier.power_of_ten.saturating_sub(decimals);
    let scaled = digits.checked_mul(multiplier.factor);
    let nanos = match (scaled, power) {
        (None, _) => MAX_NANOS,
        (Some(0), _) => 0,
        (Some(scaled), 0..) => {
            power_of_ten(power).and_then(|power| scaled.checked_mul(power)).unwrap_or(MAX_NANOS)
        }
        // Something is left of the smallest amount.
        (Some(scaled), _) => power_of_ten(power.saturating_neg()).map_or(1, |divisor| {
            let up = i128::from(scaled % divisor != 0);
            scaled / divisor + up
        }),
    };
    Some(nanos.min(MAX_NANOS))
}

/// The quantity of an amount in units of 10⁻⁹, with the largest decimal unit that needs no fraction
/// and is at most one.
pub fn quantity_of(nanos: i128) -> Quantity {
    let units = [(NANOS_PER_UNIT, ""), (1_000_000, "m"), (1_000, "u")];
    let unit = units.into_iter().find(|(unit, _)| nanos % unit == 0);
    let (unit, suffix) = unit.unwrap_or((1, "n"));
    Quantity(format!("{}{suffix}", nanos / unit))
}

/// The number and the suffix of a quantity.
fn split(text: &str) -> (&str, &str) {
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    (&text[..text.len() - suffix.len()], suffix)
}

/// Factor of a suffix, to get units of 10⁻⁹: `factor` times a power of ten.
struct Multiplier {
    factor: i128,
    power_of_ten: i32,
}

fn multiplier(suffix: &str) -> Option<Multiplier> {
    let decimal = |power_of_ten| Some(Multiplier { factor: 1, power_of_ten });
    match suffix {
        "n" => decimal(0),
        "u" => decimal(3),
        "m" => decimal(6),
        "" => decimal(9),
        "k" => decimal(12),
        "M" => decimal(15),
        "G" => decimal(18),
        "T" => decimal(21),
        "P" => decimal(24),
        "E" => decimal(27),
        _ => match suffix.strip_suffix('i') {
            Some(letter) if letter.len() == 1 => {
                let power = u32::try_from(1 + "KMGTPE".find(letter)?).ok()?;
                Some(Multiplier { factor: 1024_i128.pow(power), power_of_ten: 9 })
            }
            _ => decimal(exponent(suffix)?.saturating_add(9)),
        },
    }
}

/// The number of a decimal exponent, such as `e3` or `E-2`; a very large one is cut off.
fn exponent(suffix: &str) -> Option<i32> {
    let text = suffix.strip_prefix(['e', 'E'])?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().unwrap_or(i32::MAX / 2);
    Some(if text.starts_with('-') { -number } else { number })
}

fn power_of_ten(power: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(power).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same_text(one: &str, other: &str) -> bool {
        same(&Quantity(one.to_owned()), &Quantity(other.to_owned()))
    }

    fn nanos(text: &str) -> Option<i128> {
        nanos_of(&Quantity(text.to_owned()))
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
            ("1e3", "1k"),
            ("25E-1", "2500m"),
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

    #[test]
    fn amounts_are_rounded_up_and_cut_off_as_kubernetes_does() {
        assert_eq!(nanos("0"), Some(0));
        assert_eq!(nanos("1n"), Some(1));
        assert_eq!(nanos("0.1n"), Some(1));
        assert_eq!(nanos("1e-999999999999"), Some(1));
        assert_eq!(nanos("0e-999999999999"), Some(0));
        assert_eq!(nanos("1.5"), Some(1_500_000_000));
        assert_eq!(nanos("1Ki"), Some(1024 * NANOS_PER_UNIT));
        for large in ["1e999999999999", "9223372036854775808", "100Ei", "999999999999999999E"] {
            assert_eq!(nanos(large), Some(MAX_NANOS), "{large}");
        }
        assert_eq!(nanos("lots"), None);
        assert_eq!(nanos(&"1".repeat(37)), None);
    }

    #[test]
    fn quantities_have_the_largest_unit_without_a_fraction() {
        for text in ["0", "8", "1500m", "7u", "1001n", "17179869184"] {
            assert_eq!(quantity_of(nanos(text).unwrap()), Quantity(text.to_owned()));
        }
    }

    #[test]
    fn the_syntax_is_that_of_kubernetes_without_signs() {
        for good in ["8", "500m", "1.5Gi", "0.5", ".5", "5.", "1k", "1e3", "1E-2", "2E", "3Ei"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "lots", "-1", "+1", "8 Gi", "8gi", "1.2.3", ".", "1e", "1e+", "1Mib", "e3"]
        {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(
            one in ".{0,40}",
            other in "[0-9.]{0,25}([numkKMGTPEi]{0,3}|[eE]-?[0-9]{0,12})",
        ) {
            let _ = (same_text(&one, &other), nanos(&one), nanos(&other));
            prop_assert!(same_text(&other, &other));
        }

        #[test]
        fn a_thousand_milli_units_are_one_unit(count in 1_u32..100_000) {
            let thousand = format!("{count}000m");
            prop_assert!(same_text(&thousand, &count.to_string()));
            let other = (count + 1).to_string();
            prop_assert!(!same_text(&thousand, &other));
        }

        #[test]
        fn quantities_of_amounts_round_trip(amount in 0..=MAX_NANOS) {
            prop_assert_eq!(nanos_of(&quantity_of(amount)), Some(amount));
        }
    }
}
