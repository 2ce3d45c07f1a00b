//! Why a kernel cannot be specialised.

use std::fmt;

/// A condition of the specialised form that a kernel does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The operation, or the kernel's part, that is in the way.
    pub subject: String,
    /// The condition.
    pub condition: String,
}

impl Reason {
    pub(super) fn new(subject: impl Into<String>, condition: impl Into<String>) -> Self {
        Self { subject: subject.into(), condition: condition.into() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.condition)
    }
}
