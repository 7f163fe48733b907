//! Names are different for different things, and read back exactly.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn installation(text: &str) -> InstallationId {
    InstallationId::parse(text).unwrap()
}

fn job(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

/// Ids that look as much as possible like the other parts of a name.
fn job_ids() -> impl Strategy<Value = JobId> {
    prop_oneof![
        "[a-z]([a-z0-9-]{0,38}[a-z0-9])?",
        "[ag]([g0-9-]{0,6}[g0-9])?",
        "[a-z]{1,3}(-g[0-9]{1,3}){1,3}(-[0-9])?",
        "(g[0-9]-){0,3}rk-[a-z][a-z0-9]{5}-a-g1",
    ]
    .prop_map(|text| job(&text))
}

fn installations() -> impl Strategy<Value = InstallationId> {
    "[a-z][a-z0-9]{5}".prop_map(|text| installation(&text))
}

fn is_gce_name(name: &str) -> bool {
    let body = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    name.len() <= 63 && name.bytes().all(body) && name.as_bytes()[0].is_ascii_lowercase() && !name.ends_with('-')
}

proptest! {
    #[test]
    fn a_name_reads_back_as_what_it_was_made_of(
        installation in installations(), job in job_ids(), generation: u32, slice in proptest::option::of(0_u32..5000),
    ) {
        let name = generation_name(&installation, &job, generation);
        prop_assert!(is_gce_name(&name), "{name}");
        let name = slice.map_or(name.clone(), |slice| slice_name(&name, slice));
        prop_assert_eq!(parse(&name), Some(Parsed { installation, job, generation, slice }));
    }

    #[test]
    fn different_jobs_have_different_names(
        one in (installations(), job_ids(), 0_u32..30, proptest::option::of(0_u32..3)),
        other in (installations(), job_ids(), 0_u32..30, proptest::option::of(0_u32..3)),
    ) {
        let name = |(installation, job, generation, slice): &(InstallationId, JobId, u32, Option<u32>)| {
            let name = generation_name(installation, job, *generation);
            slice.map_or(name.clone(), |slice| slice_name(&name, slice))
        };
        prop_assert_eq!(one == other, name(&one) == name(&other));
    }

    #[test]
    fn what_parses_is_what_we_would_write(
        name in "(rk-)?[a-z][a-z0-9]{5}-[a-z0-9g-]{1,12}(-g[0-9]{1,3})?(-[0-9]{1,2})?",
    ) {
        if let Some(parsed) = parse(&name) {
            let again = generation_name(&parsed.installation, &parsed.job, parsed.generation);
            prop_assert_eq!(parsed.slice.map_or(again.clone(), |slice| slice_name(&again, slice)), name);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(name in "\\PC{0,80}") {
        let _ = parse(&name);
        let _ = parse(&format!("rk-{name}"));
    }

    #[test]
    fn a_generated_id_is_valid_and_follows_its_seed(one in "\\PC{0,90}", other in "\\PC{0,90}") {
        prop_assert_eq!(one == other, generated_job_id(&one) == generated_job_id(&other));
        prop_assert!(JobId::parse(generated_job_id(&one).as_str()).is_ok());
    }
}

#[test]
fn ids_that_end_like_a_generation_or_a_slice_stay_apart() {
    let inst = installation("abc123");
    let mut names = BTreeSet::new();
    for id in ["a", "a-g1", "a-g1-g1", "a-1", "a-g1-1", "g1", "g1-g1", "a-g1-0"] {
        for generation in [1, 11, 0] {
            let name = generation_name(&inst, &job(id), generation);
            for slice in [None, Some(0), Some(1), Some(10)] {
                let name = slice.map_or(name.clone(), |slice| slice_name(&name, slice));
                assert_eq!(parse(&name).unwrap().job, job(id));
                assert!(names.insert(name));
            }
        }
    }
}

#[test]
fn the_longest_name_fits_and_long_ids_with_one_beginning_stay_apart() {
    let inst = installation("abc123");
    let (one, other) = (job(&format!("{}1", "a".repeat(39))), job(&format!("{}2", "a".repeat(39))));
    assert_eq!(generation_name(&inst, &one, u32::MAX).len(), 62);
    assert_ne!(generation_name(&inst, &one, 7), generation_name(&inst, &other, 7));
    // 999 generations of 9999 slices still fit.
    assert!(is_gce_name(&slice_name(&generation_name(&inst, &one, 999), 9999)));
}

#[test]
fn seeds_that_would_normalise_alike_make_different_ids() {
    let seeds = [
        "A_b",
        "a-b",
        "a_b",
        "A-B",
        "a b",
        "a-b ",
        "-a-b",
        "a--b",
        "a.b",
        "a/b",
        "",
        " ",
        "owner-x/train",
        "owner-y/train",
    ];
    let long: Vec<String> = (0..50).map(|i| format!("{}{i}", "x".repeat(70))).collect();
    let ids: BTreeSet<JobId> =
        seeds.iter().copied().chain(long.iter().map(String::as_str)).map(generated_job_id).collect();
    assert_eq!(ids.len(), seeds.len() + long.len());
    assert_eq!(generated_job_id("13217873619462110").as_str(), generated_job_id("13217873619462110").as_str());
}

#[test]
fn foreign_and_second_spellings_are_refused() {
    for name in [
        "",
        "rk-",
        "rk",
        "rk-abc123",
        "rk-abc123-",
        "rk-abc123-a",
        "rk-abc123-a-g",
        "rk-abc123--g1",
        "rk-abc123-g1",
        "rk-abc123-a-g01",
        "rk-abc123-a-g+1",
        "rk-abc123-a-g1-00",
        "rk-abc123-a-g1-",
        "rk-abc123-a-g1-x",
        "rk-abc123-a-g4294967296",
        "rk-abc123-a-g-1",
        "rk-1bc123-a-g1",
        "rk-abc12-a-g1",
        "rk-abc1234-a-g1",
        "rk-abc123-A-g1",
        "rk-abc123-a_b-g1",
        "rk-abc123-1a-g1",
        "Rk-abc123-a-g1",
        " rk-abc123-a-g1",
        "rk-abc123-a-g1 ",
        "xrk-abc123-a-g1",
        "vm10-x",
        "t1v-n-1234-w-0",
        "projects/p/nodes/rk-abc123-a-g1",
    ] {
        assert_eq!(parse(name), None, "{name}");
    }
    let too_long = format!("rk-abc123-{}-g1", "a".repeat(41));
    assert_eq!(parse(&too_long), None);
}

#[test]
fn ids_outside_the_pattern_are_refused() {
    for id in ["", "A", "a_b", "-a", "a-", "1a", "a b", "ä", "a/b", &"a".repeat(41)] {
        assert!(JobId::parse(id).is_err(), "{id}");
    }
    for id in ["", "abc12", "abc1234", "1bc123", "Abc123", "abc-12", "abcde\u{e9}"] {
        assert!(InstallationId::parse(id).is_err(), "{id}");
    }
}

#[test]
fn labels_carry_the_owner_of_a_resource() {
    let labels = labels(&installation("abc123"), &job("train"), 3, &"0123456789abcdef".repeat(4));
    assert_eq!(labels.installation, "abc123");
    assert_eq!(labels.job, "train");
    assert_eq!(labels.generation, "3");
    assert_eq!(labels.spec, "0123456789abcdef");
}

#[test]
fn labels_are_told_from_those_of_any_other_generation() {
    let (ours, train, hash) = (installation("abc123"), job("train"), "0123456789abcdef".repeat(4));
    let made = labels(&ours, &train, 30, &hash);
    assert!(are_labels_of(&made, &ours, &train, 30, &hash));
    let changes: [fn(&mut SliceLabels); 6] = [
        |l| l.installation = "abc124".into(),
        |l| l.job = "train2".into(),
        |l| l.generation = "3".into(),
        |l| l.generation = "030".into(),
        |l| l.spec = "0123456789abcde".into(),
        |l| l.spec = "0123456789abcdef0".into(),
    ];
    for (n, change) in changes.iter().enumerate() {
        let mut other = made.clone();
        change(&mut other);
        assert!(!are_labels_of(&other, &ours, &train, 30, &hash), "{n}: {other:?}");
    }
    assert!(are_labels_of(&labels(&ours, &train, 1, "short"), &ours, &train, 1, "short"));
}
