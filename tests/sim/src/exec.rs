//! The executor: one thread, virtual time, and the next ready task picked at random by the seed.
//!
//! A queue in order of arrival would show one schedule a seed; races hide behind it. Time stands still while anything is ready, then jumps
//! to the next timer. Tasks are dropped, not cancelled: a killed task ends at the await it stands at.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Locks, also after a panic elsewhere: a simulation ends with its first panic anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names a task over its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId {
    slot: usize,
    serial: u64,
}

struct Ready(Mutex<Vec<TaskId>>);

struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready.0).push(self.id);
        }
    }
}

struct Slot {
    serial: u64,
    /// `None` while it is being polled.
    task: Option<Waiting>,
}

/// A task between two polls.
struct Waiting {
    task: Task,
    queued: Arc<TaskWaker>,
    /// The same for the task itself; made once.
    waker: Waker,
}

struct Timer {
    at: i64,
    order: u64,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    free: Vec<usize>,
    serial: u64,
    timers: BinaryHeap<Reverse<Timer>>,
    timer_order: u64,
    /// Tasks that were killed while they were being polled.
    killed: Vec<TaskId>,
}

/// The executor and its clock.
pub(crate) struct Exec {
    now_us: AtomicI64,
    state: Mutex<State>,
    ready: Arc<Ready>,
    pick: Mutex<ChaCha8Rng>,
}

/// Why [`Exec::run_until`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The time has come.
    Time,
    /// Nothing is ready and no timer is set.
    Idle,
    /// The caller's condition holds.
    Condition,
}

impl Exec {
    /// An executor whose clock stands at `start_us` (microseconds since 1970).
    pub(crate) fn new(start_us: i64, seed: u64) -> Self {
        Self {
            now_us: AtomicI64::new(start_us),
            state: Mutex::default(),
            ready: Arc::new(Ready(Mutex::default())),
            pick: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
        }
    }

    /// The virtual time, in microseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.now_us.load(Ordering::Relaxed)
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> TaskId {
        let mut state = lock(&self.state);
        state.serial += 1;
        let serial = state.serial;
        let slot = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot { serial: 0, task: None });
            state.slots.len() - 1
        });
        let id = TaskId { slot, serial };
        let queued = Arc::new(TaskWaker { id, queued: AtomicBool::new(true), ready: self.ready.clone() });
        let waker = Waker::from(queued.clone());
        state.slots[slot] = Slot { serial, task: Some(Waiting { task: Box::pin(future), queued, waker }) };
        drop(state);
        lock(&self.ready.0).push(id);
        id
    }

    /// Drops a task at the await it stands at. Nothing happens if it has ended.
    pub(crate) fn kill(&self, id: TaskId) {
        let mut state = lock(&self.state);
        let Some(slot) = state.slots.get_mut(id.slot).filter(|s| s.serial == id.serial) else { return };
        match slot.task.take() {
            Some(task) => {
                slot.serial = 0;
                state.free.push(id.slot);
                drop(state);
                drop(task);
            }
            // It is being polled now (it kills itself, perhaps by way of another): dropped when the poll returns.
            None => state.killed.push(id),
        }
    }

    /// Waits until a time.
    pub(crate) fn sleep_until(self: &Arc<Self>, at: i64) -> Sleep {
        Sleep { exec: self.clone(), at, set: false }
    }

    /// Waits so many microseconds.
    pub(crate) fn sleep(self: &Arc<Self>, us: i64) -> Sleep {
        self.sleep_until(self.now() + us.max(0))
    }

    /// Runs until `until` (inclusive of everything due at it), or until `stop` says so after a step.
    pub(crate) fn run_until(&self, until: i64, mut stop: impl FnMut() -> bool) -> Stopped {
        let mut due = Vec::new();
        loop {
            while let Some(id) = self.pick() {
                self.poll(id);
                if stop() {
                    return Stopped::Condition;
                }
            }
            let mut state = lock(&self.state);
            let Some(Reverse(first)) = state.timers.peek() else {
                drop(state);
                self.now_us.fetch_max(until, Ordering::Relaxed);
                return Stopped::Idle;
            };
            if first.at > until {
                drop(state);
                self.now_us.fetch_max(until, Ordering::Relaxed);
                return Stopped::Time;
            }
            let at = first.at;
            self.now_us.fetch_max(at, Ordering::Relaxed);
            while state.timers.peek().is_some_and(|Reverse(t)| t.at <= at) {
                if let Some(Reverse(timer)) = state.timers.pop() {
                    due.push(timer.waker);
                }
            }
            drop(state);
            for waker in due.drain(..) {
                waker.wake();
            }
        }
    }

    /// Drops every task and timer, so that what they hold is freed.
    pub(crate) fn clear(&self) {
        // Dropping a task may wake or kill others, or start one: take them all out first, and look again.
        loop {
            let old = std::mem::take(&mut *lock(&self.state));
            lock(&self.ready.0).clear();
            if old.slots.is_empty() && old.timers.is_empty() {
                return;
            }
            drop(old);
        }
    }

    fn pick(&self) -> Option<TaskId> {
        let mut ready = lock(&self.ready.0);
        let index = match ready.len() {
            0 => return None,
            1 => 0,
            n => lock(&self.pick).random_range(0..n),
        };
        Some(ready.swap_remove(index))
    }

    fn poll(&self, id: TaskId) {
        let mut waiting = {
            let mut state = lock(&self.state);
            let Some(slot) = state.slots.get_mut(id.slot).filter(|s| s.serial == id.serial) else { return };
            let Some(waiting) = slot.task.take() else { return };
            waiting
        };
        waiting.queued.queued.store(false, Ordering::Relaxed);
        let done = waiting.task.as_mut().poll(&mut Context::from_waker(&waiting.waker)).is_ready();
        let mut state = lock(&self.state);
        let killed = state.killed.iter().position(|k| *k == id).map(|at| state.killed.swap_remove(at)).is_some();
        let slot = &mut state.slots[id.slot];
        if done || killed {
            slot.serial = 0;
            state.free.push(id.slot);
            drop(state);
            drop(waiting);
        } else {
            slot.task = Some(waiting);
        }
    }

    fn set_timer(&self, at: i64, waker: Waker) {
        let mut state = lock(&self.state);
        state.timer_order += 1;
        let order = state.timer_order;
        state.timers.push(Reverse(Timer { at, order, waker }));
    }
}

/// A wait for a time.
pub(crate) struct Sleep {
    exec: Arc<Exec>,
    at: i64,
    set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.exec.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.set {
            self.set = true;
            self.exec.set_timer(self.at, cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A flag that one task waits for and others raise.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Signal {
    /// Raises the flag.
    pub(crate) fn raise(&self) {
        let mut state = lock(&self.state);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    /// Waits for the flag, and lowers it.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(move |cx| {
            let mut state = lock(&self.state);
            if std::mem::take(&mut state.0) {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// Waits for the flag, at most until a time. True: the flag was raised.
pub(crate) async fn raised_before(exec: &Arc<Exec>, signal: &Signal, at: i64) -> bool {
    let wait = std::pin::pin!(signal.wait());
    let sleep = std::pin::pin!(exec.sleep_until(at));
    matches!(futures::future::select(wait, sleep).await, futures::future::Either::Left(_))
}

/// A future that is dropped at one of its awaits.
pub(crate) struct Crashing<F> {
    inner: Option<Pin<Box<F>>>,
    polls_left: u32,
}

impl<F> Crashing<F> {
    /// `inner`, dropped at its `polls`-th await.
    pub(crate) fn new(inner: F, polls: u32) -> Self {
        Self { inner: Some(Box::pin(inner)), polls_left: polls }
    }
}

impl<F: Future> Future for Crashing<F> {
    /// `None`: it was dropped.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            self.inner = None;
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        match self.inner.as_mut() {
            None => Poll::Ready(None),
            Some(inner) => inner.as_mut().poll(cx).map(Some),
        }
    }
}

/// A future that is dropped once its time is over.
pub(crate) struct Bounded<F> {
    exec: Arc<Exec>,
    until: i64,
    inner: Option<Pin<Box<F>>>,
}

impl<F> Bounded<F> {
    /// `inner`, which does nothing from `until` on.
    pub(crate) fn new(exec: &Arc<Exec>, until: i64, inner: F) -> Self {
        Self { exec: exec.clone(), until, inner: Some(Box::pin(inner)) }
    }
}

impl<F: Future> Future for Bounded<F> {
    /// `None`: its time was over.
    type Output = Option<F::Output>;

    // A timer for each would cost more than all that it shows: what the inner future waits for is seconds away, and by then it is dropped
    // without having done anything more.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.exec.now() >= self.until {
            self.inner = None;
        }
        match self.inner.as_mut() {
            None => Poll::Ready(None),
            Some(inner) => inner.as_mut().poll(cx).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<u32> {
        let exec = Arc::new(Exec::new(0, seed));
        let seen = Arc::new(Mutex::new(Vec::new()));
        for n in 0..6_u32 {
            let (exec2, seen) = (exec.clone(), seen.clone());
            exec.spawn(async move {
                exec2.sleep(10).await;
                lock(&seen).push(n);
            });
        }
        assert_eq!(exec.run_until(100, || false), Stopped::Idle);
        std::mem::take(&mut *lock(&seen))
    }

    #[test]
    fn the_seed_decides_the_order_of_what_is_ready() {
        assert_eq!(order(1), order(1));
        assert!((2..20).any(|seed| order(seed) != order(1)), "every seed gave the same order");
    }

    #[test]
    fn a_killed_task_ends_at_its_await() {
        let exec = Arc::new(Exec::new(0, 1));
        let seen = Arc::new(Mutex::new(0));
        let (exec2, seen2) = (exec.clone(), seen.clone());
        let id = exec.spawn(async move {
            loop {
                exec2.sleep(10).await;
                *lock(&seen2) += 1;
            }
        });
        exec.run_until(35, || false);
        exec.kill(id);
        assert_eq!(exec.run_until(1000, || false), Stopped::Idle);
        assert_eq!((*lock(&seen), exec.now()), (3, 1000));
    }

    #[test]
    fn a_crash_is_at_the_chosen_await() {
        let exec = Arc::new(Exec::new(0, 1));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (exec2, seen2) = (exec.clone(), seen.clone());
        exec.spawn(async move {
            let body = async {
                for n in 0..9 {
                    exec2.sleep(1).await;
                    lock(&seen2).push(n);
                }
            };
            assert!(Crashing::new(body, 4).await.is_none());
        });
        exec.run_until(100, || false);
        assert_eq!(*lock(&seen), [0, 1, 2]);
    }

    #[test]
    fn what_is_bounded_does_nothing_from_its_end_on() {
        let exec = Arc::new(Exec::new(0, 1));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (exec2, seen2) = (exec.clone(), seen.clone());
        exec.spawn(async move {
            let body = async {
                for _ in 0..9 {
                    exec2.sleep(10).await;
                    lock(&seen2).push(exec2.now());
                }
            };
            assert!(Bounded::new(&exec2, 30, body).await.is_none());
            assert_eq!(Bounded::new(&exec2, 60, exec2.sleep(5)).await, Some(()));
        });
        exec.run_until(100, || false);
        assert_eq!(*lock(&seen), [10, 20]);
    }
}
