//! What the cloud's log told of a generation, and whether its job knows that already: then nobody need look.

use serde::{Deserialize, Serialize};

use crate::job::Job;

/// What an entry of the cloud's log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// The generation that it tells of.
    pub generation: u32,
    /// What of it.
    pub kind: NewsKind,
}

/// The sort of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewsKind {
    /// Its create has ended, well or badly.
    Made,
    /// Something befell one of its machines.
    Machine,
    /// Anything else.
    Other,
}

impl News {
    /// True when a look could show nothing that the job does not know. It is never true of what a program still depends on.
    pub fn is_known(self, job: &Job) -> bool {
        // What is proved gone is never looked at again. A greater number than any is somebody else's, or a restored store's: a look tells.
        let Some(g) = job.generation(self.generation) else { return self.generation <= job.last_generation };
        match self.kind {
            NewsKind::Made => g.ready_at.is_some(),
            // Its slice is given up; only that its machines are off could still be news, to an attempt that may run on them.
            NewsKind::Machine => {
                g.delete.is_some() && job.attempts.iter().all(|a| a.generation != g.number || a.fenced_at.is_some())
            }
            NewsKind::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::job::Delete;

    fn known(job: &Job, generation: u32) -> Vec<NewsKind> {
        let all = [NewsKind::Made, NewsKind::Machine, NewsKind::Other];
        all.into_iter().filter(|kind| News { generation, kind: *kind }.is_known(job)).collect()
    }

    #[test]
    fn what_a_look_could_still_show_is_not_known() {
        let spec = fixture::spec_in(&fixture::open_deployment(), &fixture::small());
        let mut job = Job { last_generation: 2, ..fixture::job(spec) };
        job.generations.push(fixture::generation(2));
        job.attempts.push(fixture::attempt(1, 2));
        assert_eq!(known(&job, 1), [NewsKind::Made, NewsKind::Machine, NewsKind::Other], "it is gone");
        assert_eq!(known(&job, 3), [], "it is not the job's");
        assert_eq!(known(&job, 2), [], "it is being made");
        job.generations[0].ready_at = Some(fixture::noon());
        assert_eq!(known(&job, 2), [NewsKind::Made]);
        let delete = Delete { intended_at: fixture::noon(), sent_at: None, tries: 0, last_error: None };
        job.generations[0].delete = Some(delete);
        assert_eq!(known(&job, 2), [NewsKind::Made], "a program may still run on it");
        job.attempts[0].fenced_at = Some(fixture::noon());
        assert_eq!(known(&job, 2), [NewsKind::Made, NewsKind::Machine], "that it is gone is news");
    }
}
