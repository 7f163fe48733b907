//! The page of one job, open while the job runs and prints.

use rekindle_core::ids::WorkerKey;
use rekindle_ports::world::Objects as _;
use rekindle_rig::get;

use super::super::bill::{Bill, Kind};
use super::super::stream::Stream;
use super::{LINE, Play, WATCH, call};

/// Chunks of a stream that printed a line a minute through most of a day.
const SAID: u64 = 1200;

/// How often a job's own view asks for what no stream tells: `look-ms` of the page.
fn look_secs() -> i64 {
    let page = include_str!("../../../../../functions/api/src/site/index.html");
    let ms =
        page.lines().find_map(|line| line.strip_prefix(r#"<meta name="look-ms" content=""#)?.strip_suffix(r#"">"#));
    ms.unwrap().parse::<i64>().unwrap() / 1000
}

impl Play {
    /// An hour in which a page shows the job that runs: its streams, and what it asks for by itself. Both streams of all workers have
    /// said more than a list holds, and print a line a minute. The first look, which reads the whole history and the end of all
    /// output, is not in it.
    pub(crate) async fn job_view_hour(&mut self) -> Bill {
        self.talk().await;
        let now = self.now();
        let mut streams = [
            Stream::new(WATCH, now),
            Stream::new("/v1/jobs/train/logs?follow=true&brief=true&form=lines&tail=65536&worker=all", now),
        ];
        let mut before = Bill::default();
        let mut revision = 0;
        for second in 0..=3600_i64 {
            if second % 60 == 30 {
                self.print(SAID + second.unsigned_abs() / 60).await;
            }
            self.book.turn(Kind::Page);
            let now = self.now();
            for stream in &mut streams {
                stream.look(&self.router, &self.book, now).await;
            }
            let news = self.job().await.revision;
            if second % look_secs() == 0 || news != revision {
                for part in ["", "/explain", "/progress"] {
                    let answer = call(&self.router, &self.book, get(&format!("/v1/jobs/train{part}"))).await;
                    assert_eq!(answer.status, 200, "{part}");
                }
                if news != revision {
                    let history = get("/v1/jobs/train/history?page_size=500&page_token=0");
                    assert_eq!(call(&self.router, &self.book, history).await.status, 200);
                }
                revision = news;
            }
            if second == 0 {
                before = self.bill(&[Kind::Page]);
            }
            self.second().await;
        }
        // Each line of the hour but those that come after the last look.
        let told = streams[1].told();
        let lines = usize::try_from(self.workers).unwrap() * 2;
        assert!((lines * 57..=lines * 60).contains(&told), "{told} lines of {lines} a minute");
        self.bill(&[Kind::Page]).without(&before)
    }

    /// What the programs said before: more chunks of each stream than a list gives.
    async fn talk(&self) {
        let at = self.now().as_millisecond();
        let attempt = self.agents[0].order.attempt;
        for (agent, stream) in self.agents.iter().flat_map(|agent| ["stderr", "stdout"].map(|of| (agent, of))) {
            let WorkerKey { slice, worker } = agent.key;
            let folder = format!("jobs/train/logs/{attempt:06}/{slice:04}-{worker:04}/{stream}");
            for number in 0..SAID {
                let name = format!("{folder}/{number:010}@{at}");
                self.rig.fakes.objects.put(&name, LINE.into()).await.unwrap();
            }
        }
    }

    /// Each stream of each worker says a line: the chunk with that number.
    async fn print(&mut self, number: u64) {
        for index in 0..self.agents.len() {
            for stream in ["stdout", "stderr"] {
                self.put(index, stream, number).await;
            }
        }
    }
}
