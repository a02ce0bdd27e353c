//! Figures of a measurement and their text form.

use std::fmt;

use serde::Serialize;

/// Minimum, median and maximum of some samples, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The minimum.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of samples; `None` without samples.
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

/// A value without a floor to compare with: a duration or a count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Name of the figure.
    pub name: String,
    /// Unit of the values; empty for a count.
    pub unit: &'static str,
    /// Spread of the values.
    pub value: Spread,
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    {:<44} {:.1} {}", self.name, self.value, self.unit)
    }
}

/// One figure compared with its floor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Unit of the values, for example `ms` or `1/s`.
    pub unit: &'static str,
    /// Spread of the values.
    pub value: Spread,
    /// Name of the floor.
    pub floor_name: String,
    /// Spread of the floor, in the same unit.
    pub floor: Spread,
    /// Ratio of value and floor, computed pair by pair.
    pub ratio: Spread,
    /// Difference of value and floor, computed pair by pair.
    pub added: Spread,
    /// The promised limit, for example `at most 1.6`; empty if there is none.
    pub promise: String,
    /// Whether the median keeps the promise; true if there is none.
    pub kept: bool,
}

/// The promised limit of a median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// There is no limit.
    None,
    /// The ratio is at most this.
    AtMost(f64),
    /// The ratio is at least this.
    AtLeast(f64),
    /// The difference from the floor is at most this.
    AddedAtMost(f64),
    /// Each value itself, not the ratio, is below this.
    ValueBelow(f64),
    /// The median of the values themselves is at most this.
    ValueAtMost(f64),
}

impl Figure {
    /// Computes a figure from pairs (value, floor); `None` without pairs.
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
            Promise::ValueAtMost(most) => (format!("at most {most} {unit}"), value.median <= most),
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
            write!(f, "none: the floor is 0")?;
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
