//! Verification of a trail: line by line, with constant memory.

use std::str::FromStr;

use serde::Serialize;

use super::{ANCHOR, CHECKPOINT, CheckpointClaims, Hash, Line, SealedRow, VerificationFault};
use crate::base::signing::{PublicKeys, SignatureError};

/// A head of the chain, as an auditor keeps it elsewhere: `SEQUENCE:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Head {
    /// Sequence number of the row.
    pub sequence: i64,
    /// Hash of the row.
    pub hash: Hash,
}

impl FromStr for Head {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a head is SEQUENCE:HASH, as `audit verify` prints it";
        let (sequence, hash) = text.trim().split_once(':').ok_or(FORM)?;
        let sequence = sequence.parse().map_err(|_| FORM)?;
        Ok(Self { sequence, hash: hash.parse().map_err(|_| FORM)? })
    }
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.sequence, self.hash)
    }
}

/// Start of a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first row, or at a signed anchor after which the broker pruned the rows before.
    Whole,
    /// After this row, to verify a part on purpose.
    After(i64),
}

/// Result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerificationReport {
    /// Whether the whole trail is as it was sealed.
    pub intact: bool,
    /// The first fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<VerificationFault>,
    /// Number of the row before the first one: 0, or the last pruned row.
    pub after: i64,
    /// Rows that are proven to be as they were sealed.
    pub rows: u64,
    /// Checkpoints with a valid signature.
    pub checkpoints: u64,
    /// Rows that are not sealed yet; `None` for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsealed: Option<i64>,
    /// The last proven row: keep it, as `SEQUENCE:HASH`, for `--expect`.
    pub head: Head,
}

impl std::fmt::Display for VerificationReport {
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

/// State of a verification: checks one line after the other.
#[derive(Debug)]
pub(super) struct Verifier<'a> {
    keys: &'a PublicKeys,
    start: Start,
    expected: Option<Head>,
    expected_seen: bool,
    begins: Option<i64>,
    last: Head,
    signed: Head,
    rows: u64,
    proven: u64,
    checkpoints: u64,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(keys: &'a PublicKeys, start: Start, expected: Option<Head>) -> Self {
        let genesis = Head { sequence: 0, hash: Hash::GENESIS };
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

    /// The last row that was checked.
    pub(super) fn last(&self) -> Head {
        self.last
    }

    /// Number of rows that were checked.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn check(&mut self, line: &Line) -> Result<(), VerificationFault> {
        match line {
            Line::Start { sequence, hash } => {
                self.check_start(Head { sequence: *sequence, hash: *hash })
            }
            Line::Anchor { sequence, signed } => self.check_anchor(*sequence, signed),
            Line::Row(sealed) => self.check_row(sealed),
            Line::Checkpoint { sequence, signed } => self.check_checkpoint(*sequence, signed),
        }
    }

    fn begin_at(&mut self, at: Head) -> Result<(), VerificationFault> {
        self.begins = Some(at.sequence);
        self.signed = at;
        self.advance_to(at)
    }

    fn check_start(&mut self, at: Head) -> Result<(), VerificationFault> {
        let genesis = Head { sequence: 0, hash: Hash::GENESIS };
        match self.begins {
            // Another export follows: it has to start at the last row of the previous one.
            Some(_) if at == self.last => Ok(()),
            None if at == genesis => self.begin_at(at),
            None if self.start == Start::After(at.sequence) && at.sequence > 0 => self.begin_at(at),
            None if at.sequence == 0 => Err(VerificationFault::OtherHistory { sequence: 0 }),
            None => Err(VerificationFault::Missing { first: 1, last: at.sequence }),
            Some(_) if at.sequence > self.last.sequence => {
                Err(VerificationFault::Missing { first: self.last.sequence + 1, last: at.sequence })
            }
            Some(_) => Err(VerificationFault::OtherHistory { sequence: at.sequence }),
        }
    }

    fn check_anchor(&mut self, sequence: i64, signed: &str) -> Result<(), VerificationFault> {
        let claims = self.verify_claims("anchor", ANCHOR, sequence, signed)?;
        if self.begins.is_none() {
            return self.begin_at(claims);
        }
        // An anchor at the start of a further export says nothing new about rows that are already
        // verified.
        if sequence < self.last.sequence || claims == self.last {
            Ok(())
        } else if sequence == self.last.sequence {
            Err(VerificationFault::OtherHistory { sequence })
        } else {
            Err(VerificationFault::Missing { first: self.last.sequence + 1, last: sequence })
        }
    }

    fn check_row(&mut self, sealed: &SealedRow) -> Result<(), VerificationFault> {
        if self.begins.is_none() {
            self.begin_at(self.last)?;
        }
        let (sequence, id) = (sealed.sequence, sealed.row.id);
        let wanted = self.last.sequence.saturating_add(1);
        if sequence > wanted {
            return Err(VerificationFault::Missing { first: wanted, last: sequence - 1 });
        }
        if sequence < wanted {
            return Err(VerificationFault::Repeated { sequence, id });
        }
        if self.last.hash.link(sequence, &sealed.row) != sealed.hash {
            return Err(VerificationFault::Changed { sequence, id });
        }
        self.rows += 1;
        self.advance_to(Head { sequence, hash: sealed.hash })
    }

    /// Moves to this row, and compares the expected head if it names this row.
    fn advance_to(&mut self, at: Head) -> Result<(), VerificationFault> {
        self.last = at;
        match self.expected {
            Some(expected) if expected.sequence == at.sequence => {
                self.expected_seen = true;
                let same = expected.hash == at.hash;
                same.then_some(()).ok_or(VerificationFault::OtherHistory { sequence: at.sequence })
            }
            _ => Ok(()),
        }
    }

    fn check_checkpoint(&mut self, sequence: i64, signed: &str) -> Result<(), VerificationFault> {
        let claims = self.verify_claims("checkpoint", CHECKPOINT, sequence, signed)?;
        if sequence > self.last.sequence {
            return Err(VerificationFault::Missing {
                first: self.last.sequence + 1,
                last: sequence,
            });
        }
        if sequence < self.last.sequence {
            let why = "it does not directly follow its row".to_owned();
            return Err(VerificationFault::Unproven { what: "checkpoint", sequence, why });
        }
        if claims != self.last {
            return Err(VerificationFault::Rewritten {
                first: self.signed.sequence + 1,
                last: sequence,
            });
        }
        (self.signed, self.proven) = (claims, self.rows);
        self.checkpoints += 1;
        Ok(())
    }

    fn verify_claims(
        &self,
        what: &'static str,
        typ: &str,
        sequence: i64,
        signed: &str,
    ) -> Result<Head, VerificationFault> {
        match self.keys.verify::<CheckpointClaims>(typ, signed) {
            Ok(claims) if claims.sequence == sequence => Ok(Head { sequence, hash: claims.hash }),
            Ok(claims) => {
                let why = format!("the signature is for row {}", claims.sequence);
                Err(VerificationFault::Unproven { what, sequence, why })
            }
            Err(SignatureError::UnknownKey(kid)) => {
                Err(VerificationFault::UnknownKey { what, sequence, kid })
            }
            Err(why) => Err(VerificationFault::Unproven { what, sequence, why: why.to_string() }),
        }
    }

    /// Checks the end of the trail.
    pub(super) fn finish(&self) -> Result<(), VerificationFault> {
        if self.signed.sequence < self.last.sequence {
            let (first, last) = (self.signed.sequence + 1, self.last.sequence);
            return Err(VerificationFault::Unsigned { first, last });
        }
        let Some(expected) = self.expected.filter(|_| !self.expected_seen) else { return Ok(()) };
        let (sequence, begins) = (expected.sequence, self.begins.unwrap_or_default());
        if sequence > self.last.sequence {
            return Err(VerificationFault::Missing {
                first: self.last.sequence + 1,
                last: sequence,
            });
        }
        if sequence < begins {
            return Err(VerificationFault::TooOld { sequence, begins });
        }
        // The trail is empty: only the hash before its first row can be the expected head.
        let same = expected == self.last;
        same.then_some(()).ok_or(VerificationFault::OtherHistory { sequence })
    }

    /// The result, with the first fault if there is one.
    pub(super) fn into_report(
        self,
        fault: Option<VerificationFault>,
        unsealed: Option<i64>,
    ) -> VerificationReport {
        VerificationReport {
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
