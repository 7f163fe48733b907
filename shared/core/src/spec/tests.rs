//! The outside shape of a job spec.
