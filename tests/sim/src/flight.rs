//! Requests on their way: each is a task of its own, so that what it asks for takes place also when its caller has died or given up.

use std::sync::{Arc, Mutex};

use crate::exec::{Exec, Signal, lock};
use crate::fault::Fault;
use crate::roll::{For, SEC};
use crate::world::World;

/// The longest way of a request, as in `Settings::request_timeout`: what has not arrived by then never does.
pub(crate) const LIFE: i64 = 10 * SEC;

/// A request that arrives late is at least so long on its way.
const LATE: i64 = SEC;

/// Who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A handler. It dies only in the plans that have `crash`.
    Handler,
    /// An agent. Its machine may lose power at any moment.
    Agent,
}

/// What the caller of a request waits for.
struct Flight<T> {
    landed: Signal,
    answer: Mutex<Option<T>>,
}

/// A request on its way: where its caller is dropped, it arrives all the same.
struct Sent<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    exec: Arc<Exec>,
    at: i64,
    request: Option<F>,
}

impl<F> Drop for Sent<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let (exec, at) = (self.exec.clone(), self.at);
        self.exec.spawn(async move {
            exec.sleep_until(at).await;
            request.await;
        });
    }
}

/// Sends a request that takes `way` microseconds to arrive; `request` is what happens there. `None`: it arrives late, and the caller has
/// given up before.
pub(crate) async fn send<T: Send + 'static>(
    world: &Arc<World>,
    caller: Caller,
    way: i64,
    request: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let late = world.strikes(Fault::ArrivesLate, For::Fault);
    // Where nobody dies while it waits but at its deadline, and nobody gives up, a task more would change nothing.
    if !late && caller == Caller::Handler && !world.has(Fault::Crash) {
        let mut sent = Sent { exec: world.exec.clone(), at: world.now() + way, request: Some(request) };
        world.exec.sleep(way).await;
        return match sent.request.take() {
            Some(request) => Some(request.await),
            None => None,
        };
    }
    let way = if late { world.rolls.between(For::Fault, LATE, LIFE) } else { way };
    let flight = Arc::new(Flight { landed: Signal::default(), answer: Mutex::new(None) });
    let (exec, theirs) = (world.exec.clone(), flight.clone());
    world.exec.spawn(async move {
        exec.sleep(way).await;
        let answer = request.await;
        *lock(&theirs.answer) = Some(answer);
        theirs.landed.raise();
    });
    if late {
        world.exec.sleep(world.rolls.between(For::Fault, 0, way - 1)).await;
        return None;
    }
    flight.landed.wait().await;
    lock(&flight.answer).take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, START_US};

    /// A request on its way for 20 ms, whose caller is switched off after 10 ms; when it arrived, and what the caller heard.
    fn sent(plan: Plan, caller: Caller, is_killed: bool) -> (Option<i64>, Option<bool>) {
        let world = World::new(plan, false);
        let (arrived, heard) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let (there, here, world2) = (arrived.clone(), heard.clone(), world.clone());
        let task = world.exec.spawn(async move {
            let world3 = world2.clone();
            let request = async move { *lock(&there) = Some(world3.now() - START_US) };
            let answer = send(&world2, caller, 20_000, request).await;
            *lock(&here) = Some(answer.is_some());
        });
        world.exec.run_until(START_US + 10_000, || false);
        if is_killed {
            world.exec.kill(task);
        }
        world.exec.run_until(START_US + LIFE, || false);
        let (arrived, heard) = (*lock(&arrived), *lock(&heard));
        world.exec.clear();
        (arrived, heard)
    }

    #[test]
    fn a_request_arrives_though_its_caller_is_gone() {
        for caller in [Caller::Agent, Caller::Handler] {
            assert_eq!(sent(Plan::calm(1), caller, false), (Some(20_000), Some(true)), "{caller:?}");
            assert_eq!(sent(Plan::calm(1), caller, true), (Some(20_000), None), "{caller:?}");
        }
    }

    #[test]
    fn a_late_request_arrives_after_its_caller_gave_up() {
        let mut plan = Plan::calm(1);
        plan.on.insert(Fault::ArrivesLate, 1.0);
        let (arrived, heard) = sent(plan, Caller::Agent, false);
        assert_eq!(heard, Some(false));
        assert!(arrived.is_some_and(|at| (LATE..=LIFE).contains(&at)), "{arrived:?}");
    }
}
