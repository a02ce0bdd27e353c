//! Names of kubeconfig entries. Names of profiles are a subset of them.

/// Validates the name of an entry: a text that every YAML parser reads as a string.
pub(crate) fn check(name: &str) -> Result<String, String> {
    const YAML_KEYWORDS: [&str; 10] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let plain = name.chars().all(|character| {
        character.is_ascii_alphanumeric() || ['-', '_', '.', '/', '@'].contains(&character)
    });
    if !starts_well
        || !plain
        || name.len() > 253
        || YAML_KEYWORDS.contains(&name.to_lowercase().as_str())
    {
        return Err(
            "a name begins with a letter and holds letters, digits and - _ . / @".to_owned()
        );
    }
    Ok(name.to_owned())
}
