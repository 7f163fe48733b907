//! A bundle that is unpacked over what a person's workspace holds.

use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::{OwnFile, extract, get};
use crate::files::Layout;
use crate::metadata::Metadata;

/// Unpacks a bundle over what a folder holds. What the bundle does not name stays.
pub(crate) async fn unpack_over(layout: &Layout, metadata: &Metadata, code: &str, to: &Path) -> anyhow::Result<()> {
    // A workspace is sent many of them: none stays, and each order has its own, so that none takes another's away.
    let bundle = OwnFile::beside(&layout.generation().join("order"));
    get(metadata, code, &bundle.0).await?;
    let to = to.to_owned();
    let unpacked = tokio::task::spawn_blocking(move || spare(&bundle.0, &to).and_then(|()| extract(&bundle.0, &to)));
    unpacked.await.context("the unpacking ended")?
}

/// Refuses, before anything is written, what would put a file in the place of a device, a pipe or a socket: the crate would remove it.
fn spare(bundle: &Path, to: &Path) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(bundle)?)?);
    for entry in archive.entries().context("cannot read the bundle")? {
        // As the crate does: what begins at the root is unpacked below the folder all the same.
        let entry = entry.context("cannot read the bundle")?;
        let named = entry.path()?;
        let path = to.join(named.components().filter(|part| matches!(part, Component::Normal(_))).collect::<PathBuf>());
        let Ok(there) = path.symlink_metadata().map(|meta| meta.file_type()) else { continue };
        let is_special = there.is_fifo() || there.is_socket() || there.is_block_device() || there.is_char_device();
        ensure!(!is_special, "{} is a device, a pipe or a socket, and stays one; nothing was written", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::body::{Body, Bytes};
    use futures::{StreamExt as _, stream};
    use rekindle_core::ids::JobId;
    use sha2::{Digest as _, Sha256};
    use tokio::sync::{Notify, oneshot};

    use super::*;

    /// A bundle with files of these names, and its own name.
    fn bundle(names: &[&str]) -> (String, Vec<u8>) {
        let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
        for name in names {
            let mut header = tar::Header::new_gnu();
            // As it is: the crate writes no absolute one by itself.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(3);
            header.set_mode(0o644);
            header.set_cksum();
            tar.append(&header, &b"new"[..]).unwrap();
        }
        let bytes = tar.into_inner().unwrap().finish().unwrap();
        (format!("{}.tar.zst", hex::encode(Sha256::digest(&bytes))), bytes)
    }

    fn layout(folder: &Path) -> Layout {
        let home = folder.join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        layout
    }

    /// Serves a bundle at an address; the rest of the first answer comes once the sender is gone. Answers the address, how often it
    /// was asked for, what says that it was, and the sender.
    async fn served(name: &str, bytes: Vec<u8>) -> (String, Arc<AtomicUsize>, Arc<Notify>, oneshot::Sender<()>) {
        let (asked, is_asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (go, may_go) = oneshot::channel::<()>();
        let (count, say) = (Arc::clone(&asked), Arc::clone(&is_asked));
        let may_go = Arc::new(Mutex::new(Some(may_go)));
        let answer = async move || {
            let (begin, rest) = bytes.split_at(bytes.len() / 2);
            let (begin, rest) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(rest));
            let held = may_go.lock().unwrap().take();
            count.fetch_add(1, Ordering::SeqCst);
            say.notify_one();
            let rest = async move {
                if let Some(held) = held {
                    let _ = held.await;
                }
                Ok::<_, std::io::Error>(rest)
            };
            Body::from_stream(stream::once(async { Ok(begin) }).chain(stream::once(rest)))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let code = format!("http://{}/{name}", listener.local_addr().unwrap());
        let router = axum::Router::new().route(&format!("/{name}"), axum::routing::get(answer));
        tokio::spawn(async { axum::serve(listener, router).await });
        (code, asked, is_asked, go)
    }

    #[tokio::test]
    async fn two_orders_fetch_one_bundle_at_the_same_time_and_neither_takes_it_from_the_other_or_from_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        let (name, bytes) = bundle(&["a"]);
        let of_job = layout.generation().join(&name);
        std::fs::write(&of_job, &bytes).unwrap();
        let (code, asked, is_asked, go) = served(&name, bytes).await;
        let metadata = Arc::new(Metadata::new("127.0.0.1:9").unwrap());
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let held = tokio::spawn({
            let (layout, metadata, code, first) = (layout.clone(), Arc::clone(&metadata), code.clone(), first.clone());
            async move { unpack_over(&layout, &metadata, &code, &first).await }
        });
        is_asked.notified().await;
        unpack_over(&layout, &metadata, &code, &second).await.unwrap();
        drop(go);
        held.await.unwrap().unwrap();
        for to in [first, second] {
            assert_eq!(std::fs::read(to.join("a")).unwrap(), b"new");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2, "none was fetched anew");
        assert!(of_job.is_file());
        assert_eq!(std::fs::read_dir(layout.generation()).unwrap().count(), 1, "nothing else lies about");
    }

    #[tokio::test]
    async fn nothing_takes_the_place_of_a_pipe() {
        for pipe in ["pipe", "/pipe", "./pipe"] {
            spares_a_pipe_named(pipe).await;
        }
    }

    async fn spares_a_pipe_named(entry: &str) {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        let (name, bytes) = bundle(&["first", entry]);
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let code = format!("file://{}", path.display());
        let work = layout.work();
        std::fs::create_dir_all(&work).unwrap();
        std::fs::write(work.join("first"), "old").unwrap();
        let pipe = work.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let metadata = Metadata::new("127.0.0.1:9").unwrap();

        let refused = unpack_over(&layout, &metadata, &code, &work).await.unwrap_err().to_string();
        assert!(refused.contains("pipe is a device, a pipe or a socket"), "{refused}");
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        assert_eq!(std::fs::read(work.join("first")).unwrap(), b"old", "all of it, or nothing");

        std::fs::remove_file(&pipe).unwrap();
        unpack_over(&layout, &metadata, &code, &work).await.unwrap();
        assert_eq!(std::fs::read(work.join("first")).unwrap(), b"new");
    }
}
