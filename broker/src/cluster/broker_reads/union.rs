//! The union of label selectors of several tenants, as one label selector. Pure.
//!
//! The requirements of a label selector are joined with AND (API concepts, "Label selectors"), so that only
//! some unions are label selectors: those of selectors that have the same keys and together every
//! combination of their values. `{pool: a}` and `{pool: b}` are `pool in (a,b)`; `{pool: a}` and
//! `{zone: b}` are no selector at all.

use std::collections::{BTreeMap, BTreeSet};

use super::BrokerReadError;

/// Labels that an object must have, each with this value.
pub type RequiredLabels = BTreeMap<String, String>;

/// The requirements of a label selector that selects what at least one of these selects and the
/// client's requirements select, without the client's. If the union is no label selector, the
/// client has to require all labels of one of them.
///
/// # Errors
/// There is none; one has no labels, which would select everything, or labels that cannot be written
/// in a selector; or the union is no label selector.
pub(super) fn union(
    selectors: &BTreeSet<RequiredLabels>,
    client: &[String],
) -> Result<Vec<String>, BrokerReadError> {
    if selectors.is_empty() || selectors.iter().any(BTreeMap::is_empty) {
        return Err(BrokerReadError::NoSelector);
    }
    if let Some((key, value)) =
        selectors.iter().flatten().find(|(key, value)| !is_label(key, value))
    {
        return Err(BrokerReadError::NoLabel(format!("{key}={value}")));
    }
    let widest = without_narrower(selectors);
    if let Some(joined) = join(&widest) {
        return Ok(joined.iter().map(|(key, values)| requirement(key, values)).collect());
    }
    let chosen = widest.iter().find(|selector| is_required(selector, client));
    let chosen =
        chosen.ok_or_else(|| BrokerReadError::NoUnion(selectors.iter().map(text).collect()))?;
    let one = chosen.iter().map(|(key, value)| requirement(key, &BTreeSet::from([value.as_str()])));
    Ok(one.collect())
}

/// The selectors without those that select only what another one selects as well.
fn without_narrower(selectors: &BTreeSet<RequiredLabels>) -> Vec<&RequiredLabels> {
    let is_narrower = |one: &RequiredLabels, other: &RequiredLabels| {
        other.len() < one.len() && other.iter().all(|(key, value)| one.get(key) == Some(value))
    };
    let is_widest = |one: &&RequiredLabels| !selectors.iter().any(|other| is_narrower(one, other));
    selectors.iter().filter(is_widest).collect()
}

/// The values of each key, if the selectors are exactly all combinations of them. They are distinct,
/// so their number tells. None of them may be narrower than another one.
fn join<'a>(selectors: &[&'a RequiredLabels]) -> Option<BTreeMap<&'a str, BTreeSet<&'a str>>> {
    let keys = selectors.first()?.keys();
    let mut joined: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for selector in selectors {
        if !selector.keys().eq(keys.clone()) {
            return None;
        }
        for (key, value) in *selector {
            joined.entry(key).or_default().insert(value);
        }
    }
    let combinations = joined.values().try_fold(1_usize, |all, it| all.checked_mul(it.len()))?;
    (combinations == selectors.len()).then_some(joined)
}

fn requirement(key: &str, values: &BTreeSet<&str>) -> String {
    match values.iter().next() {
        Some(value) if values.len() == 1 => format!("{key}={value}"),
        _ => format!("{key} in ({})", values.iter().copied().collect::<Vec<_>>().join(",")),
    }
}

/// Whether the requirements of a client, as the parser writes them, contain all of these labels.
fn is_required(selector: &RequiredLabels, client: &[String]) -> bool {
    selector.iter().all(|(key, value)| {
        let spellings =
            [format!("{key}={value}"), format!("{key}=={value}"), format!("{key} in ({value})")];
        client.iter().any(|requirement| spellings.contains(requirement))
    })
}

/// Whether key and value are written in a selector as they are. Other characters, such as a comma,
/// could begin another requirement or value there.
fn is_label(key: &str, value: &str) -> bool {
    let is_word = |text: &str, extra: &[char]| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(&c))
    };
    !key.is_empty() && is_word(key, &['-', '_', '.', '/']) && is_word(value, &['-', '_', '.'])
}

/// A selector as kubectl takes it.
fn text(selector: &RequiredLabels) -> String {
    let labels: Vec<String> =
        selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Labels = &'static [(&'static str, &'static str)];

    fn labels(labels: Labels) -> RequiredLabels {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn of(selectors: &[Labels], client: &[&str]) -> Result<String, BrokerReadError> {
        let selectors = selectors.iter().map(|selector| labels(selector)).collect();
        let client: Vec<String> = client.iter().map(|text| (*text).to_owned()).collect();
        union(&selectors, &client).map(|requirements| requirements.join(","))
    }

    #[test]
    fn unions_that_are_selectors_are_joined() {
        let grid: [Labels; 4] = [
            &[("pool", "a"), ("zone", "1")],
            &[("pool", "b"), ("zone", "2")],
            &[("pool", "a"), ("zone", "2")],
            &[("pool", "b"), ("zone", "1")],
        ];
        for (selectors, expected) in [
            (&[&[("pool", "a")] as Labels][..], "pool=a"),
            (&[&[("pool", "a"), ("x.io/zone", "")]], "pool=a,x.io/zone="),
            (&[&[("pool", "b")], &[("pool", "a")], &[("pool", "b")]], "pool in (a,b)"),
            (&[&[("pool", "")], &[("pool", "a")]], "pool in (,a)"),
            (&[&[("pool", "a"), ("zone", "1")], &[("pool", "a")]], "pool=a"),
            (&grid, "pool in (a,b),zone in (1,2)"),
            (&grid[..1], "pool=a,zone=1"),
        ] {
            assert_eq!(of(selectors, &[]).as_deref(), Ok(expected), "{selectors:?}");
        }
    }

    #[test]
    fn other_unions_need_a_client_that_chooses_one() {
        let selectors: &[Labels] = &[&[("pool", "a"), ("zone", "1")], &[("disk", "ssd")]];
        let both = vec!["disk=ssd".to_owned(), "pool=a,zone=1".to_owned()];
        for client in [&[][..], &["pool=a"], &["disk"], &["disk in (hdd,ssd)"], &["disk!=ssd"]] {
            assert_eq!(
                of(selectors, client),
                Err(BrokerReadError::NoUnion(both.clone())),
                "{client:?}"
            );
        }
        for client in [&["disk=ssd"][..], &["x", "disk==ssd"], &["disk in (ssd)"]] {
            assert_eq!(of(selectors, client).as_deref(), Ok("disk=ssd"), "{client:?}");
        }
        assert_eq!(of(selectors, &["zone=1", "pool=a"]).as_deref(), Ok("pool=a,zone=1"));
        // Three of four combinations.
        let three: &[Labels] =
            &[&[("a", "1"), ("b", "1")], &[("a", "1"), ("b", "2")], &[("a", "2"), ("b", "1")]];
        assert!(matches!(of(three, &[]), Err(BrokerReadError::NoUnion(_))));
    }

    #[test]
    fn nothing_selects_everything() {
        for selectors in [&[][..], &[&[] as Labels], &[&[("pool", "a")], &[]]] {
            assert_eq!(of(selectors, &[]), Err(BrokerReadError::NoSelector), "{selectors:?}");
        }
    }

    #[test]
    fn texts_that_are_no_labels_are_refused() {
        for label in [
            ("pool", "a,b"),
            ("pool", "a)"),
            ("pool", "a b"),
            ("pool", "a/b"),
            ("pool", "a,!x"),
            ("pool,!x", "a"),
            ("pool in (a),x", "b"),
            ("", "a"),
            ("p=", "a"),
            ("!pool", "a"),
            ("pool", "ä"),
        ] {
            // A valid selector beside it is not shown either.
            let selectors = BTreeSet::from([
                labels(&[("pool", "c")]),
                [(label.0.to_owned(), label.1.to_owned())].into(),
            ]);
            let refused = union(&selectors, &[]);
            assert!(matches!(refused, Err(BrokerReadError::NoLabel(_))), "{label:?}: {refused:?}");
        }
    }

    /// Whether an object with these labels is selected, as the API server decides it.
    fn selects(requirements: &str, object: &RequiredLabels) -> bool {
        super::super::selector::parse(requirements).unwrap().iter().all(|requirement| {
            if let Some((key, values)) = requirement.split_once(" in ") {
                let values = values.trim_matches(['(', ')']);
                object.get(key).is_some_and(|value| values.split(',').any(|it| it == value))
            } else {
                let (key, value) = requirement.split_once('=').unwrap();
                object.get(key).is_some_and(|it| it == value)
            }
        })
    }

    fn any_labels(least: usize) -> impl Strategy<Value = RequiredLabels> {
        let key = proptest::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
        let value = proptest::sample::select(vec!["", "1", "2"]).prop_map(str::to_owned);
        proptest::collection::btree_map(key, value, least..=3)
    }

    proptest! {
        /// An object is selected by the union exactly if one of the selectors selects it; with a
        /// client that chooses one, exactly if that one selects it.
        #[test]
        fn a_union_selects_what_one_of_them_selects(
            selectors in proptest::collection::btree_set(any_labels(1), 1..6),
            client in any_labels(1),
            objects in proptest::collection::vec(any_labels(0), 1..20),
        ) {
            let is_selected = |object: &RequiredLabels| {
                selectors.iter().any(|it| it.iter().all(|(key, value)| object.get(key) == Some(value)))
            };
            let required: Vec<String> =
                client.iter().map(|(key, value)| format!("{key}={value}")).collect();
            if let Ok(joined) = union(&selectors, &[]) {
                for object in &objects {
                    prop_assert_eq!(selects(&joined.join(","), object), is_selected(object));
                }
            }
            if let Ok(narrowed) = union(&selectors, &required) {
                let sent = [narrowed, required.clone()].concat().join(",");
                for object in &objects {
                    let expected = is_selected(object) && selects(&required.join(","), object);
                    prop_assert_eq!(selects(&sent, object), expected);
                }
            }
        }

        /// A union that is refused really is no label selector: no combination of values per key
        /// selects the same objects.
        #[test]
        fn only_unions_that_are_no_selector_are_refused(
            selectors in proptest::collection::btree_set(any_labels(1), 1..6),
        ) {
            prop_assume!(union(&selectors, &[]).is_err());
            let values = ["", "1", "2"];
            let is_selected = |object: &RequiredLabels| {
                selectors.iter().any(|it| it.iter().all(|(key, value)| object.get(key) == Some(value)))
            };
            // Every object with the three keys absent, or with a value that no selector has.
            let domain = [None, Some(""), Some("1"), Some("2"), Some("3")];
            let mut objects = Vec::new();
            for a in domain {
                for b in domain {
                    for c in domain {
                        let all = [("a", a), ("b", b), ("c", c)];
                        let object: RequiredLabels = all
                            .into_iter()
                            .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                            .collect();
                        objects.push(object);
                    }
                }
            }
            // Each key: no requirement (0), or a subset of the values (bits of 1 to 7).
            for choice in 0..512_u32 {
                let allows = |object: &RequiredLabels, key: &str, bits: u32| {
                    bits == 0 || object.get(key).is_some_and(|value| {
                        values.iter().enumerate().any(|(at, it)| bits & (1 << at) != 0 && it == value)
                    })
                };
                let is_same = objects.iter().all(|object| {
                    let allowed = allows(object, "a", choice & 7)
                        && allows(object, "b", (choice >> 3) & 7)
                        && allows(object, "c", choice >> 6);
                    allowed == is_selected(object)
                });
                prop_assert!(!is_same, "{choice:o} is a selector of {selectors:?}");
            }
        }
    }
}
