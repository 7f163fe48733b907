//! Who may see, submit for and stop whose jobs, and what the jobs of an owner may borrow of the deployment.
//!
//! Everyone has every right over their own jobs, and an admin over all; the rest stands in the deployment's policy. What
//! the policy does not say is not allowed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::CapacityKind;

/// The owner of jobs that come by message, and their principal in the policy: a message carries no identity.
pub const PUBSUB: &str = "pubsub";

/// The one spelling of an owner: limits, what is lent and lists go by it. One's own name is spelled as one is known, any other in small letters.
pub fn spelled(owner: &str, caller: &str) -> String {
    if owner.eq_ignore_ascii_case(caller) { caller.to_owned() } else { owner.to_ascii_lowercase() }
}

/// What a map of the deployment has for an owner, however either is spelled.
pub(crate) fn of_owner<'a, T>(map: &'a BTreeMap<String, T>, owner: &str) -> Option<&'a T> {
    let exact = map.get(owner);
    exact.or_else(|| map.iter().find(|(name, _)| name.eq_ignore_ascii_case(owner)).map(|(_, found)| found))
}

/// What a person may do with the jobs of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Read them: spec, state, history, output.
    See,
    /// Submit for the owner; unpause, restart, wake and label the owner's jobs, and give orders to the owner's workspaces.
    Submit,
    /// Cancel and pause them.
    Stop,
}

/// The deployment's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Rights over the jobs of others.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// What the jobs of an owner may borrow; `*`: of every owner that is not named. Without either: the workers' default
    /// account, no secret, and the whole capacity list.
    #[serde(default)]
    pub borrow: BTreeMap<String, Borrow>,
}

/// Some people's rights over the jobs of some owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Identities: whole addresses, `*@DOMAIN`, `*` for everyone who may call, `pubsub` for job messages.
    pub who: Vec<String>,
    /// Owners, by the same patterns.
    pub whose: Vec<String>,
    /// What they may do.
    pub may: Vec<Right>,
}

/// What the jobs of an owner may borrow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Borrow {
    /// Service accounts beside the workers' default one; `*`: any.
    #[serde(default)]
    pub service_accounts: Vec<String>,
    /// Prefixes of the names of secrets, such as `projects/p/secrets/research-`.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Parts of the capacity list; absent: all of it.
    #[serde(default)]
    pub capacity: Option<Vec<Part>>,
}

/// A part of the capacity list: what matches every field that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Accelerator type, or a family with `*`.
    #[serde(default)]
    pub accelerator: Option<String>,
    /// Zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// How it is bought.
    #[serde(default)]
    pub kind: Option<CapacityKind>,
}

/// Of owners that the policy does not name.
static NOTHING: Borrow = Borrow { service_accounts: Vec::new(), secrets: Vec::new(), capacity: None };

impl Access {
    /// Everyone may do everything, for one's own machine.
    pub fn open() -> Self {
        let any = || vec!["*".to_owned()];
        let borrow = Borrow { service_accounts: any(), secrets: vec![String::new()], capacity: None };
        Self {
            rules: vec![Rule { who: any(), whose: any(), may: vec![Right::See, Right::Submit, Right::Stop] }],
            borrow: BTreeMap::from([("*".to_owned(), borrow)]),
        }
    }

    /// Whether `who` has a right over the jobs of `owner`.
    pub fn may(&self, who: &str, right: Right, owner: &str) -> bool {
        who.eq_ignore_ascii_case(owner) || self.rules_of(who, right).any(|rule| any_matches(&rule.whose, owner))
    }

    /// Whether `who` has a right over the jobs of everyone.
    pub fn may_all(&self, who: &str, right: Right) -> bool {
        self.rules_of(who, right).any(|rule| rule.whose.iter().any(|pattern| pattern == "*"))
    }

    /// Whether `who` has a right over the jobs of any other owner.
    pub fn may_others(&self, who: &str, right: Right) -> bool {
        self.rules_of(who, right).next().is_some()
    }

    fn rules_of<'a>(&'a self, who: &'a str, right: Right) -> impl Iterator<Item = &'a Rule> {
        // Messages are no person: what is said of everyone is not said of them.
        let is_meant = move |rule: &&Rule| {
            let named = |pattern: &String| who != PUBSUB || pattern.eq_ignore_ascii_case(PUBSUB);
            rule.who.iter().any(|pattern| named(pattern) && matches(pattern, who))
        };
        self.rules.iter().filter(move |rule| rule.may.contains(&right)).filter(is_meant)
    }

    /// What stands in it and can match nobody, or others than whoever wrote it means: each with what is taken there.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let rules = self.rules.iter().enumerate();
        let lists = rules.flat_map(|(at, rule)| [(at, "who", &rule.who), (at, "whose", &rule.whose)]);
        for (at, field, patterns) in lists {
            // People are addresses; owners may be any words.
            let is_odd = |pattern: &String| !is_pattern(pattern) || (field == "who" && pattern.contains([' ', ':']));
            let odd = patterns.iter().filter(|pattern| is_odd(pattern));
            faults.extend(odd.map(|odd| format!("rules[{at}].{field}: {odd:?} is neither {PATTERN_IS}")));
        }
        let odd = self.borrow.keys().filter(|owner| *owner != "*" && owner.contains('*'));
        faults.extend(odd.map(|odd| format!("borrow: {odd:?} is neither an owner nor *")));
        for (owner, borrow) in &self.borrow {
            let odd = borrow.secrets.iter().filter(|prefix| !is_secret_prefix(prefix));
            faults.extend(odd.map(|odd| {
                format!("borrow.{owner}.secrets: {odd:?} is no beginning of a name such as projects/P/secrets/NAME-")
            }));
            let odd = borrow.service_accounts.iter().filter(|one| *one != "*" && !is_address(one));
            faults
                .extend(odd.map(|odd| format!("borrow.{owner}.service_accounts: {odd:?} is neither an address nor *")));
        }
        faults
    }

    /// What the jobs of an owner may borrow.
    pub fn borrow(&self, owner: &str) -> &Borrow {
        of_owner(&self.borrow, owner).or_else(|| self.borrow.get("*")).unwrap_or(&NOTHING)
    }
}

impl Borrow {
    /// Whether a job may run as this account.
    pub fn lends_account(&self, account: &str) -> bool {
        self.service_accounts.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(account))
    }

    /// Whether a job may read this secret (`projects/P/secrets/NAME/versions/V`).
    pub fn lends_secret(&self, name: &str) -> bool {
        self.secrets.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Whether a job may be placed there.
    pub fn lends_capacity(&self, kind: CapacityKind, accelerator: &str, zone: &str) -> bool {
        self.capacity.as_ref().is_none_or(|parts| parts.iter().any(|part| part.holds(kind, accelerator, zone)))
    }
}

impl Part {
    fn holds(&self, kind: CapacityKind, accelerator: &str, zone: &str) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| crate::placement::covers_accelerator(pattern, text))
        };
        self.kind.is_none_or(|own| own == kind) && fits(&self.accelerator, accelerator) && fits(&self.zone, zone)
    }
}

fn any_matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

/// A whole name, `*@DOMAIN`, or `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(domain) if domain.starts_with('@') => {
            name.len() > domain.len() && name.to_ascii_lowercase().ends_with(&domain.to_ascii_lowercase())
        }
        Some(_) => false,
        None => pattern.eq_ignore_ascii_case(name),
    }
}

/// What [`matches`] takes, in words.
const PATTERN_IS: &str = "a whole name nor *@DOMAIN nor *";

fn is_pattern(pattern: &str) -> bool {
    let whole = pattern.strip_prefix("*@").or_else(|| (pattern != "*").then_some(pattern));
    whole.is_none_or(|rest| crate::spec::is_label(rest) && !rest.contains('*'))
}

/// An empty one is any secret. Secrets are named in full, by project and name.
fn is_secret_prefix(prefix: &str) -> bool {
    const FORM: &str = "projects/";
    (prefix.starts_with(FORM) || FORM.starts_with(prefix)) && !prefix.contains(['*', ' '])
}

fn is_address(text: &str) -> bool {
    crate::spec::is_label(text) && !text.contains(['*', ' ', ':']) && text.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Access {
        let text = r#"{
            "rules": [
                {"who": ["*@example.com"], "whose": ["research"], "may": ["see", "submit"]},
                {"who": ["bob@example.com"], "whose": ["*"], "may": ["see"]},
                {"who": ["PubSub"], "whose": ["CI"], "may": ["submit", "stop"]}
            ],
            "borrow": {
                "research": {"service_accounts": ["r@p.iam"], "secrets": ["projects/p/secrets/r-"],
                             "capacity": [{"kind": "spot", "accelerator": "v5litepod-*"}]},
                "*": {"service_accounts": ["shared@p.iam"]}
            }
        }"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_no_rule_takes_is_named() {
        assert_eq!(policy().faults(), Vec::<String>::new());
        assert_eq!(Access::open().faults(), Vec::<String>::new(), "any secret, by nothing");
        let text = r#"{
            "rules": [
                {"who": ["*example.com", "a*@example.com", " ann@example.com", "*@*", "*@", "", "group:a@example.com", "*@exa mple.com"],
                 "whose": ["re*"], "may": ["see"]},
                {"who": ["*", "*@example.com", "ann@example.com"], "whose": ["research team", "*"], "may": ["see"]}
            ],
            "borrow": {"*@example.com": {}, "*": {}, "r": {"secrets": ["*", "secrets/x", "projects/p/secrets/*"], "service_accounts": ["serviceAccount:a@p", "a"]}}
        }"#;
        let access: Access = serde_json::from_str(text).unwrap();
        let faults = access.faults();
        assert_eq!(faults.len(), 8 + 1 + 1 + 3 + 2, "{faults:#?}");
        assert_eq!(faults[0], r#"rules[0].who: "*example.com" is neither a whole name nor *@DOMAIN nor *"#);
        let by_end = |pattern: &str| matches(pattern, "evil@notexample.com");
        assert!(
            !by_end("*example.com") && !by_end("*@example.com") && by_end("*@notexample.com"),
            "not by its end alone"
        );
    }

    #[test]
    fn own_jobs_are_ones_own_and_the_rest_stands_in_the_rules() {
        let policy = policy();
        for (who, right, whose, want) in [
            ("eve@other.org", Right::Stop, "eve@other.org", true),
            ("Eve@Other.org", Right::See, "eve@other.org", true),
            ("eve@other.org", Right::See, "research", false),
            ("ann@example.com", Right::See, "research", true),
            ("ANN@EXAMPLE.COM", Right::Submit, "research", true),
            ("ann@example.com", Right::Stop, "research", false),
            ("ann@example.com", Right::See, "bob@example.com", false),
            ("ann@notexample.com", Right::See, "research", false),
            ("bob@example.com", Right::See, "eve@other.org", true),
            ("bob@example.com", Right::See, "pubsub", true),
            ("bob@example.com", Right::Stop, "eve@other.org", false),
            ("pubsub", Right::Submit, "ci", true),
            ("pubsub", Right::Submit, "research", false),
            ("pubsub", Right::Stop, "pubsub", true),
        ] {
            assert_eq!(policy.may(who, right, whose), want, "{who} {right:?} {whose}");
        }
        assert!(policy.may_all("bob@example.com", Right::See) && !policy.may_all("ann@example.com", Right::See));
        assert!(policy.may_others("ann@example.com", Right::See) && !policy.may_others("eve@other.org", Right::See));
        let nothing = Access::default();
        assert!(nothing.may("a@b.c", Right::Stop, "a@b.c") && !nothing.may("a@b.c", Right::See, "d@b.c"));
    }

    #[test]
    fn what_is_not_lent_is_not_borrowed() {
        let policy = policy();
        let (research, other) = (policy.borrow("research"), policy.borrow("ann@example.com"));
        assert_eq!(
            (policy.borrow("ReSearch"), policy.borrow("researchers")),
            (research, other),
            "however it is spelled"
        );
        assert!(research.lends_account("R@p.iam") && !research.lends_account("shared@p.iam"));
        assert!(other.lends_account("shared@p.iam") && !other.lends_account("r@p.iam"));
        assert!(research.lends_secret("projects/p/secrets/r-key/versions/1"));
        assert!(!research.lends_secret("projects/p/secrets/s-key/versions/1"));
        assert!(!other.lends_secret("projects/p/secrets/r-key/versions/1"));
        assert!(research.lends_capacity(CapacityKind::Spot, "v5litepod-16", "us-west4-a"));
        assert!(!research.lends_capacity(CapacityKind::OnDemand, "v5litepod-16", "us-west4-a"));
        assert!(!research.lends_capacity(CapacityKind::Spot, "v6e-16", "us-west4-a"));
        assert!(other.lends_capacity(CapacityKind::OnDemand, "v6e-16", "us-west4-a"));
        let (nothing, open) = (Access::default(), Access::open());
        assert!(!nothing.borrow("x").lends_account("a@p.iam") && !nothing.borrow("x").lends_secret("s"));
        assert!(nothing.borrow("x").lends_capacity(CapacityKind::Reserved, "v4-8", "z"));
        assert!(open.borrow("x").lends_account("a@p.iam") && open.borrow("x").lends_secret("s"));
    }

    #[test]
    fn a_policy_with_a_slip_is_refused() {
        for slip in [
            r#"{"rule": []}"#,
            r#"{"rules": [{"who": ["*"], "whose": ["*"], "may": ["look"]}]}"#,
            r#"{"rules": [{"who": ["*"], "may": ["see"]}]}"#,
            r#"{"borrow": {"x": {"account": []}}}"#,
            r#"{"borrow": {"x": {"capacity": [{"type": "v4-8"}]}}}"#,
        ] {
            assert!(serde_json::from_str::<Access>(slip).is_err(), "{slip}");
        }
    }
}
