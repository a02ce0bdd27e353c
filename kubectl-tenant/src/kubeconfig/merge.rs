//! The merge of YAML values: the reference result, without layout. A pure function.

use serde_norway::{Mapping, Value};

use super::entries::{ENTRY_KINDS, Entries, owner, text};
use crate::{
    account_key::{AccountKey, ProfileName},
    broker_url::BrokerUrl,
    error::Error,
};

/// Adds our entries to a kubeconfig and preserves everything else: other entries, unknown fields
/// and their order.
///
/// # Errors
/// An entry of one of our names is not ours or belongs to another broker, or the document is not a
/// kubeconfig.
pub(crate) fn merge(
    original: &Value,
    entries: &Entries,
    use_context: bool,
) -> Result<Value, Error> {
    let mut document = match original {
        Value::Null => Mapping::new(),
        Value::Mapping(mapping) => mapping.clone(),
        _ => return Err(Error::other("it is not a kubeconfig: not a mapping")),
    };
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        if !document.contains_key(key) {
            document.insert(key.into(), value.into());
        }
    }
    for ((list, key), (name, content)) in ENTRY_KINDS.into_iter().zip(&entries.items) {
        let found = document.entry(list.into()).or_insert(Value::Null);
        if found.is_null() {
            *found = Value::Sequence(Vec::new());
        }
        let Some(sequence) = found.as_sequence_mut() else {
            return Err(Error::other(format!("it is not a kubeconfig: {list} is not a list")));
        };
        let ours = entry(name, key, content);
        match sequence.iter_mut().find(|entry| text(entry, "name") == Some(name)) {
            Some(existing) => {
                check_ours(existing.get(key), name, key, &entries.account)?;
                *existing = ours;
            }
            None => sequence.push(ours),
        }
    }
    if use_context {
        document.insert("current-context".into(), entries.context().into());
    }
    Ok(Value::Mapping(document))
}

/// Checks that no foreign entry has one of these names, in the order of [`ENTRY_KINDS`]. A document
/// that is not a kubeconfig passes; the merge itself detects that.
pub(crate) fn check_no_conflict(
    document: &Value,
    names: [&str; 3],
    account: &AccountKey,
) -> Result<(), Error> {
    for ((list, key), name) in ENTRY_KINDS.into_iter().zip(names) {
        let entries = document.get(list).and_then(Value::as_sequence).into_iter().flatten();
        if let Some(existing) = entries.into_iter().find(|it| text(it, "name") == Some(name)) {
            check_ours(existing.get(key), name, key, account)?;
        }
    }
    Ok(())
}

/// Builds an entry as it appears in its list.
pub(crate) fn entry(name: &str, key: &str, content: &Mapping) -> Value {
    let mut entry = Mapping::new();
    entry.insert("name".into(), name.into());
    entry.insert(key.into(), Value::Mapping(content.clone()));
    Value::Mapping(entry)
}

fn check_ours(
    content: Option<&Value>,
    name: &str,
    key: &str,
    account: &AccountKey,
) -> Result<(), Error> {
    let hint = format!(
        "choose another name for all three entries: {}",
        account.command("kubeconfig --use --context NAME")
    );
    match content.and_then(owner) {
        Some((broker, profile))
            if BrokerUrl::parse(broker).as_ref() == Ok(&account.broker)
                && profile == account.profile.as_ref().map(ProfileName::as_str) =>
        {
            Ok(())
        }
        Some((broker, profile)) => {
            let profile = profile.map(|name| format!(" (profile {name})")).unwrap_or_default();
            Err(Error::other(format!("its {key} {name:?} belongs to the broker {broker}{profile}"))
                .hint(hint))
        }
        None => Err(Error::other(format!("its {key} {name:?} was not created by kubectl-tenant"))
            .hint(hint)),
    }
}
