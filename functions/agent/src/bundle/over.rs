//! A bundle that is unpacked over what a person's workspace holds.

use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::{extract, get};
use crate::files::Layout;
use crate::metadata::Metadata;

/// Unpacks a bundle over what a folder holds. What the bundle does not name stays.
pub(crate) async fn unpack_over(layout: &Layout, metadata: &Metadata, code: &str, to: &Path) -> anyhow::Result<()> {
    let bundle = get(layout, metadata, code).await?;
    let to = to.to_owned();
    let unpacked = tokio::task::spawn_blocking(move || {
        let done = spare(&bundle, &to).and_then(|()| extract(&bundle, &to));
        // A workspace is sent many of them, and each is its own file.
        std::fs::remove_file(&bundle).with_context(|| format!("cannot remove {}", bundle.display()))?;
        done
    });
    unpacked.await.context("the unpacking ended")?
}

/// Refuses, before anything is written, what would put a file in the place of a device, a pipe or a socket: the crate would remove it.
fn spare(bundle: &Path, to: &Path) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(bundle)?)?);
    for entry in archive.entries().context("cannot read the bundle")? {
        let path = to.join(entry.context("cannot read the bundle")?.path()?);
        let Ok(there) = path.symlink_metadata().map(|meta| meta.file_type()) else { continue };
        let is_special = there.is_fifo() || there.is_socket() || there.is_block_device() || there.is_char_device();
        ensure!(!is_special, "{} is a device, a pipe or a socket, and stays one; nothing was written", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rekindle_core::ids::JobId;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[tokio::test]
    async fn nothing_takes_the_place_of_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
        for name in ["first", "pipe"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(3);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, &b"new"[..]).unwrap();
        }
        let bytes = tar.into_inner().unwrap().finish().unwrap();
        let path = folder.path().join(format!("{}.tar.zst", hex::encode(Sha256::digest(&bytes))));
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
