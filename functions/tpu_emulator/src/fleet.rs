//! The VMs of all nodes, from the emulator's side: starts supervisors, ends them, finds them again after a restart.
//!
//! Each node has one queue, worked off in order, so that a boot is complete before the power-off that follows it.
//! **Invariant:** a power-off is reported done only when no process of the VMs is left.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::disk;
use crate::model::{Node, NodeKey, World};
use crate::supervisor::tree::{self, Live};
use crate::vm::{BootDir, TOKEN_HEADER, VmRecord, VmSpec, read_json, write_json};

mod spec;

pub(crate) use spec::Template;

/// A supervisor that has not reported by then has failed.
const BOOT_DEADLINE: Duration = Duration::from_secs(30);

/// A supervisor that has not ended its tree by then is killed itself, and its processes found by their mark.
const END_DEADLINE: Duration = Duration::from_secs(25);

/// A supervisor that lives answers, but one that gets hardly any processor time may take this long. Of one that has died,
/// the connection tells.
const CALL_DEADLINE: Duration = Duration::from_mins(2);

/// Between two tries to boot a VM that did not.
const BOOT_AGAIN: Duration = Duration::from_secs(1);

/// How often files and processes are looked at while waiting for them.
const POLL: Duration = Duration::from_millis(2);

/// One boot of one VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vm {
    /// VM name.
    pub(crate) name: String,
    /// Number of the boot.
    pub(crate) boot: u32,
}

enum Job {
    Boot(Vec<(Vm, VmSpec)>),
    PowerOff(Vec<Vm>, oneshot::Sender<()>),
    Metadata(Vec<Vm>, Vec<(String, Value)>),
    Settle(oneshot::Sender<()>),
    Remove(Vec<String>),
}

/// See the module.
pub(crate) struct Fleet {
    machine: Arc<Machine>,
    template: Template,
    queues: Mutex<HashMap<NodeKey, Queue>>,
}

struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    vms: Vec<String>,
}

/// What every queue needs.
pub(crate) struct Machine {
    vms: PathBuf,
    supervisor: Vec<OsString>,
    client: reqwest::Client,
}

impl Fleet {
    pub(crate) fn new(vms: PathBuf, supervisor: Vec<OsString>, client: reqwest::Client, template: Template) -> Self {
        let machine = Arc::new(Machine { vms, supervisor, client });
        Self { machine, template, queues: Mutex::new(HashMap::new()) }
    }

    /// Starts VMs of a node.
    pub(crate) fn boot(&self, world: &World, node: &Node, workers: &[u32]) {
        let boots = node.workers.iter().filter(|worker| workers.contains(&worker.index)).map(|worker| {
            let vm = vm_of(node, worker.index);
            let earlier = worker.boot.checked_sub(1).map(|boot| BootDir::new(&self.machine.vms, &vm.name, boot));
            let earlier = earlier.and_then(|dir| read_json::<VmRecord>(&dir.record()));
            let mut spec = self.template.spec(world, node, worker, &self.machine.vms);
            spec.port = earlier.map(|record| record.address.port());
            (vm, spec)
        });
        let boots = boots.collect();
        self.send(node, Job::Boot(boots));
    }

    /// Ends VMs of a node; the receiver is told when nothing of them is left.
    pub(crate) fn power_off(&self, node: &Node, workers: &[u32]) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        let vms = workers.iter().map(|index| vm_of(node, *index)).collect();
        self.send(node, Job::PowerOff(vms, done));
        wait
    }

    /// Switches one VM off and on again: `node` tells of the new boot already.
    pub(crate) fn reboot(&self, world: &World, node: &Node, worker: u32) {
        let mut earlier = vm_of(node, worker);
        earlier.boot = earlier.boot.saturating_sub(1);
        let (done, _) = oneshot::channel();
        self.send(node, Job::PowerOff(vec![earlier], done));
        self.boot(world, node, &[worker]);
    }

    /// Changes values of metadata servers.
    pub(crate) fn metadata(&self, node: &Node, workers: &[u32], changes: Vec<(String, Value)>) {
        let vms = workers.iter().map(|index| vm_of(node, *index)).collect();
        self.send(node, Job::Metadata(vms, changes));
    }

    /// Waits until everything that was asked of a node's VMs so far is done.
    pub(crate) async fn settle(&self, node: &Node) {
        let (done, wait) = oneshot::channel();
        self.send(node, Job::Settle(done));
        let _ = wait.await;
    }

    /// Forgets the VMs of a node that is gone, and deletes their folders.
    pub(crate) fn remove(&self, key: &NodeKey) {
        let queue = self.queues.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(queue) = queue {
            let _ = queue.jobs.send(Job::Remove(queue.vms));
        }
    }

    fn send(&self, node: &Node, job: Job) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(node.key()).or_insert_with(|| {
            let (jobs, inbox) = mpsc::unbounded_channel();
            tokio::spawn(work(self.machine.clone(), inbox));
            Queue { jobs, vms: node.workers.iter().map(|worker| node.vm(worker.index)).collect() }
        });
        // Fails only while the runtime shuts down.
        let _ = queue.jobs.send(job);
    }

    /// Direct access to one VM.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// The current boot of a worker's VM.
pub(crate) fn vm_of(node: &Node, index: u32) -> Vm {
    let boot = node.workers.iter().find(|worker| worker.index == index).map_or(0, |worker| worker.boot);
    Vm { name: node.vm(index), boot }
}

async fn work(machine: Arc<Machine>, mut inbox: mpsc::UnboundedReceiver<Job>) {
    // On a full disk nothing boots. A VM of the service comes up by itself all the same.
    let mut unbooted: Vec<(Vm, VmSpec)> = Vec::new();
    loop {
        let job = tokio::select! {
            job = inbox.recv() => match job {
                Some(job) => job,
                None => return,
            },
            () = tokio::time::sleep(BOOT_AGAIN), if !unbooted.is_empty() => {
                unbooted = boot_all(&machine, std::mem::take(&mut unbooted), true).await;
                continue;
            }
        };
        match job {
            Job::Boot(boots) => unbooted.extend(boot_all(&machine, boots, false).await),
            Job::PowerOff(vms, done) => {
                unbooted.retain(|(vm, _)| !vms.contains(vm));
                each(vms.into_iter().map(|vm| {
                    let machine = machine.clone();
                    async move { machine.power_off(&vm).await }
                }))
                .await;
                let _ = done.send(());
            }
            Job::Metadata(vms, changes) => {
                each(vms.into_iter().map(|vm| {
                    let (machine, changes) = (machine.clone(), changes.clone());
                    async move {
                        if let Err(error) = machine.post::<_, Option<()>>(&vm, "metadata", &changes).await {
                            tracing::warn!("metadata of VM {} did not change: {error:#}", vm.name);
                        }
                    }
                }))
                .await;
            }
            Job::Settle(done) => {
                let _ = done.send(());
            }
            Job::Remove(vms) => {
                for vm in vms {
                    machine.delete(&vm);
                }
                return;
            }
        }
    }
}

/// Boots VMs, and answers those that did not boot.
async fn boot_all(machine: &Arc<Machine>, boots: Vec<(Vm, VmSpec)>, is_again: bool) -> Vec<(Vm, VmSpec)> {
    let mut tasks = tokio::task::JoinSet::new();
    for (vm, spec) in boots {
        let machine = machine.clone();
        tasks.spawn(async move {
            let booted = machine.boot(&vm, &spec).await;
            if let Err(error) = &booted {
                if is_again {
                    tracing::debug!("VM {} still does not boot: {error:#}", vm.name);
                } else {
                    tracing::error!("VM {} did not boot, and is tried again each second: {error:#}", vm.name);
                }
            }
            booted.is_err().then_some((vm, spec))
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Runs all at once and waits for all.
async fn each<F: Future<Output = ()> + Send + 'static>(futures: impl Iterator<Item = F>) {
    let mut tasks = tokio::task::JoinSet::new();
    for future in futures {
        tasks.spawn(future);
    }
    while tasks.join_next().await.is_some() {}
}

impl Machine {
    fn dir(&self, vm: &Vm) -> BootDir {
        BootDir::new(&self.vms, &vm.name, vm.boot)
    }

    /// The record of a VM whose supervisor is alive.
    pub(crate) fn alive(&self, vm: &Vm) -> Option<VmRecord> {
        self.record(vm).filter(is_running)
    }

    /// What the supervisor told about itself, alive or not.
    pub(crate) fn record(&self, vm: &Vm) -> Option<VmRecord> {
        read_json(&self.dir(vm).record())
    }

    /// The startup script's process.
    pub(crate) fn program(&self, vm: &Vm) -> Option<crate::vm::VmProgram> {
        read_json(&self.dir(vm).program())
    }

    /// Guest attributes that the VM wrote.
    pub(crate) fn guest_attributes(&self, vm: &Vm) -> Option<Value> {
        read_json(&self.dir(vm).guest_attributes())
    }

    /// The folder of the boot.
    pub(crate) fn folder(&self, vm: &Vm) -> PathBuf {
        self.dir(vm).0
    }

    /// Starts a supervisor, unless this boot has one, and waits until it has reported.
    async fn boot(&self, vm: &Vm, spec: &VmSpec) -> anyhow::Result<()> {
        let dir = self.dir(vm);
        std::fs::create_dir_all(&dir.0)?;
        if self.record(vm).is_some() {
            return Ok(());
        }
        if !dir.spec().exists() {
            write_json(&dir.spec(), spec)?;
        }
        let log = std::fs::File::options().create(true).append(true).open(dir.log())?;
        let [program, arguments @ ..] = self.supervisor.as_slice() else {
            anyhow::bail!("no supervisor command is configured");
        };
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .arg(&dir.0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let started_at = Instant::now();
        let mut exited = None;
        while self.record(vm).is_none() {
            // One that ends at once without a failure left the boot to another that runs already.
            exited = exited.or(child.try_wait()?.filter(|status| !status.success()));
            if let Some(status) = exited {
                anyhow::bail!("the supervisor ended with {status}; see {}", dir.log().display());
            }
            anyhow::ensure!(started_at.elapsed() < BOOT_DEADLINE, "the supervisor does not report");
            tokio::time::sleep(POLL).await;
        }
        // Takes in its end, whenever that is.
        tokio::spawn(async move { child.wait().await });
        Ok(())
    }

    /// Ends a VM with everything on it, as a power cut does.
    pub(crate) async fn power_off(&self, vm: &Vm) {
        if let Err(error) = crate::vm::write_atomically(&self.dir(vm).off(), b"") {
            tracing::debug!("the folder of VM {} is gone: {error}", vm.name);
        }
        let live = self.alive(vm).map(|record| Live { pid: record.pid, start_time: record.start_time });
        if let Some(live) = &live {
            if let Err(error) = self.post::<_, Option<()>>(vm, "end", &()).await {
                // It may have ended before its answer went out.
                tracing::debug!("VM {}: {error:#}", vm.name);
            }
            let started_at = Instant::now();
            while tree::is_alive(live) && started_at.elapsed() < END_DEADLINE {
                tokio::time::sleep(POLL).await;
            }
            if !tree::is_alive(live) && self.dir(vm).end().exists() {
                return;
            }
            if let Err(error) = tree::signal(live, rustix::process::Signal::KILL) {
                tracing::error!("the supervisor of VM {} does not end: {error}", vm.name);
            }
        }
        // Without its supervisor's word that the tree is gone, what is left is found by its mark.
        if let Err(error) = tree::kill_marked(crate::vm::MARKER, &spec::marker(&self.vms, vm)).await {
            tracing::error!("processes of VM {} are left: {error}", vm.name);
        }
    }

    fn delete(&self, vm: &str) {
        if let Err(error) = disk::remove(&self.vms.join(vm))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot delete the folder of VM {vm}: {error}");
        }
    }

    /// Ends every boot that is not in `known`, and deletes VMs of which none is: left by an emulator that died
    /// between two steps.
    pub(crate) async fn sweep(&self, known: &[Vm]) {
        for name in list(&self.vms) {
            for boot in list(&self.vms.join(&name)) {
                let Some(boot) = boot.strip_prefix("boot-").and_then(|number| number.parse().ok()) else { continue };
                let vm = Vm { name: name.clone(), boot };
                let is_over = self.dir(&vm).off().exists() && self.alive(&vm).is_none();
                if !known.contains(&vm) && !is_over {
                    self.power_off(&vm).await;
                }
            }
            if !known.iter().any(|vm| vm.name == name) {
                self.delete(&name);
            }
        }
    }

    /// Calls a supervisor.
    pub(crate) async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        vm: &Vm,
        call: &str,
        body: &B,
    ) -> anyhow::Result<T> {
        let request = |client: &reqwest::Client, url: String| client.post(url).json(body);
        self.call(vm, call, request).await
    }

    /// Asks a supervisor.
    pub(crate) async fn get<T: DeserializeOwned>(&self, vm: &Vm, call: &str) -> anyhow::Result<T> {
        self.call(vm, call, reqwest::Client::get).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        vm: &Vm,
        call: &str,
        request: impl FnOnce(&reqwest::Client, String) -> reqwest::RequestBuilder,
    ) -> anyhow::Result<T> {
        let record = self.alive(vm).ok_or_else(|| anyhow::anyhow!("VM {} is off", vm.name))?;
        let spec: VmSpec =
            read_json(&self.dir(vm).spec()).ok_or_else(|| anyhow::anyhow!("VM {} has no spec", vm.name))?;
        let url = format!("http://{}/supervisor/v1/{call}", record.address);
        let limit = if call == "end" { END_DEADLINE } else { CALL_DEADLINE };
        let answer = request(&self.client, url).header(TOKEN_HEADER, spec.token).timeout(limit).send().await?;
        let answer = answer.error_for_status()?;
        let body = answer.bytes().await?;
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        Ok(serde_json::from_slice(body)?)
    }
}

fn is_running(record: &VmRecord) -> bool {
    let is_same_machine = crate::supervisor::machine_boot().is_ok_and(|boot| boot == record.machine_boot);
    is_same_machine && tree::is_alive(&Live { pid: record.pid, start_time: record.start_time })
}

fn list(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
