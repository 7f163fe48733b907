//! Whether a token's audience is one that is taken.

/// What stands for the part of a Cloud Run address that nobody chooses.
const OPEN: char = '*';

/// Whether a token with the audience `told` is meant for whoever takes `taken`.
///
/// Both are compared exactly, but for a `/` at their ends. One `*` in `taken` stands for letters, digits and dashes: a Cloud Run service
/// has a second address, `https://NAME-HASH-REGION.a.run.app`, whose middle is known only once the service is there, and Eventarc may
/// name it. Whoever takes an address with `*` must have the platform's word that the token is for this service; see [`is_open`].
pub fn takes(taken: &str, told: &str) -> bool {
    let told = bare(told);
    match bare(taken).split_once(OPEN) {
        None => bare(taken) == told,
        Some((begin, end)) => told
            .strip_prefix(begin)
            .and_then(|rest| rest.strip_suffix(end))
            .is_some_and(|middle| !middle.is_empty() && middle.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')),
    }
}

/// Whether a setting leaves a part of the address open: it tells this service from another of the same name only with the
/// platform's own check before it.
pub fn is_open(taken: &str) -> bool {
    taken.contains(OPEN)
}

fn bare(audience: &str) -> &str {
    audience.strip_suffix('/').unwrap_or(audience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_is_taken_whole_or_with_its_open_part_filled() {
        let own = "https://rekindle-events-123456789012.us-central1.run.app";
        let other = "https://rekindle-events-*.a.run.app";
        for (taken, told, is_taken) in [
            (own, "https://rekindle-events-123456789012.us-central1.run.app", true),
            (own, "https://rekindle-events-123456789012.us-central1.run.app/", true),
            (own, "https://rekindle-events-123456789012.us-central1.run.app//", false),
            (own, "https://rekindle-events-123456789012.us-central1.run.app/functions/tpu-events", false),
            (own, "http://rekindle-events-123456789012.us-central1.run.app", false),
            (own, "", false),
            (other, "https://rekindle-events-a1b2c3d4e5-uc.a.run.app", true),
            (other, "https://rekindle-events-a1b2c3d4e5-uc.a.run.app/", true),
            (other, "https://rekindle-events-.a.run.app", false),
            (other, "https://rekindle-events-x.evil.com/.a.run.app", false),
            (other, "https://rekindle-events-x.evil.a.run.app", false),
            (other, "https://rekindle-reconcile-a1b2c3d4e5-uc.a.run.app", false),
            (other, "https://rekindle-events-a1b2c3d4e5-uc.a.run.app.evil.com", false),
        ] {
            assert_eq!(takes(taken, told), is_taken, "{taken} {told}");
        }
        assert!(is_open(other) && !is_open(own));
    }
}
