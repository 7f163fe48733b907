//! The agent of a worker VM, as the real one behaves towards `api`: hello, orders, levels, one exit for each attempt.

use std::sync::Arc;

use rekindle_core::classify::{Exit, SignalSender, Stage as During, WorkerEvidence};
use rekindle_core::observation::ExitReport;
use rekindle_core::orders::{Order, Want, notice_is_urgent};
use rekindle_wire::agent::Welcome;

use crate::call::{self, CallError};
use crate::check;
use crate::exec::{lock, raised_before};
use crate::fault::Fault;
use crate::machine::{Death, OnWorker, Step, Vm, VmId};
use crate::program;
use crate::report::{News, hello_of, news, report_of};
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::{World, micros, stamp};

/// An exit is told before the next attempt is begun, but the next one waits no longer for `api` than this.
const HANDED_OVER: i64 = 5 * SEC;

/// Exit 0 is told once what was said last is sent, or after this time.
const SENT_WAIT: i64 = 30 * SEC;
/// Any other end likewise.
const SENT_WAIT_FAILED: i64 = 2 * SEC;

/// After the moment by which an ordered end is to be over, no end is held back longer than this.
const AFTER_ORDER: i64 = 10 * SEC;

/// An agent collects outputs for so long.
const COLLECTS_MAX: i64 = 4 * MIN;

/// The last words: a program that ignores SIGTERM is killed so long before the machine goes.
const LAST_WORDS: i64 = 2 * SEC;

/// The agent's life.
pub(crate) async fn run(stage: Arc<Stage>, id: VmId) {
    let world = stage.world.clone();
    let Some(signal) = lock(&world.fleet).vms.get(&id).map(|vm| vm.signal.clone()) else { return };
    let mut stored: Option<News> = None;
    let mut failures = 0_u32;
    let mut retry_at = 0;
    loop {
        let now = world.now();
        let Some(next) = step(&world, id) else { return };
        let Some((due, until)) = call_due(&world, id, stored.as_ref(), now.max(retry_at), next) else { return };
        if !due || now < retry_at {
            raised_before(&world.exec, &signal, until.max(retry_at.min(until)).max(now + 1)).await;
            continue;
        }
        match talk(&stage, id, &mut stored).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                let most = if matches!(error, CallError::Status(_)) { MIN } else { 10 * SEC };
                retry_at = world.now() + (SEC / 10 * 2_i64.pow(failures.min(9))).min(most);
                // Nobody listens for long: come back when the cut is over.
                let cut = lock(&world.fleet).vms.get(&id).map_or(0, |vm| vm.cut_until);
                retry_at = retry_at.max(cut);
            }
        }
    }
}

/// Whether a call is due now, and until when to wait if not. `None`: the VM is gone.
fn call_due(world: &World, id: VmId, stored: Option<&News>, from: i64, next: i64) -> Option<(bool, i64)> {
    let mut fleet = lock(&world.fleet);
    let vm = fleet.vms.get_mut(&id)?;
    let now = world.now();
    let fresh = vm.token.is_none() || vm.order.is_none();
    let changed = stored != Some(&news(world, vm));
    let poked = now >= vm.poke_at;
    if fresh || changed || poked {
        return Some((true, from));
    }
    let mut until = next.min(vm.poke_at);
    if let Some(at) = beats_at(world, vm) {
        if now >= at {
            return Some((true, from));
        }
        until = until.min(at);
    }
    Some((false, until))
}

/// When a heartbeat is due that is a call of its own: they are one fact (`pulse`), but before there is an attempt, and in the seeds that
/// deliver each one.
fn beats_at(world: &World, vm: &Vm) -> Option<i64> {
    let is_call = world.has(Fault::Heartbeats) || vm.attempt.is_none();
    let order = vm.order.as_ref().filter(|_| is_call)?;
    Some(vm.stored_at + i64::try_from(order.heartbeat_ms).unwrap_or(20_000) * 1000)
}

/// One call: hello without a token, else a report.
async fn talk(stage: &Arc<Stage>, id: VmId, stored: &mut Option<News>) -> Result<(), CallError> {
    let world = &stage.world;
    let Some((hello, report, token, told)) = ({
        let fleet = lock(&world.fleet);
        fleet.vms.get(&id).map(|vm| {
            let told = news(world, vm);
            // A poll that brings nothing new is not stored before the next heartbeat is due.
            let store = stored.as_ref() != Some(&told) || beats_at(world, vm).is_some_and(|at| world.now() >= at);
            (hello_of(vm), report_of(world, &fleet, vm, store), vm.token.clone(), told)
        })
    }) else {
        return Ok(());
    };
    let mut was_rung = true;
    if let Some(vm) = lock(&world.fleet).vms.get_mut(&id) {
        vm.poke_at = i64::MAX;
        was_rung = std::mem::take(&mut vm.is_rung);
    }
    let Some(token) = token else {
        let welcome: Welcome = call::agent(stage, id, "/agent/v1/hello", None, &hello).await?;
        if let Some(vm) = lock(&world.fleet).vms.get_mut(&id) {
            vm.token = Some(welcome.token);
            obey(vm, welcome.order);
        }
        return Ok(());
    };
    let sent = world.now();
    let answer: Result<Order, CallError> = call::agent(stage, id, "/agent/v1/report", Some(&token), &report).await;
    match answer {
        Ok(order) => {
            let mut fleet = lock(&world.fleet);
            let Some(vm) = fleet.vms.get_mut(&id) else { return Ok(()) };
            if report.store {
                check::on_report(world, &report);
                vm.stored_at = sent;
                vm.told = Some((report.attempt, report.state));
                vm.told_left = report.is_collecting || report.has_unsent;
                if report.exit.is_some()
                    && let Some(a) = vm.attempt.as_mut().filter(|a| a.number == report.attempt)
                {
                    a.accepted = true;
                }
                *stored = Some(told);
            } else {
                world.count("polls without news");
            }
            crate::bell::judge(world, vm, &order, was_rung);
            obey(vm, order);
            Ok(())
        }
        Err(CallError::Status(401)) => {
            if let Some(vm) = lock(&world.fleet).vms.get_mut(&id) {
                vm.token = None;
            }
            Err(CallError::Status(401))
        }
        Err(error) => {
            // The poll that was due is still due.
            if let Some(vm) = lock(&world.fleet).vms.get_mut(&id) {
                vm.poke_at = vm.poke_at.min(world.now());
            }
            Err(error)
        }
    }
}

fn obey(vm: &mut Vm, order: Order) {
    if let Some(a) = vm.attempt.as_mut().filter(|a| a.number == order.attempt && a.work.is_none()) {
        a.work.clone_from(&order.work);
    }
    vm.order = Some(order);
}

/// What the machine brings about by itself now. Answers when to look again; `None`: the VM is gone.
fn step(world: &Arc<World>, id: VmId) -> Option<i64> {
    for _ in 0..8 {
        let (changed, next) = step_once(world, id)?;
        if !changed {
            return Some(next);
        }
    }
    Some(world.now() + SEC)
}

/// What is wanted of a worker.
enum Wanted {
    Nothing,
    Stop(i64),
    Go(bool),
    Begin(u32),
}

fn step_once(world: &Arc<World>, id: VmId) -> Option<(bool, i64)> {
    let now = world.now();
    if let Some(death) = due_death(world, id, now) {
        close(world, id, &death);
        return Some((true, now));
    }
    let mut fleet = lock(&world.fleet);
    if starts(world, &mut fleet, id) {
        return Some((true, now));
    }
    let vm = fleet.vms.get_mut(&id)?;
    send_on(vm, now);
    let wanted = wanted(vm, now);
    let retired = vm.order.as_ref().is_some_and(|o| o.want == Want::Retire);
    match wanted {
        Wanted::Begin(number) => {
            begin(vm, number);
            return Some((true, now));
        }
        Wanted::Stop(kill_at) => {
            if stop(world, &mut fleet, id, kill_at) {
                return Some((true, now));
            }
        }
        Wanted::Go(run) => {
            if go(world, &mut fleet, id, run) {
                return Some((true, now));
            }
        }
        Wanted::Nothing => {}
    }
    let vm = fleet.vms.get(&id)?;
    let mut next = now + 24 * 60 * MIN;
    if let Some(a) = &vm.attempt {
        if let Step::Preparing(at) | Step::Starting(at) = a.step {
            next = next.min(at);
        }
        if a.told_from > now {
            next = next.min(a.told_from);
        }
        if let Some(death) = &a.death {
            next = next.min(death.at);
        }
        if let Some(at) = a.closed_at.filter(|_| !a.accepted && !retired) {
            next = next.min(at + HANDED_OVER + 1);
        }
    }
    for at in [vm.unsent_until, vm.collecting_until] {
        if at > 0 {
            next = next.min(at);
        }
    }
    if let Some(notice) = vm.notice.as_ref().filter(|n| n.takes_away() && !notice_is_urgent(n, stamp(now))) {
        next = next.min(micros(notice.deadline) - MIN);
    }
    Some((false, next.max(now + 1)))
}

/// The program whose start was under way runs: whatever was ordered meanwhile comes after that. True: it does.
fn starts(world: &Arc<World>, fleet: &mut crate::machine::Fleet, id: VmId) -> bool {
    let now = world.now();
    let Some(vm) = fleet.vms.get_mut(&id) else { return false };
    let Some(a) = vm.attempt.as_mut().filter(|a| matches!(a.step, Step::Starting(at) if now >= at)) else {
        return false;
    };
    a.step = Step::Running;
    a.started_at = Some(now);
    start(world, fleet, id);
    true
}

/// What waits on the machine is sent, unless `api` cannot be reached.
fn send_on(vm: &mut Vm, now: i64) {
    for at in [&mut vm.unsent_until, &mut vm.collecting_until] {
        if *at > 0 && now >= *at {
            *at = if vm.cut_until > now { vm.cut_until + SEC } else { 0 };
        }
    }
}

/// The end of the program that has come.
fn due_death(world: &World, id: VmId, now: i64) -> Option<Death> {
    let fleet = lock(&world.fleet);
    fleet.vms.get(&id)?.attempt.as_ref().and_then(|a| a.death.clone()).filter(|d| d.at <= now)
}

/// Everything of the attempt has ended: the exit is written down, and told from here on.
fn close(world: &World, id: VmId, death: &Death) {
    let now = world.now();
    crate::pulse::settle(world, id);
    program::leave(world, id);
    let mut fleet = lock(&world.fleet);
    let Some(vm) = fleet.vms.get_mut(&id) else { return };
    let key = vm.key;
    let Some(a) = vm.attempt.as_mut() else { return };
    let evidence = WorkerEvidence {
        index: key.worker,
        slice: key.slice,
        exit: death.exit,
        signal_sender: sender(death),
        tail: death.tail.clone(),
        oom_kill: death.oom,
        disk_free_bytes: Some(if death.tail == program::DISK_FULL { 0 } else { 1 << 36 }),
        memory_free_bytes: Some(1 << 36),
        device_busy: death.busy,
        // Nothing else takes a program here without an exit.
        rebooted: death.exit == Exit::Silent,
        exited_at_ms: u64::try_from(now / 1000).ok(),
        during: death.during,
        ..WorkerEvidence::default()
    };
    a.exit = Some(ExitReport { at: stamp(now), ordered: death.ordered, evidence });
    a.step = Step::Exited;
    a.death = None;
    a.closed_at = Some(now);
    let has_outputs = a.work.as_ref().is_some_and(|w| !w.outputs.is_empty());
    let is_urgent = vm.notice.as_ref().is_some_and(|n| notice_is_urgent(n, stamp(now)));
    let number = a.number;
    if death.during == During::Run && death.exit != Exit::Silent {
        let held = leaves_something(world, vm, death, has_outputs && !is_urgent);
        if let Some(a) = vm.attempt.as_mut() {
            (a.told_from, a.closed_at) = (now + held, Some(now + held));
        }
    }
    let (job, instance) = (vm.job.clone(), vm.instance.clone());
    drop(fleet);
    world.trace(|| format!("worker: {job} attempt {number} ended on {instance}: {:?}", death.exit));
    crate::truth::on_exit(world, &job, number, key, death);
}

/// What a program leaves on its machine: how long what it said takes to be sent, and its outputs. Answers how long its end is not told for it.
fn leaves_something(world: &World, vm: &mut Vm, death: &Death, has_outputs: bool) -> i64 {
    let now = world.now();
    let after = |most| now + world.rolls.between(For::Later, SEC, most);
    if has_outputs && !death.ordered && world.strikes(Fault::SlowCollect, For::Later) {
        vm.collecting_until = after(COLLECTS_MAX);
        // What was left out is said at its end.
        if world.rolls.chance(For::Later, 0.3) {
            vm.unsent_until = vm.collecting_until + world.rolls.between(For::Later, SEC, MIN);
        }
    }
    if !world.strikes(Fault::SlowUpload, For::Later) {
        return 0;
    }
    vm.unsent_until = vm.unsent_until.max(after(10 * MIN));
    let patience = if death.exit == Exit::Code(0) { SENT_WAIT } else { SENT_WAIT_FAILED };
    let ordered = vm.order.as_ref().filter(|_| death.ordered).and_then(|order| order.kill_at);
    let patience = ordered.map_or(patience, |at| patience.min((micros(at) - now).max(0) + AFTER_ORDER));
    let patience = vm.notice.as_ref().map_or(patience, |n| patience.min(micros(n.deadline) - now - LAST_WORDS));
    (vm.unsent_until - now).min(patience).max(0)
}

/// Who sent the signal that ended a program, as the agent finds out.
fn sender(death: &Death) -> Option<SignalSender> {
    match death.exit {
        _ if death.ordered => Some(SignalSender::Ourselves),
        // Without an order of ours only a machine that goes down sends SIGTERM here.
        Exit::Code(143) => Some(SignalSender::Init),
        _ => None,
    }
}

fn wanted(vm: &Vm, now: i64) -> Wanted {
    let urgent = vm.notice.as_ref().filter(|n| notice_is_urgent(n, stamp(now)));
    let attempt = vm.attempt.as_ref();
    let kill_at = |order: &Order| order.kill_at.map_or(now + 30 * SEC, |at| micros(at).max(now));
    if attempt.is_some_and(|a| a.stopping && a.exit.is_none()) {
        return match &vm.order {
            Some(o) if matches!(o.want, Want::Stop | Want::Retire) => Wanted::Stop(kill_at(o)),
            _ => Wanted::Nothing,
        };
    }
    let by_notice = urgent.map(|n| (now + 30 * SEC).min(micros(n.deadline) - LAST_WORDS).max(now));
    let Some(order) = &vm.order else {
        return by_notice.filter(|_| attempt.is_some()).map_or(Wanted::Nothing, Wanted::Stop);
    };
    if order.want == Want::Retire {
        return Wanted::Stop(kill_at(order));
    }
    let Some(a) = attempt else {
        return if order.attempt > 0 { Wanted::Begin(order.attempt) } else { Wanted::Nothing };
    };
    match order.attempt.cmp(&a.number) {
        std::cmp::Ordering::Greater if a.exit.is_none() => Wanted::Stop(now + 30 * SEC),
        std::cmp::Ordering::Greater if a.accepted || a.closed_at.is_none_or(|at| now > at + HANDED_OVER) => {
            Wanted::Begin(order.attempt)
        }
        std::cmp::Ordering::Less | std::cmp::Ordering::Greater => Wanted::Nothing,
        std::cmp::Ordering::Equal => match (order.want, by_notice) {
            (Want::Stop | Want::Retire, _) => Wanted::Stop(kill_at(order)),
            (Want::Prepare | Want::Run, Some(kill_at)) => Wanted::Stop(kill_at),
            (Want::Prepare, None) => Wanted::Go(false),
            (Want::Run, None) => Wanted::Go(true),
        },
    }
}

fn begin(vm: &mut Vm, number: u32) {
    vm.collecting_until = 0;
    vm.attempt = Some(OnWorker {
        number,
        step: Step::Fresh,
        started_at: None,
        death: None,
        stopping: false,
        exit: None,
        closed_at: None,
        told_from: 0,
        accepted: false,
        work: vm.order.as_ref().filter(|o| o.attempt == number).and_then(|o| o.work.clone()),
    });
}

/// Brings the attempt to its next step. True: something changed.
fn go(world: &Arc<World>, fleet: &mut crate::machine::Fleet, id: VmId, run: bool) -> bool {
    let now = world.now();
    let Some(vm) = fleet.vms.get_mut(&id) else { return false };
    let setup_us = world.job_plan(&vm.job).map_or(0, |j| j.setup_us);
    let (job, setup_done) = (vm.job.clone(), vm.setup_done);
    let Some(a) = vm.attempt.as_mut().filter(|a| a.exit.is_none() && a.work.is_some()) else { return false };
    match a.step {
        Step::Fresh => {
            let setup = if setup_done { 0 } else { setup_us };
            a.step = Step::Preparing(now + world.rolls.between(For::Worker, SEC, 5 * SEC) + setup);
            let wrong = crate::truth::takes_setup_fault(world, &job, setup_done);
            if wrong == Some(Fault::SetupHangs) {
                a.step = Step::Preparing(i64::MAX);
            } else if wrong.is_some() {
                let tail = "ERROR: Could not find a version that satisfies the requirement jax==99\n".into();
                let at = now + setup / 2;
                a.death = Some(Death {
                    at,
                    exit: Exit::Code(1),
                    tail,
                    during: During::Setup,
                    ordered: false,
                    oom: false,
                    busy: false,
                });
            }
            true
        }
        Step::Preparing(at) if now >= at => {
            a.step = Step::Ready;
            let number = a.number;
            vm.setup_done = true;
            crate::check::on_prepared(world, vm, number);
            true
        }
        Step::Ready if run => {
            let slow = world.strikes(Fault::SlowStart, For::Later);
            let after = if slow { world.rolls.between(For::Later, SEC, 2 * MIN) } else { 0 };
            a.step = Step::Starting(now + after);
            starts(world, fleet, id);
            true
        }
        Step::Preparing(_) | Step::Ready | Step::Starting(_) | Step::Running | Step::Exited => false,
    }
}

fn start(world: &Arc<World>, fleet: &mut crate::machine::Fleet, id: VmId) {
    let Some(vm) = fleet.vms.get(&id) else { return };
    let Some((number, work)) = vm.attempt.as_ref().and_then(|a| Some((a.number, a.work.as_ref()?))) else { return };
    let env = |name: &str| work.env.get(name).map_or("", String::as_str);
    let resume = env("REKINDLE_RESUME") == "1";
    let line = env("REKINDLE_LINE").parse().unwrap_or(0);
    let count = |name: &str| env(name).parse::<usize>().unwrap_or(1);
    let expected = count("REKINDLE_WORKERS") * count("REKINDLE_SLICES");
    let job = vm.job.clone();
    world.trace(|| format!("worker: {job} attempt {number} starts on {}", vm.instance));
    check::on_program_start(world, fleet, vm, number, env("REKINDLE_COORDINATOR"));
    program::join(world, fleet, id, resume, line, expected);
}

/// SIGTERM, and SIGKILL at `kill_at`. True: something changed.
fn stop(world: &Arc<World>, fleet: &mut crate::machine::Fleet, id: VmId, kill_at: i64) -> bool {
    let now = world.now();
    let stubborn = world.has(Fault::SlowStop);
    let Some(vm) = fleet.vms.get_mut(&id) else { return false };
    let job = vm.job.clone();
    // A shim must have told of its program before that can be ended.
    let is_open = |a: &&mut OnWorker| a.exit.is_none() && !matches!(a.step, Step::Starting(_));
    let Some(a) = vm.attempt.as_mut().filter(is_open) else { return false };
    if a.stopping {
        // A nearer kill moves the end.
        if let Some(death) = a.death.as_mut().filter(|d| d.at > kill_at.max(now)) {
            death.at = kill_at.max(now);
            death.exit = Exit::Signal(9);
            return true;
        }
        return false;
    }
    a.stopping = true;
    let number = a.number;
    let saves = world.rolls.between(For::Worker, SEC / 2, 20 * SEC);
    let ordered =
        |at, exit| Death { at, exit, tail: String::new(), during: During::Run, ordered: true, oom: false, busy: false };
    a.death = Some(match a.step {
        Step::Running if stubborn || now + saves > kill_at => ordered(kill_at.max(now), Exit::Signal(9)),
        Step::Running => {
            let exit = [Exit::Signal(15), Exit::Code(143), Exit::Code(0)][world.rolls.index(For::Worker, 3)];
            ordered(now + saves, exit)
        }
        Step::Fresh | Step::Preparing(_) | Step::Ready | Step::Starting(_) | Step::Exited => {
            ordered(now + SEC / 5, Exit::Signal(15))
        }
    });
    if a.step == Step::Running && !stubborn {
        program::save_last(world, fleet, &(job, number), now + saves.min(kill_at - now).max(0));
    }
    true
}

/// What an agent finds after a boot: a program that ran is lost, `setup` may be run again.
pub(crate) fn wake_up(vm: &mut Vm) {
    let Some(a) = vm.attempt.as_mut().filter(|a| a.exit.is_none()) else { return };
    match a.step {
        Step::Running | Step::Starting(_) => {
            a.death = Some(Death {
                at: 0,
                exit: Exit::Silent,
                tail: String::new(),
                during: During::Run,
                ordered: false,
                oom: false,
                busy: false,
            });
            a.stopping = true;
        }
        Step::Fresh | Step::Preparing(_) | Step::Ready => {
            a.step = Step::Fresh;
            a.death = None;
            a.stopping = false;
        }
        Step::Exited => {}
    }
}
