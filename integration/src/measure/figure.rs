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

/// A value without a baseline to compare with: a duration or a count.
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

/// One figure compared with its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Unit of the values, for example `ms` or `1/s`.
    pub unit: &'static str,
    /// Spread of the values.
    pub value: Spread,
    /// Name of the baseline.
    pub baseline_name: String,
    /// Spread of the baseline, in the same unit.
    pub baseline: Spread,
    /// Ratio of value and baseline, computed pair by pair.
    pub ratio: Spread,
    /// Difference of value and baseline, computed pair by pair.
    pub added: Spread,
    /// The threshold, for example `at most 1.6`; empty if there is none.
    pub threshold: String,
    /// Whether the median meets the threshold; true if there is none.
    pub is_met: bool,
}

/// The threshold of a median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// There is no limit.
    None,
    /// The ratio is at most this.
    AtMost(f64),
    /// The ratio is at least this.
    AtLeast(f64),
    /// The difference from the baseline is at most this.
    AddedAtMost(f64),
    /// Each value itself, not the ratio, is below this.
    ValueBelow(f64),
    /// The median of the values themselves is at most this.
    ValueAtMost(f64),
}

impl Figure {
    /// Computes a figure from pairs (value, baseline); `None` without pairs.
    pub fn of_pairs(
        name: impl Into<String>,
        unit: &'static str,
        baseline_name: impl Into<String>,
        pairs: &[(f64, f64)],
        threshold: Threshold,
    ) -> Option<Self> {
        let ratio = Spread::of(pairs.iter().map(|(value, baseline)| value / baseline))?;
        let added = Spread::of(pairs.iter().map(|(value, baseline)| value - baseline))?;
        let value = Spread::of(pairs.iter().map(|pair| pair.0))?;
        let (threshold, is_met) = match threshold {
            Threshold::None => (String::new(), true),
            Threshold::AtMost(most) => (format!("at most {most}"), ratio.median <= most),
            Threshold::AtLeast(least) => (format!("at least {least}"), ratio.median >= least),
            Threshold::AddedAtMost(most) => {
                (format!("at most {most} {unit} more"), added.median <= most)
            }
            Threshold::ValueAtMost(most) => {
                (format!("at most {most} {unit}"), value.median <= most)
            }
            Threshold::ValueBelow(most) => (format!("under {most} {unit}"), value.max < most),
        };
        Some(Self {
            name: name.into(),
            unit,
            value,
            baseline_name: baseline_name.into(),
            baseline: Spread::of(pairs.iter().map(|pair| pair.1))?,
            ratio,
            added,
            threshold,
            is_met,
        })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        writeln!(f, "    {:<26} {:.3} {}", "measured", self.value, self.unit)?;
        writeln!(f, "    {:<26} {:.3} {}", self.baseline_name, self.baseline, self.unit)?;
        writeln!(f, "    {:<26} {:.3} {}", "more", self.added, self.unit)?;
        write!(f, "    {:<26} ", "ratio")?;
        if self.ratio.max.is_finite() {
            write!(f, "{:.3}", self.ratio)?;
        } else {
            write!(f, "none: the baseline is 0")?;
        }
        if !self.threshold.is_empty() {
            let verdict = if self.is_met { "met" } else { "NOT MET" };
            write!(f, "  {}: {verdict}", self.threshold)?;
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
        let figure =
            Figure::of_pairs("x", "ms", "baseline", &pairs, Threshold::AtMost(2.0)).unwrap();
        assert_eq!(figure.ratio, Spread { min: 2.0, median: 2.0, max: 3.0 });
        assert!(figure.is_met);
        let more =
            Figure::of_pairs("x", "ms", "baseline", &pairs, Threshold::AddedAtMost(3.9)).unwrap();
        assert_eq!(more.added, Spread { min: 1.0, median: 4.0, max: 20.0 });
        assert!(!more.is_met);
    }
}
