//! Pod Security levels (Kubernetes, "Pod Security Standards").

/// The label with the Pod Security level that a namespace enforces (Kubernetes, "Pod Security
/// Admission").
pub const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The levels, the weakest first.
const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];

/// Whether a Pod Security level is stricter than another one. A level that is missing or unknown is
/// as weak as `privileged`.
pub fn is_stricter_pod_security(level: Option<&str>, than: Option<&str>) -> bool {
    let strictness = |level: Option<&str>| {
        level.and_then(|level| LEVELS.iter().position(|known| *known == level)).unwrap_or(0)
    };
    strictness(level) > strictness(than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_others_are_the_weakest() {
        for (level, than, expected) in [
            (Some("restricted"), Some("baseline"), true),
            (Some("baseline"), Some("privileged"), true),
            (Some("baseline"), Some(""), true),
            (Some("baseline"), Some("unknown"), true),
            (Some("baseline"), None, true),
            (Some("baseline"), Some("restricted"), false),
            (Some("restricted"), Some("restricted"), false),
            (Some("privileged"), Some(""), false),
            (Some("unknown"), Some("privileged"), false),
            (None, None, false),
        ] {
            assert_eq!(is_stricter_pod_security(level, than), expected, "{level:?} {than:?}");
        }
    }
}
