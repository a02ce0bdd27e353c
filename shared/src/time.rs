//! Timestamps on the wire.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A timestamp in RFC 3339. It is written in UTC with whole seconds (`2026-11-21T09:00:00Z`); any
/// offset and fraction is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct WireTime(pub Timestamp);

impl fmt::Display for WireTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seconds of a valid timestamp are always in range.
        let seconds = Timestamp::from_second(self.0.as_second()).unwrap_or(self.0);
        write!(f, "{seconds}")
    }
}

impl FromStr for WireTime {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl Serialize for WireTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<Timestamp> for WireTime {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

#[cfg(feature = "openapi")]
mod openapi {
    use std::borrow::Cow;

    use poem_openapi::{
        registry::{MetaSchema, MetaSchemaRef},
        types::{ParseError, ParseFromJSON, ParseFromParameter, ParseResult, ToJSON, Type},
    };
    use serde_json::Value;

    use super::WireTime;

    impl Type for WireTime {
        const IS_REQUIRED: bool = true;
        type RawValueType = Self;
        type RawElementValueType = Self;

        fn name() -> Cow<'static, str> {
            "string_date-time".into()
        }

        fn schema_ref() -> MetaSchemaRef {
            MetaSchemaRef::Inline(Box::new(MetaSchema::new_with_format("string", "date-time")))
        }

        fn as_raw_value(&self) -> Option<&Self::RawValueType> {
            Some(self)
        }

        fn raw_element_iter<'a>(
            &'a self,
        ) -> Box<dyn Iterator<Item = &'a Self::RawElementValueType> + 'a> {
            Box::new(self.as_raw_value().into_iter())
        }
    }

    impl ParseFromJSON for WireTime {
        fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
            match value.unwrap_or_default() {
                Value::String(text) => Self::parse_from_parameter(&text),
                other => Err(ParseError::expected_type(other)),
            }
        }
    }

    impl ParseFromParameter for WireTime {
        fn parse_from_parameter(value: &str) -> ParseResult<Self> {
            value.parse::<Self>().map_err(ParseError::custom)
        }
    }

    impl ToJSON for WireTime {
        fn to_json(&self) -> Option<Value> {
            Some(Value::String(self.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_in_utc_are_written() {
        let time: WireTime = "2026-11-21T10:00:00.75+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-11-21T09:00:00Z");
    }
}
