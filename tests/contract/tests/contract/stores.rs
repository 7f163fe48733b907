//! The stores under test, each empty at its start.

use std::sync::{Arc, OnceLock};

use rekindle_fakes::{Emulator, Emulators, MemoryDocs};
use rekindle_gcp::auth::Service;
use rekindle_gcp::firestore::{DEFAULT_DATABASE, FirestoreDocs};
use rekindle_local::RedbDocs;
use rekindle_ports::docs::Docs;
use tempfile::TempDir;

/// A store that may be closed and opened again.
pub(crate) enum Store {
    /// The model.
    Memory(Arc<MemoryDocs>),
    /// The embedded store, with its folder.
    Redb(Option<Arc<RedbDocs>>, TempDir),
    /// Firestore, in a project of its own.
    Firestore(Arc<FirestoreDocs>, String),
}

impl Store {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(MemoryDocs::new()))
    }

    pub(crate) fn redb() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::Redb(Some(open(&dir)), dir)
    }

    /// `None`, with a notice: no emulator here.
    pub(crate) async fn firestore() -> Option<Self> {
        let project = format!("contract-{:08x}", rand::random::<u32>());
        Some(Self::Firestore(firestore_of(&project).await?, project))
    }

    pub(crate) fn docs(&self) -> Arc<dyn Docs> {
        match self {
            Self::Memory(docs) => docs.clone(),
            Self::Redb(docs, ..) => docs.clone().unwrap(),
            Self::Firestore(docs, _) => docs.clone(),
        }
    }

    /// Closes and opens it again: the embedded store from its file, Firestore with a new connection.
    pub(crate) async fn reopen(&mut self) {
        match self {
            Self::Memory(_) => {}
            Self::Redb(docs, dir) => {
                // Only the last holder closes the file.
                assert!(Arc::into_inner(docs.take().unwrap()).is_some(), "still in use");
                *docs = Some(open(dir));
            }
            Self::Firestore(docs, project) => *docs = firestore_of(project).await.unwrap(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redb(..) => "redb",
            Self::Firestore(..) => "firestore",
        }
    }
}

fn open(dir: &TempDir) -> Arc<RedbDocs> {
    Arc::new(RedbDocs::open(dir.path().join("store.redb")).unwrap())
}

async fn firestore_of(project: &str) -> Option<Arc<FirestoreDocs>> {
    // One for all tests; the end of the process ends it.
    static EMULATOR: OnceLock<Option<Emulator>> = OnceLock::new();
    let emulator = tokio::task::spawn_blocking(|| EMULATOR.get_or_init(Emulators::firestore)).await.unwrap();
    let service = Service::emulator(emulator.as_ref()?.address());
    Some(Arc::new(FirestoreDocs::connect(project, DEFAULT_DATABASE, &service).await.unwrap()))
}
