//! Requests on their way: each is a task of its own, so that what it asks for takes place also when its caller has died or given up.

use std::sync::{Arc, Mutex};

use crate::exec::{Signal, lock};
use crate::fault::Fault;
use crate::roll::{For, SEC};
use crate::world::World;

/// The longest way of a request, as in `Settings::request_timeout`: what has not arrived by then never does.
const LIFE: i64 = 10 * SEC;

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

/// Sends a request that takes `way` microseconds to arrive; `request` is what happens there. `None`: it arrives late, and the caller has
/// given up before.
pub(crate) async fn send<T: Send + 'static>(
    world: &Arc<World>,
    caller: Caller,
    way: i64,
    request: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let late = world.strikes(Fault::ArrivesLate, For::Fault);
    // Where nobody dies while it waits, and nobody gives up, a task more would change nothing.
    if !late && caller == Caller::Handler && !world.has(Fault::Crash) {
        world.exec.sleep(way).await;
        return Some(request.await);
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
