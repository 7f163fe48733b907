//! Checks of `infra/` that need no cloud: the Terraform files against the provider's schema, what they would make, who may do what.
//!
//! Nothing here is linked into a program; the tests read the tree as it stands. What the pages say, and what gcloud takes, the tests of
//! the command line ask too.

pub mod gcloud;
pub mod pages;

#[cfg(test)]
mod edges;
#[cfg(test)]
mod files;
#[cfg(test)]
mod functions;
#[cfg(test)]
mod indexes;
#[cfg(test)]
mod logfilter;
#[cfg(test)]
mod observed;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod references;
#[cfg(test)]
mod runbooks;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod served;
#[cfg(test)]
mod slips;
#[cfg(test)]
mod standins;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod wiring;
