//! Evidence at the end of a program: everything on the machine that tells why it ended.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use rekindle_core::classify::SignalSender;

use crate::files;

/// Most bytes of each stream that travel with an exit.
pub(crate) const TAIL_MAX: usize = 64 << 10;
/// The longest tail as JSON: the document of a worker has room for it, whatever it consists of.
const WRITTEN_MAX: usize = 300 << 10;
/// Files of the TPU runtime's log folder that travel with an exit, and bytes of each.
const TPU_LOGS_MAX: usize = 4;
const TPU_LOG_MAX: usize = 4 << 10;

/// File systems stamp with the clock of the kernel's last tick, so a file may look older than it is by one tick (10 ms
/// at most). Larger would take the last words of an earlier program for this one's.
const TICK: Duration = Duration::from_millis(20);

/// Where the two streams of a program begin in their files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Since {
    /// In the file of standard output.
    pub(crate) stdout: u64,
    /// In the file of standard error.
    pub(crate) stderr: u64,
}

/// Free bytes of the file system of a folder.
pub(crate) fn disk_free(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The end of both streams, each up to [`TAIL_MAX`]: standard output, then standard error, which is where programs say
/// what they died of.
pub(crate) fn tail(stdout: &Path, stderr: &Path, since: Since) -> String {
    let open = |path| files::open_file(File::options().read(true), path);
    let mut text = end_of(open(stdout), since.stdout);
    let err = end_of(open(stderr), since.stderr);
    if !text.is_empty() && !text.ends_with('\n') && !err.is_empty() {
        text.push('\n');
    }
    text.push_str(&err);
    text
}

fn end_of(opened: std::io::Result<File>, since: u64) -> String {
    let read = move || -> std::io::Result<Vec<u8>> {
        let mut file = opened?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(since.max(size.saturating_sub(TAIL_MAX as u64))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_MAX as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let mut text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    // Bytes that are no UTF-8 grow when they are replaced.
    if text.len() > TAIL_MAX {
        let cut = (text.len() - TAIL_MAX..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
        text.drain(..cut);
    }
    text
}

/// The end of a text that is not longer than [`WRITTEN_MAX`] as JSON, where a control character takes six bytes.
pub(crate) fn bounded(mut text: String) -> String {
    let mut left = WRITTEN_MAX;
    let written = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    };
    let first = text.char_indices().rev().find(|(_, c)| {
        let fits = left.checked_sub(written(*c));
        left = fits.unwrap_or(0);
        fits.is_none()
    });
    if let Some((at, c)) = first {
        text.drain(..at + c.len_utf8());
    }
    text
}

/// The ends of the files in the TPU runtime's log folder that were written to since the program's start, the newest
/// file last, under their names; nothing where there are none.
pub(crate) fn tpu_logs(folder: &Path, since: SystemTime) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| {
            // The links to the newest file of each level (`tpu_driver.INFO`) would show everything twice.
            let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((meta.modified().ok()?, entry.path()))
        })
        .filter(|(at, _)| *at + TICK >= since)
        .collect();
    files.sort();
    let newest = files.split_off(files.len().saturating_sub(TPU_LOGS_MAX));
    let mut text = String::new();
    for (_, path) in newest {
        let whole = end_of(File::open(&path), 0);
        let mut cut = whole.len().saturating_sub(TPU_LOG_MAX);
        while !whole.is_char_boundary(cut) {
            cut += 1;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "rekindle: the end of {name} in TPU_LOG_DIR:\n{}", whole[cut..].trim_end());
    }
    text
}

/// Who sent the signal, if the output tells it as absl's handler does: `*** SIGTERM received by PID 12 (TID 12) on cpu
/// 3 from PID 1; ***`.
pub(crate) fn sender_in(tail: &str, ours: &[i32]) -> Option<SignalSender> {
    tail.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once(" received by PID ")?;
        let (_, from) = rest.split_once(" from PID ")?;
        let pid: i32 = from.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        Some(match pid {
            1 => SignalSender::Init,
            _ if ours.contains(&pid) => SignalSender::Ourselves,
            _ => SignalSender::Other(pid),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_room_in_a_document_whatever_it_consists_of() {
        for (unit, count) in
            [("\0", WRITTEN_MAX / 6), ("x", WRITTEN_MAX), ("\n", WRITTEN_MAX / 2), ("é", WRITTEN_MAX / 2)]
        {
            let whole = unit.repeat(count);
            assert_eq!(bounded(whole.clone()), whole, "{unit:?} as much as there is room for");
            let cut = bounded(format!("{whole}{unit}end"));
            assert!(cut.ends_with("end") && serde_json::to_string(&cut).unwrap().len() <= WRITTEN_MAX + 2, "{unit:?}");
            assert!(cut.len() + 2 * unit.len() + 3 > whole.len(), "{unit:?}");
        }
        assert_eq!(bounded(String::new()), "");
    }

    #[test]
    fn a_tail_has_the_end_of_each_stream() {
        let folder = tempfile::tempdir().unwrap();
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        std::fs::write(&out, "setup said\nstep 1").unwrap();
        std::fs::write(&err, "boom\n").unwrap();
        assert_eq!(tail(&out, &err, Since { stdout: 11, stderr: 0 }), "step 1\nboom\n");
        std::fs::write(&out, "o".repeat(200_000)).unwrap();
        assert_eq!(tail(&out, &err, Since::default()), format!("{}\nboom\n", "o".repeat(TAIL_MAX)));
        std::fs::write(&err, [vec![0xff_u8; 100_000], b"end".to_vec()].concat()).unwrap();
        let text = tail(&out, &err, Since::default());
        assert!(text.len() <= 2 * TAIL_MAX + 1 && text.ends_with("end") && text.matches('o').count() == TAIL_MAX);
        assert_eq!(tail(&folder.path().join("none"), &folder.path().join("none"), Since::default()), "");
    }

    #[test]
    fn the_runtimes_logs_are_those_of_this_program() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, at: u64| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
            File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
        };
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        write("old", "of an earlier program\n", 99);
        write("tpu_driver.b.log", "F0827 chip halted\n", 120);
        write("tpu_driver.a.log", &format!("{}\nI0827 last line\n", "x".repeat(TPU_LOG_MAX)), 110);
        std::os::unix::fs::symlink("tpu_driver.b.log", folder.path().join("tpu_driver.FATAL")).unwrap();
        let text = tpu_logs(folder.path(), since);
        assert!(text.contains("I0827 last line\nrekindle: the end of tpu_driver.b.log"), "{text}");
        assert!(text.ends_with("F0827 chip halted\n") && !text.contains("earlier") && !text.contains("FATAL"));
        assert!(text.len() < TPU_LOG_MAX + 200);
        assert_eq!(tpu_logs(&folder.path().join("none"), since), "");
    }

    #[test]
    fn finds_the_sender_of_a_signal() {
        let line =
            |pid| format!("x\n*** SIGTERM received by PID 55 (TID 55) on cpu 3 from PID {pid}; stack trace: ***\ny");
        assert_eq!(sender_in(&line(1), &[7]), Some(SignalSender::Init));
        assert_eq!(sender_in(&line(7), &[7]), Some(SignalSender::Ourselves));
        assert_eq!(sender_in(&line(9), &[7]), Some(SignalSender::Other(9)));
        assert_eq!(sender_in("received by PID 1", &[]), None);
    }

    #[test]
    fn reads_the_machine() {
        assert!(disk_free(Path::new("/")).is_some_and(|free| free > 0));
    }
}
