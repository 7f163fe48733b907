//! A token that was let in once is checked as if it had never been.

use super::super::seen::{KEPT_MAX, LEN_MAX};
use super::*;

fn stripped(claims: &Value) -> String {
    format!("{}.{SIGNATURE_REMOVED}", unsigned(&header(), claims))
}

/// One good token of each mode that looks at them, let in already.
async fn known() -> Vec<(World, String)> {
    let worlds =
        [(World::new(Mode::Verify).await, sign(&claims())), (World::new(Mode::Platform).await, stripped(&claims()))];
    for (world, token) in &worlds {
        assert!(world.check(token).await.is_ok());
        assert_eq!(world.verifier.seen.len(), 1);
    }
    worlds.into()
}

#[tokio::test]
async fn a_known_token_expires() {
    for (world, token) in known().await {
        world.clock.advance(SignedDuration::from_secs(3590 + 59));
        assert!(world.check(&token).await.is_ok(), "within the leeway");
        world.clock.advance(SignedDuration::from_secs(1));
        assert!(why(&world.check(&token).await).contains("expired"));
    }
}

#[tokio::test]
async fn a_known_token_is_of_no_use_at_another_door() {
    for (world, token) in known().await {
        let other = Expect { audiences: vec!["https://api.example.app".into()], ..expect() };
        assert!(why(&world.verifier.verify(Some(&token), &other).await).contains("audience"));
        let other = Expect { emails: Emails::Only(vec!["other@example.com".into()]), ..expect() };
        let answer = world.verifier.verify(Some(&token), &other).await;
        assert_eq!(answer, Err(AuthError::WrongPrincipal(EMAIL.into())));
        assert!(world.check(&token).await.is_ok(), "where it was let in it still is");
    }
}

#[tokio::test]
async fn a_byte_more_or_less_is_another_token() {
    for (world, token) in known().await {
        let (head, rest) = token.split_once('.').unwrap();
        let (payload, signature) = rest.rsplit_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode(with("sub", json!("1")).to_string());
        let mut others = vec![format!("{token}x"), format!("{head}.{payload}.")];
        if signature != SIGNATURE_REMOVED {
            others.push(format!("{head}.{forged}.{signature}"));
            others.push(format!("{head}.{payload}.{SIGNATURE_REMOVED}"));
            others.push(token[1..].to_owned());
        }
        for other in others {
            assert!(matches!(world.check(&other).await, Err(AuthError::Bad(_))), "{other}");
        }
    }
}

#[tokio::test]
async fn a_known_token_ends_with_the_key_that_signed_it() {
    let long = |kid: &str| KEY.sign(&json!({ "alg": "RS256", "kid": kid }), &with("exp", json!(now() + 20_000)));
    let world = World::new(Mode::Verify).await;
    world.issuer.kids.lock().unwrap().push("k2");
    let (stays, goes) = (long("k1"), long("k2"));
    for token in [&stays, &goes] {
        assert!(world.check(token).await.is_ok());
    }
    world.issuer.kids.lock().unwrap().pop();
    assert!(world.check(&goes).await.is_ok(), "nobody knows yet");
    world.clock.advance(SignedDuration::from_secs(3601));
    assert!(why(&world.check(&goes).await).contains("unknown key"));
    assert!(world.check(&stays).await.is_ok(), "verified again with the key as it was fetched again");
    assert_eq!(world.fetches(), 2);
    // And with no keys at all it is not known whether it is good.
    *world.issuer.broken.lock().unwrap() = true;
    world.clock.advance(SignedDuration::from_secs(3601));
    assert!(world.check(&stays).await.is_ok(), "old keys serve for a while");
    assert_eq!(world.verifier.seen.len(), 2);
}

#[tokio::test]
async fn another_key_of_the_same_name_does_not_vouch_for_a_known_token() {
    let world = World::new(Mode::Verify).await;
    let token = sign(&with("exp", json!(now() + 20_000)));
    assert!(world.check(&token).await.is_ok());
    *world.issuer.key.lock().unwrap() = &OTHER_KEY;
    world.clock.advance(SignedDuration::from_secs(3601));
    assert!(why(&world.check(&token).await).contains("signature is wrong"));
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_none_of_it_is_a_refused_token() {
    let world = World::new(Mode::Platform).await;
    for (_, claims, ..) in bad_claims() {
        assert!(world.check(&stripped(&claims)).await.is_err());
    }
    assert_eq!(world.verifier.seen.len(), 0, "only what was let in");
    let long = with("azp", json!("x".repeat(LEN_MAX)));
    assert!(world.check(&stripped(&long)).await.is_ok());
    assert_eq!(world.verifier.seen.len(), 0, "nothing long");
    for n in 0..KEPT_MAX + 10 {
        let mut claims = with("sub", json!(n.to_string()));
        // The first half will have expired when there is no more room.
        claims["exp"] = json!(now() + if n < KEPT_MAX / 2 { -30 } else { 3590 });
        assert!(world.check(&stripped(&claims)).await.is_ok());
        assert!(world.verifier.seen.len() <= KEPT_MAX);
    }
    assert_eq!(world.verifier.seen.len(), KEPT_MAX / 2 + 10, "the expired ones made room");
}
