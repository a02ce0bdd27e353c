//! Values that are loaded from files, and the end of their validity.

use std::error::Error;

use jiff::Timestamp;

use super::Files;
use crate::base::certificate::Validity;

/// A loaded value.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The value.
    pub value: T,
    /// The validity of its certificate or token, if it has one.
    pub validity: Option<Validity>,
}

impl<T> Loaded<T> {
    /// A value that is valid until somebody replaces it.
    pub fn without_end(value: T) -> Self {
        Self { value, validity: None }
    }
}

/// Files that are read together, and the value that is made of them.
pub trait FileSource: Send + 'static {
    /// The value.
    type Value: Send + Sync + 'static;
    /// The reason why a value cannot be used. Its text names the file and has no secret in it.
    type Error: Error + Send + Sync + 'static;

    /// The operator's next step if a new value is refused or the current one ends, for the log.
    const ADVICE: &'static str;

    /// Reads all files through `files`, and makes the value of them. It may block, and it runs
    /// inside the runtime.
    ///
    /// # Errors
    /// A file cannot be used, or the files do not belong together.
    fn load(&self, files: &mut Files) -> Result<Loaded<Self::Value>, Self::Error>;

    /// Checks a value that is to replace another one, for example against the server that it is
    /// for. It may block. It is not called for the first value, because the broker starts before
    /// other systems respond.
    ///
    /// # Errors
    /// The value is refused; the check is repeated later.
    fn check(&self, _value: &Self::Value) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The end of a value that is not in the files, for example because a program prints it. From a
    /// minute before, the value is loaded again although no file has changed. The new value is
    /// checked as after a change; if it ends at the same time, it is taken for the same value.
    fn ends_at(&self, _value: &Self::Value) -> Option<Timestamp> {
        None
    }

    /// Called when a value has come into use; `replaced` is the one before it.
    fn in_use(&self, _value: &Self::Value, _replaced: Option<&Self::Value>) {}
}
