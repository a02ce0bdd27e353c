//! The nearest of several names, for a name that does not exist.

/// Maximum number of names that an error suggests.
pub(crate) const MAX_SUGGESTIONS: usize = 10;
/// Characters of a name for each typing error in it.
const CHARS_PER_ERROR: usize = 4;

/// The name that the person may have meant: one with few other characters, or one that has the typed
/// name after a dash, as the namespaces of tenants do.
pub(crate) fn nearest<'a>(
    typed: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = (typed.chars().count() / CHARS_PER_ERROR).max(1);
    let distance = |name: &str| {
        let has_prefix = name.strip_suffix(typed).is_some_and(|prefix| prefix.ends_with('-'));
        if has_prefix { 0 } else { strsim::osa_distance(typed, name) }
    };
    let near = names.into_iter().map(|name| (distance(name), name));
    near.filter(|(distance, _)| *distance <= allowed).min().map(|(_, name)| name)
}

/// At most this number of names, and how many there are beyond them.
pub(crate) fn listed(names: &[&str], limit: usize) -> String {
    let shown = names.iter().take(limit).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(limit) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_has_a_nearest_one() {
        let names = ["lunar-prod", "solar-prod", "solar-test"];
        for (typed, expected) in [
            ("solar-tets", Some("solar-test")),
            ("solarprod", Some("solar-prod")),
            ("test", Some("solar-test")),
            ("prod", Some("lunar-prod")),
            ("nope", None),
            ("kube-system", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), expected, "{typed}");
        }
    }

    #[test]
    fn a_list_is_bounded() {
        assert_eq!(listed(&["a", "b"], 2), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d"], 2), "a, b and 2 more");
    }
}
