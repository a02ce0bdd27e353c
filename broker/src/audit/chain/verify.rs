//! Whether a trail is as it was sealed: one line after the other, remembering only the last.

use std::str::FromStr;

use serde::Serialize;

use super::{ANCHOR, CHECKPOINT, Fault, Hash, Line, Mark, Sealed};
use crate::signing::{PublicKeys, Unproven};

/// A head that somebody kept elsewhere: `SEQUENCE:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// Number of the row.
    pub sequence: i64,
    /// Its hash.
    pub hash: Hash,
}

impl FromStr for Expected {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a head is SEQUENCE:HASH, as `audit verify` prints it";
        let (sequence, hash) = text.trim().split_once(':').ok_or(FORM)?;
        let sequence = sequence.parse().map_err(|_| FORM)?;
        Ok(Self { sequence, hash: hash.parse().map_err(|_| FORM)? })
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.sequence, self.hash)
    }
}

/// Where a trail may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With its first row, or where the broker signed that it cut it.
    Whole,
    /// After this row, for whoever looks at a part on purpose.
    After(i64),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Whether everything is as it was sealed.
    pub intact: bool,
    /// The first thing that is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The row before the first one: 0, or where the trail was cut.
    pub after: i64,
    /// Rows that are proven to be as they were sealed.
    pub rows: u64,
    /// Checkpoints whose signature is right.
    pub checkpoints: u64,
    /// Rows that are not sealed yet; not known of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsealed: Option<i64>,
    /// The last proven row: keep it, as `SEQUENCE:HASH`, for `--expect`.
    pub head: Expected,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.fault {
            None => writeln!(f, "the audit trail is as it was sealed")?,
            Some(fault) => writeln!(f, "THE AUDIT TRAIL IS NOT AS IT WAS SEALED: {fault}")?,
        }
        let proven = if self.intact { "rows" } else { "rows before that, proven" };
        writeln!(f, "  {proven}: {}, after row {}", self.rows, self.after)?;
        writeln!(f, "  signed checkpoints: {}", self.checkpoints)?;
        if let Some(unsealed) = self.unsealed {
            writeln!(f, "  rows not sealed yet: {unsealed}")?;
        }
        writeln!(f, "  head, to be kept elsewhere for --expect: {}", self.head)
    }
}

/// Looks at one line after the other.
#[derive(Debug)]
pub(super) struct Verifier<'a> {
    keys: &'a PublicKeys,
    start: Start,
    expected: Option<Expected>,
    expected_seen: bool,
    begins: Option<i64>,
    last: Expected,
    signed: Expected,
    rows: u64,
    proven: u64,
    checkpoints: u64,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(keys: &'a PublicKeys, start: Start, expected: Option<Expected>) -> Self {
        let genesis = Expected { sequence: 0, hash: Hash::GENESIS };
        Self {
            keys,
            start,
            expected,
            expected_seen: false,
            begins: None,
            last: genesis,
            signed: genesis,
            rows: 0,
            proven: 0,
            checkpoints: 0,
        }
    }

    /// The last row that was looked at.
    pub(super) fn last(&self) -> Expected {
        self.last
    }

    /// Rows that were looked at.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn take(&mut self, line: &Line) -> Result<(), Fault> {
        match line {
            Line::Start { sequence, hash } => {
                self.starts(Expected { sequence: *sequence, hash: *hash })
            }
            Line::Anchor { sequence, signed } => self.anchored(*sequence, signed),
            Line::Row(sealed) => self.row(sealed),
            Line::Checkpoint { sequence, signed } => self.checkpoint(*sequence, signed),
        }
    }

    fn begin(&mut self, at: Expected) -> Result<(), Fault> {
        self.begins = Some(at.sequence);
        self.signed = at;
        self.reached(at)
    }

    fn starts(&mut self, at: Expected) -> Result<(), Fault> {
        let genesis = Expected { sequence: 0, hash: Hash::GENESIS };
        match self.begins {
            // Another export follows: it has to begin where we are.
            Some(_) if at == self.last => Ok(()),
            None if at == genesis => self.begin(at),
            None if self.start == Start::After(at.sequence) && at.sequence > 0 => self.begin(at),
            None if at.sequence == 0 => Err(Fault::OtherHistory { sequence: 0 }),
            None => Err(Fault::Missing { first: 1, last: at.sequence }),
            Some(_) if at.sequence > self.last.sequence => {
                Err(Fault::Missing { first: self.last.sequence + 1, last: at.sequence })
            }
            Some(_) => Err(Fault::OtherHistory { sequence: at.sequence }),
        }
    }

    fn anchored(&mut self, sequence: i64, signed: &str) -> Result<(), Fault> {
        let mark = self.open("anchor", ANCHOR, sequence, signed)?;
        if self.begins.is_none() {
            return self.begin(mark);
        }
        // In front of a further export: it says nothing new about rows that we have.
        if sequence < self.last.sequence || mark == self.last {
            Ok(())
        } else if sequence == self.last.sequence {
            Err(Fault::OtherHistory { sequence })
        } else {
            Err(Fault::Missing { first: self.last.sequence + 1, last: sequence })
        }
    }

    fn row(&mut self, sealed: &Sealed) -> Result<(), Fault> {
        if self.begins.is_none() {
            self.begin(self.last)?;
        }
        let (sequence, id) = (sealed.sequence, sealed.row.id);
        let wanted = self.last.sequence.saturating_add(1);
        if sequence > wanted {
            return Err(Fault::Missing { first: wanted, last: sequence - 1 });
        }
        if sequence < wanted {
            return Err(Fault::Repeated { sequence, id });
        }
        if self.last.hash.link(sequence, &sealed.row) != sealed.hash {
            return Err(Fault::Changed { sequence, id });
        }
        self.rows += 1;
        self.reached(Expected { sequence, hash: sealed.hash })
    }

    /// The head that was kept is compared when its row comes by.
    fn reached(&mut self, at: Expected) -> Result<(), Fault> {
        self.last = at;
        match self.expected {
            Some(expected) if expected.sequence == at.sequence => {
                self.expected_seen = true;
                let same = expected.hash == at.hash;
                same.then_some(()).ok_or(Fault::OtherHistory { sequence: at.sequence })
            }
            _ => Ok(()),
        }
    }

    fn checkpoint(&mut self, sequence: i64, signed: &str) -> Result<(), Fault> {
        let mark = self.open("checkpoint", CHECKPOINT, sequence, signed)?;
        if sequence > self.last.sequence {
            return Err(Fault::Missing { first: self.last.sequence + 1, last: sequence });
        }
        if sequence < self.last.sequence {
            let why = "it stands at another place".to_owned();
            return Err(Fault::Unproven { what: "checkpoint", sequence, why });
        }
        if mark != self.last {
            return Err(Fault::Rewritten { first: self.signed.sequence + 1, last: sequence });
        }
        (self.signed, self.proven) = (mark, self.rows);
        self.checkpoints += 1;
        Ok(())
    }

    fn open(
        &self,
        what: &'static str,
        typ: &str,
        sequence: i64,
        signed: &str,
    ) -> Result<Expected, Fault> {
        match self.keys.open::<Mark>(typ, signed) {
            Ok(mark) if mark.sequence == sequence => Ok(Expected { sequence, hash: mark.hash }),
            Ok(mark) => {
                let why = format!("what is signed is about row {}", mark.sequence);
                Err(Fault::Unproven { what, sequence, why })
            }
            Err(Unproven::UnknownKey(kid)) => Err(Fault::UnknownKey { what, sequence, kid }),
            Err(why) => Err(Fault::Unproven { what, sequence, why: why.to_string() }),
        }
    }

    /// Whether the end is as it should be.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        if self.signed.sequence < self.last.sequence {
            let (first, last) = (self.signed.sequence + 1, self.last.sequence);
            return Err(Fault::Unsigned { first, last });
        }
        let Some(expected) = self.expected.filter(|_| !self.expected_seen) else { return Ok(()) };
        let (sequence, begins) = (expected.sequence, self.begins.unwrap_or_default());
        if sequence > self.last.sequence {
            return Err(Fault::Missing { first: self.last.sequence + 1, last: sequence });
        }
        if sequence < begins {
            return Err(Fault::TooOld { sequence, begins });
        }
        // An empty trail: only what stands before its first row can have been kept.
        let same = expected == self.last;
        same.then_some(()).ok_or(Fault::OtherHistory { sequence })
    }

    /// What was found, with the first fault if there is one.
    pub(super) fn outcome(self, fault: Option<Fault>, unsealed: Option<i64>) -> Outcome {
        Outcome {
            intact: fault.is_none(),
            fault,
            after: self.begins.unwrap_or_default(),
            rows: self.proven,
            checkpoints: self.checkpoints,
            unsealed,
            head: self.signed,
        }
    }
}
