//! The repository's rules as tests: import law, sizes, words that must not appear, the map of folders.
//!
//! Nothing here is linked into anything; the tests read the tree as it stands.

#[cfg(test)]
mod audit;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod words;
