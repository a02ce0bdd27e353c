//! Deserialization that takes the default for a value of another type than expected.
//!
//! Models are objects of tenants, and their schema belongs to another project. An object with an
//! unexpected value must not fail the list that it is in.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A type with a default for each JSON value that is not its own.
pub(super) trait Lenient: Default {
    /// Takes a string.
    fn text(_text: &str) -> Self {
        Self::default()
    }

    /// Takes an integer that is not negative.
    fn number(_number: u64) -> Self {
        Self::default()
    }

    /// Takes an array.
    fn array<'de, A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    /// Takes an object.
    fn object<'de, A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Reads a value, for `#[serde(deserialize_with)]`.
pub(super) fn read<'de, T: Lenient, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Reader::default().deserialize(deserializer)
}

/// Maximum length of a name, in bytes: that of a DNS subdomain (RFC 1123), as names of objects are.
pub(super) const MAX_NAME_BYTES: usize = 253;
/// Maximum length of a URL, and of the name of a model at its endpoint, in bytes. No schema limits
/// them, so an object of the largest size could be one such text.
pub(super) const MAX_URL_BYTES: usize = 2048;

/// Reads a text of at most this number of bytes, for `#[serde(deserialize_with)]`. A longer one is
/// empty, as if it were not there.
pub(super) fn read_at_most<'de, const MAX_BYTES: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    Ok(read::<Bounded<MAX_BYTES>, D>(deserializer)?.0)
}

/// Implements [`Lenient`] for structs that derive `Deserialize`.
macro_rules! lenient_objects {
    ($($name:ty),+ $(,)?) => {$(
        impl $crate::model_services::lenient::Lenient for $name {
            fn object<'de, A: serde::de::MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
                serde::Deserialize::deserialize(
                    serde::de::value::MapAccessDeserializer::new(object),
                )
            }
        }
    )+};
}
pub(super) use lenient_objects;

/// Reads a value of an array or object.
pub(super) struct Reader<T>(PhantomData<T>);

impl<T> Default for Reader<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Reads an array of which nothing is kept, item by item.
pub(super) fn for_each<'de, T: Lenient, A: SeqAccess<'de>>(
    mut array: A,
    mut take: impl FnMut(T),
) -> Result<(), A::Error> {
    while let Some(item) = array.next_element_seed(Reader::default())? {
        take(item);
    }
    Ok(())
}

impl<'de, T: Lenient> DeserializeSeed<'de> for Reader<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Lenient> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(u64::try_from(number).map_or_else(|_| T::default(), T::number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::number(number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<T, A::Error> {
        T::array(array)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
        T::object(object)
    }
}

impl Lenient for String {
    fn text(text: &str) -> Self {
        text.to_owned()
    }
}

/// A text of at most this number of bytes.
#[derive(Default)]
struct Bounded<const MAX_BYTES: usize>(String);

impl<const MAX_BYTES: usize> Lenient for Bounded<MAX_BYTES> {
    fn text(text: &str) -> Self {
        if text.len() <= MAX_BYTES { Self(text.to_owned()) } else { Self::default() }
    }
}

/// A port. Any other number is the default, 0.
impl Lenient for u16 {
    fn number(number: u64) -> Self {
        Self::try_from(number).unwrap_or_default()
    }
}

impl<T: Lenient> Lenient for Vec<T> {
    fn array<'de, A: SeqAccess<'de>>(array: A) -> Result<Self, A::Error> {
        let mut items = Self::new();
        for_each(array, |item| items.push(item))?;
        Ok(items)
    }
}

/// The largest number of objects of a list.
pub(super) const MAX_OBJECTS: usize = 10_000;

/// The objects of a page. Of too many it keeps one more than [`MAX_OBJECTS`], so that the list fails.
#[derive(Debug, Default)]
struct Items<T>(Vec<T>);

impl<T: Lenient> Lenient for Items<T> {
    fn array<'de, A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while items.len() <= MAX_OBJECTS {
            let Some(item) = array.next_element_seed(Reader::default())? else { break };
            items.push(item);
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self(items))
    }
}

fn read_items<'de, T: Lenient, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Reader::<Items<T>>::default().deserialize(deserializer)?.0)
}

/// A page of a list of the API server. `items` has to be there, because an answer without it is
/// not a list; it is null in an empty `PartialObjectMetadataList`.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Lenient")]
pub(super) struct Page<T> {
    /// The objects, at most one more than [`MAX_OBJECTS`].
    #[serde(deserialize_with = "read_items")]
    pub(super) items: Vec<T>,
    /// Metadata of the list.
    #[serde(default, deserialize_with = "read")]
    pub(super) metadata: ListMeta,
}

/// Metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListMeta {
    /// Parameter `continue` of the next page; empty on the last one.
    #[serde(rename = "continue", deserialize_with = "read")]
    pub(super) continue_token: String,
}

lenient_objects!(ListMeta);

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, from_value, json};

    use super::*;

    /// Any JSON value, three levels deep, with `keys` among the keys of its objects.
    pub(crate) fn any_json(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            proptest::sample::select(TEXTS).prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            let key = prop_oneof![
                4 => proptest::sample::select(keys).prop_map(str::to_owned),
                1 => any::<String>(),
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..6)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    /// Values that code distinguishes, so that random objects reach its branches.
    const TEXTS: &[&str] = &[
        "Ready",
        "True",
        "true",
        "None",
        "",
        "${env.VLLM_API_TOKEN_1}",
        "http://a.b",
        "https://m.ns.svc.cluster.local/v1/",
        "http://[::1]:80//",
        "gateway-internal",
    ];

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct View {
        #[serde(deserialize_with = "read")]
        text: String,
        #[serde(deserialize_with = "read")]
        port: u16,
        #[serde(deserialize_with = "read")]
        inner: Vec<View>,
    }

    lenient_objects!(View);

    #[test]
    fn values_of_the_expected_type_are_taken() {
        let read: View = from_value(json!({
            "text": "a", "port": 80, "inner": [{"text": "b"}], "later": {"x": []}
        }))
        .unwrap();
        let inner = vec![View { text: "b".to_owned(), ..View::default() }];
        assert_eq!(read, View { text: "a".to_owned(), port: 80, inner });
    }

    #[test]
    fn other_values_are_the_default_where_they_stand() {
        let odd = [json!(null), json!(true), json!(-1), json!(1.5), json!(65_536)];
        for value in odd {
            let object = json!({"text": value, "port": value, "inner": value});
            let read: View = from_value(object).unwrap();
            assert_eq!(read, View::default(), "{value}");
        }
        let read: View =
            from_value(json!({"text": {"a": [1]}, "inner": [null, {"port": 1}]})).unwrap();
        assert_eq!(read.inner, [View::default(), View { port: 1, ..View::default() }]);
    }

    #[test]
    fn a_text_that_is_too_long_is_empty() {
        #[derive(Deserialize)]
        struct Name(#[serde(deserialize_with = "read_at_most::<4, _>")] String);
        for (text, expected) in
            [(json!("é12"), "é12"), (json!("é123"), ""), (json!(1), ""), (json!(null), "")]
        {
            assert_eq!(from_value::<Name>(text.clone()).unwrap().0, expected, "{text}");
        }
    }

    #[test]
    fn a_page_has_items() {
        let page: Page<View> = from_value(json!({"items": null})).unwrap();
        assert!(page.items.is_empty() && page.metadata.continue_token.is_empty());
        let page: Page<View> =
            from_value(json!({"items": [{}, 1], "metadata": {"continue": "t"}})).unwrap();
        assert_eq!((page.items.len(), page.metadata.continue_token.as_str()), (2, "t"));
        assert!(from_value::<Page<View>>(json!({"kind": "Status"})).is_err());
    }

    #[test]
    fn a_page_keeps_a_bounded_number_of_objects() {
        let items = "1,".repeat(MAX_OBJECTS * 3) + "1";
        let text = format!(r#"{{"items": [{items}], "metadata": {{"continue": "t"}}}}"#);
        let page: Page<View> = serde_json::from_str(&text).unwrap();
        assert_eq!(page.items.len(), MAX_OBJECTS + 1);
        assert_eq!(page.metadata.continue_token, "t");
    }

    proptest! {
        #[test]
        fn every_object_is_read(value in any_json(&["text", "port", "inner"])) {
            let text = json!({ "items": [value] }).to_string();
            prop_assert_eq!(serde_json::from_str::<Page<View>>(&text).unwrap().items.len(), 1);
        }
    }
}
