//! Figures as they are printed.

use std::fmt;

use serde::Serialize;

/// Lowest, middle and highest of some samples, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The lowest.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    /// The spread of samples; `None` without any.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        Some(Self {
            min: *samples.first()?,
            median: *samples.get(samples.len() / 2)?,
            max: *samples.last()?,
        })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { min, median, max } = self;
        write!(f, "{median:.digits$} ({min:.digits$} to {max:.digits$})")
    }
}

/// Something that has no floor: how long it took, or how often it happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// What was measured.
    pub name: String,
    /// Unit of the values; empty for a count.
    pub unit: &'static str,
    /// The figure.
    pub value: Spread,
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    {:<44} {:.1} {}", self.name, self.value, self.unit)
    }
}

/// One figure beside its floor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Unit of the values, for example `ms` or `1/s`.
    pub unit: &'static str,
    /// The figure.
    pub value: Spread,
    /// What the floor is.
    pub floor_name: String,
    /// The floor, in the same unit.
    pub floor: Spread,
    /// Value by floor, pair by pair.
    pub ratio: Spread,
    /// Value less floor, pair by pair.
    pub added: Spread,
    /// What the ratio is to keep to, for example `at most 1.6`; empty if nothing was promised.
    pub promise: String,
    /// Whether the middle one keeps it; true where nothing was promised.
    pub kept: bool,
}

/// What a middle value is to keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// Nothing was promised.
    None,
    /// At most so much.
    AtMost(f64),
    /// At least so much.
    AtLeast(f64),
    /// At most so much more than the floor.
    AddedAtMost(f64),
    /// The value itself, not the ratio, below so much.
    ValueBelow(f64),
}

impl Figure {
    /// A figure from pairs (value, floor); `None` without any.
    pub fn of_pairs(
        name: impl Into<String>,
        unit: &'static str,
        floor_name: impl Into<String>,
        pairs: &[(f64, f64)],
        promise: Promise,
    ) -> Option<Self> {
        let ratio = Spread::of(pairs.iter().map(|(value, floor)| value / floor))?;
        let added = Spread::of(pairs.iter().map(|(value, floor)| value - floor))?;
        let value = Spread::of(pairs.iter().map(|pair| pair.0))?;
        let (promise, kept) = match promise {
            Promise::None => (String::new(), true),
            Promise::AtMost(most) => (format!("at most {most}"), ratio.median <= most),
            Promise::AtLeast(least) => (format!("at least {least}"), ratio.median >= least),
            Promise::AddedAtMost(most) => {
                (format!("at most {most} {unit} more"), added.median <= most)
            }
            Promise::ValueBelow(most) => (format!("under {most} {unit}"), value.max < most),
        };
        Some(Self {
            name: name.into(),
            unit,
            value,
            floor_name: floor_name.into(),
            floor: Spread::of(pairs.iter().map(|pair| pair.1))?,
            ratio,
            added,
            promise,
            kept,
        })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        writeln!(f, "    {:<26} {:.3} {}", "measured", self.value, self.unit)?;
        writeln!(f, "    {:<26} {:.3} {}", self.floor_name, self.floor, self.unit)?;
        writeln!(f, "    {:<26} {:.3} {}", "more", self.added, self.unit)?;
        write!(f, "    {:<26} ", "ratio")?;
        if self.ratio.max.is_finite() {
            write!(f, "{:.3}", self.ratio)?;
        } else {
            write!(f, "none: the floor is nothing")?;
        }
        if !self.promise.is_empty() {
            let verdict = if self.kept { "kept" } else { "NOT KEPT" };
            write!(f, "  {}: {verdict}", self.promise)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_pair_by_pair() {
        let pairs = [(2.0, 1.0), (30.0, 10.0), (8.0, 4.0)];
        let figure = Figure::of_pairs("x", "ms", "floor", &pairs, Promise::AtMost(2.0)).unwrap();
        assert_eq!(figure.ratio, Spread { min: 2.0, median: 2.0, max: 3.0 });
        assert!(figure.kept);
        let more = Figure::of_pairs("x", "ms", "floor", &pairs, Promise::AddedAtMost(3.9)).unwrap();
        assert_eq!(more.added, Spread { min: 1.0, median: 4.0, max: 20.0 });
        assert!(!more.kept);
    }
}
