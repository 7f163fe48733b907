//! Identifiers: each a type of its own with a checked constructor.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why an identifier was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadId(pub String);

/// The id of a job: `^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`, unique in the installation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(Arc<str>);

impl JobId {
    /// The longest id, in characters.
    // A resource name carries the id beside the installation, the generation and a hash (see `names`), in 63 characters.
    pub const LEN_MAX: usize = 40;

    /// Checks the pattern and keeps the text.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let bytes = text.as_bytes();
        let body = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        if bytes.is_empty() {
            return Err(BadId("is empty; give 1 to 40 of a-z, 0-9 and '-', beginning with a letter".into()));
        }
        if bytes.len() > Self::LEN_MAX {
            return Err(BadId(format!("has {} characters; at most {} are allowed", bytes.len(), Self::LEN_MAX)));
        }
        if !bytes[0].is_ascii_lowercase() || !bytes.iter().all(body) || bytes[bytes.len() - 1] == b'-' {
            return Err(BadId(format!(
                "{text:?} is not of the form ^[a-z]([a-z0-9-]{{0,38}}[a-z0-9])?$ (lower case letters, digits and '-')"
            )));
        }
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobId {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        Self::parse(&text)
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of one installation of Rekindle, made once and kept in the store: six of `[a-z0-9]`, beginning with a letter.
///
/// It is part of every resource name and label, so that two installations in one project never touch each other's TPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstallationId(String);

impl InstallationId {
    /// Its length, in characters.
    pub const LEN: usize = 6;

    /// Checks the pattern and keeps the text.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let ok = text.len() == Self::LEN
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && text.as_bytes()[0].is_ascii_lowercase();
        if ok {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadId(format!("{text:?} is no installation id (six of a-z and 0-9, beginning with a letter)")))
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for InstallationId {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        Self::parse(&text)
    }
}

impl From<InstallationId> for String {
    fn from(id: InstallationId) -> Self {
        id.0
    }
}

impl fmt::Display for InstallationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One worker of one generation: slice index and worker index within the slice, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerKey {
    /// The slice, 0 unless the job is multislice.
    pub slice: u32,
    /// The worker within the slice.
    pub worker: u32,
}

impl WorkerKey {
    /// What people call it: `w3`, or `s0w3` where the job has several slices.
    pub fn label(self, has_slices: bool) -> String {
        if has_slices { format!("s{}w{}", self.slice, self.worker) } else { format!("w{}", self.worker) }
    }
}
