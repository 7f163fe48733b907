//! The group over real sockets: what is summed, who is refused, how a loss shows itself.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::model;

const SHORT: Patience = Patience {
    join: Duration::from_secs(5),
    barrier: Duration::from_millis(400),
    answer_margin: Duration::from_secs(3),
    ..Patience::REAL
};

/// An address of its own on loopback, so that no other test and no outgoing connection can take the port.
fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{high}.{low}", 64 + NEXT.fetch_add(1, Ordering::Relaxed));
    let listener = std::net::TcpListener::bind((host.as_str(), 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

fn invitation(coordinator: &str, world: u32, patience: Patience) -> Invitation {
    Invitation { coordinator: coordinator.to_owned(), attempt: 2, world, run: "seed 1".to_owned(), patience }
}

fn application(coordinator: &str, rank: u32, world: u32, patience: Patience) -> Application {
    Application { coordinator: coordinator.to_owned(), attempt: 2, rank, world, run: "seed 1".to_owned(), patience }
}

fn state(step: u64) -> State {
    State { step, ..State::default() }
}

fn joining(application: Application) -> JoinHandle<anyhow::Result<(Peer, State)>> {
    tokio::spawn(async move { Peer::join(&application).await })
}

/// A complete group of `world`, all reaching worker 0 at `door`, which may be a proxy.
async fn group(coordinator: &str, door: &str, world: u32, patience: Patience) -> (Leader, Vec<Peer>) {
    let joins: Vec<_> = (1..world).map(|rank| joining(application(door, rank, world, patience))).collect();
    let leader = Leader::gather(invitation(coordinator, world, patience), state(0)).await.unwrap();
    let mut peers = Vec::new();
    for join in joins {
        peers.push(join.await.unwrap().unwrap().0);
    }
    (leader, peers)
}

#[tokio::test]
async fn all_get_the_state_of_worker_0_and_the_mean_in_the_order_of_ranks() {
    let place = address();
    let joins: Vec<_> = [3, 1, 2].map(|rank| joining(application(&place, rank, 4, Patience::REAL))).into();
    let mut leader = Leader::gather(invitation(&place, 4, Patience::REAL), state(41)).await.unwrap();
    let values = [0.1, 1e16, 1.0, -1e16];
    let expected = model::mean(&values.map(|value| vec![value]));
    let mut answers = Vec::new();
    for (join, rank) in joins.into_iter().zip([3, 1, 2]) {
        let (mut peer, began) = join.await.unwrap().unwrap();
        assert_eq!(began.step, 41);
        answers.push(tokio::spawn(async move { peer.all_reduce(42, vec![values[rank]]).await.unwrap() }));
    }
    assert_eq!(leader.all_reduce(42, vec![values[0]]).await.unwrap(), Exchange::Mean(expected.clone()));
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Exchange::Mean(expected.clone()));
    }
}

#[tokio::test]
async fn a_worker_of_an_earlier_attempt_or_another_run_is_refused_and_disturbs_nobody() {
    let place = address();
    let stale = joining(Application { attempt: 1, ..application(&place, 1, 2, SHORT) });
    let other = joining(Application { run: "seed 2".to_owned(), ..application(&place, 1, 2, SHORT) });
    let sized = joining(application(&place, 3, 4, SHORT));
    let gathering = tokio::spawn(Leader::gather(invitation(&place, 2, SHORT), state(0)));
    for (refused, why) in [(stale, "attempt 1 is over"), (other, "another run"), (sized, "worker 3 of 4")] {
        let error = format!("{:#}", refused.await.unwrap().unwrap_err());
        assert!(error.contains(why) && error.contains("gRPC status"), "{error}");
    }
    joining(application(&place, 1, 2, SHORT)).await.unwrap().unwrap();
    gathering.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_worker_of_a_later_attempt_waits_for_its_own_worker_0() {
    let place = address();
    let later = joining(Application { attempt: 3, ..application(&place, 1, 2, SHORT) });
    let stale = tokio::spawn(Leader::gather(invitation(&place, 2, SHORT), state(0)));
    // Both are alive now; the stale worker 0 ends and frees the address.
    tokio::time::timeout(Duration::from_secs(5), async {
        while TcpStream::connect(&place).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    stale.abort();
    assert!(stale.await.unwrap_err().is_cancelled());
    let own = Leader::gather(Invitation { attempt: 3, ..invitation(&place, 2, SHORT) }, state(9));
    let (own, later) = tokio::join!(own, later);
    own.unwrap();
    assert_eq!(later.unwrap().unwrap().1.step, 9);
}

#[tokio::test]
async fn workers_that_never_join_are_named() {
    let place = address();
    let patience = Patience { join: Duration::from_millis(600), ..SHORT };
    let _waiting = joining(application(&place, 2, 4, SHORT));
    let error = Leader::gather(invitation(&place, 4, patience), state(0)).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("initialisation failed: gRPC status DEADLINE_EXCEEDED: workers 1, 3 of 4"), "{error}");
    let alone = Peer::join(&application(&place, 1, 4, patience)).await.unwrap_err();
    assert!(format!("{alone:#}").contains("initialisation failed: worker 0 at 127."), "{alone:#}");
}

#[tokio::test]
async fn a_worker_missing_at_the_barrier_ends_the_run_for_all() {
    let place = address();
    let (mut leader, mut peers) = group(&place, &place, 3, SHORT).await;
    let _silent = peers.pop().unwrap();
    let mut present = peers.pop().unwrap();
    let other = tokio::spawn(async move { present.all_reduce(1, vec![1.0]).await.unwrap_err() });
    let error = leader.all_reduce(1, vec![1.0]).await.unwrap_err();
    assert_eq!(error.0.code(), Code::DeadlineExceeded);
    assert!(error.to_string().contains("no contribution of workers 2 within"), "{error}");
    assert_eq!(other.await.unwrap().to_string(), error.to_string(), "the others are told the same");
}

/// Passes connections on to `place` until `cut` turns true: then both sides of each are closed at once.
async fn cuttable(place: String, cut: watch::Receiver<bool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (place, mut cut) = (place.clone(), cut.clone());
            tokio::spawn(async move {
                let Ok(mut far) = TcpStream::connect(&place).await else { return };
                tokio::select! {
                    _ = copy_bidirectional(&mut near, &mut far) => {}
                    _ = cut.wait_for(|cut| *cut) => {}
                }
            });
        }
    });
    door
}

#[tokio::test]
async fn a_cut_connection_is_a_transport_error_on_both_sides() {
    let place = address();
    let (scissors, cut) = watch::channel(false);
    let door = cuttable(place.clone(), cut).await;
    let (mut leader, mut peers) = group(&place, &door, 2, Patience::REAL).await;
    let mut peer = peers.pop().unwrap();
    let (first, second) = tokio::join!(leader.all_reduce(1, vec![1.0]), peer.all_reduce(1, vec![3.0]));
    assert_eq!((first.unwrap(), second.unwrap()), (Exchange::Mean(vec![2.0]), Exchange::Mean(vec![2.0])));

    // The cut comes between two steps: nothing may connect again behind the back of the run.
    scissors.send(true).unwrap();
    let theirs = format!("{:#}", anyhow::Error::new(peer.all_reduce(2, vec![1.0]).await.unwrap_err()));
    let ours = format!("{:#}", anyhow::Error::new(leader.all_reduce(2, vec![1.0]).await.unwrap_err()));
    for error in [&theirs, &ours] {
        assert!(error.contains("gRPC status") && error.contains("h2 protocol error"), "{error}");
    }
    assert!(ours.contains("lost worker 1"), "{ours}");
}

#[tokio::test]
async fn one_worker_that_has_to_stop_stops_all() {
    let place = address();
    let (mut leader, mut peers) = group(&place, &place, 3, Patience::REAL).await;
    let leaving = peers.pop().unwrap();
    let mut staying = peers.pop().unwrap();
    let leave = tokio::spawn(leaving.leave(0));
    let stay = tokio::spawn(async move { staying.all_reduce(1, vec![1.0]).await.unwrap() });
    assert_eq!(leader.all_reduce(1, vec![1.0]).await.unwrap(), Exchange::Stop { worker: 2 });
    leader.stop(2).await;
    assert_eq!(stay.await.unwrap(), Exchange::Stop { worker: 2 });
    leave.await.unwrap();
}

#[tokio::test]
async fn the_end_needs_the_same_parameters_everywhere() {
    for (theirs, agreed) in [("sha256:aa", true), ("sha256:bb", false)] {
        let place = address();
        let (mut leader, mut peers) = group(&place, &place, 2, Patience::REAL).await;
        let mut peer = peers.pop().unwrap();
        let end = tokio::spawn(async move { peer.agree(theirs).await });
        let ours = leader.agree("sha256:aa").await;
        assert_eq!(ours.is_ok(), agreed);
        if agreed {
            leader.finish("sha256:aa".to_owned()).await;
        }
        assert_eq!(end.await.unwrap().is_ok(), agreed);
    }
}

#[tokio::test]
async fn one_worker_that_gave_up_the_last_step_stops_all_at_the_end() {
    let place = address();
    let (mut leader, mut peers) = group(&place, &place, 3, Patience::REAL).await;
    let leave = tokio::spawn(peers.pop().unwrap().leave(0));
    let mut done = peers.pop().unwrap();
    let end = tokio::spawn(async move { done.agree("sha256:aa").await.unwrap() });
    assert_eq!(leader.agree("sha256:aa").await.unwrap(), Agreement::Stop { worker: 2 });
    leader.stop(2).await;
    assert_eq!(end.await.unwrap(), Agreement::Stop { worker: 2 });
    leave.await.unwrap();
}

#[test]
fn codes_are_spelled_as_the_specification_does() {
    assert_eq!(code_name(Code::DeadlineExceeded), "DEADLINE_EXCEEDED");
    assert_eq!(code_name(Code::Unavailable), "UNAVAILABLE");
}
