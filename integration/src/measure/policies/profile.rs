//! CPU profiles of an API server: its profiler samples the stacks of all threads 100 times a second
//! of CPU time (`/debug/pprof/profile`, gzip of
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>).

use std::collections::HashSet;
use std::io::Read as _;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use prost::Message;

/// The fields of `Profile` that are needed here.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Innermost location first.
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    /// Number of samples of this stack, and their CPU time in nanoseconds.
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    /// More than one where the compiler inlined.
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    /// Index of the name in the string table.
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    /// Parses the profiler's response.
    ///
    /// # Errors
    /// It is no profile, or the server was idle.
    pub(super) fn read(answer: &[u8]) -> Result<Self> {
        let mut bytes = Vec::new();
        GzDecoder::new(answer).read_to_end(&mut bytes).context("unpack the profile")?;
        let profile = Self::decode(&*bytes).context("read the profile")?;
        ensure!(profile.seen(|_| true) > 0, "the profile has no samples");
        Ok(profile)
    }

    /// Returns the percentage of CPU time that was spent below a function whose name contains one of
    /// these. A sample below several of them counts once.
    #[expect(clippy::cast_precision_loss, reason = "counts of samples, a few thousand")]
    pub(super) fn percent_below(&self, names: &[&str]) -> f64 {
        let functions: HashSet<u64> = self
            .functions
            .iter()
            .filter(|function| {
                let at = usize::try_from(function.name).unwrap_or(usize::MAX);
                let text = self.strings.get(at);
                text.is_some_and(|text| names.iter().any(|name| text.contains(name)))
            })
            .map(|function| function.id)
            .collect();
        let locations: HashSet<u64> = self
            .locations
            .iter()
            .filter(|location| location.lines.iter().any(|line| functions.contains(&line.function)))
            .map(|location| location.id)
            .collect();
        let below = self.seen(|sample| sample.locations.iter().any(|at| locations.contains(at)));
        100.0 * below as f64 / self.seen(|_| true) as f64
    }

    fn seen(&self, picked: impl Fn(&Sample) -> bool) -> i64 {
        self.samples.iter().filter(|sample| picked(sample)).filter_map(|s| s.values.first()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_sample_counts_for_all_its_callers() {
        let location = |id, function| Location { id, lines: vec![Line { function }] };
        let sample = |locations: &[u64], count| Sample {
            locations: locations.to_vec(),
            values: vec![count, count * 10_000_000],
        };
        let profile = Profile {
            strings: ["", "main.serve", "policy.(*Plugin).Validate", "cel.Eval"]
                .map(Into::into)
                .into(),
            functions: (1..=3).map(|id| Function { id, name: id.cast_signed() }).collect(),
            locations: (1..=3).map(|id| location(id * 10, id)).collect(),
            samples: vec![sample(&[30, 20, 10], 1), sample(&[20, 10], 1), sample(&[10], 6)],
        };
        for (names, percent) in [
            (&["policy."][..], 25.0),
            (&["main.serve"], 100.0),
            (&["nothing"], 0.0),
            (&["cel.", "policy."], 25.0),
        ] {
            assert!((profile.percent_below(names) - percent).abs() < 1e-9, "{names:?}");
        }
        assert!(Profile::read(b"no profile").is_err());
    }
}
