//! Progress of one attempt as a bounded series of points: thinned as it grows, so that a plot of a month is as small as
//! one of an hour.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most points of a series.
// A plot is a thousand pixels wide at most, and a job has many attempts; 128 points are 6 kB.
pub const POINTS_MAX: usize = 128;

/// A step that was reported.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When.
    pub at: Timestamp,
    /// The step.
    pub step: u64,
    /// The loss there, if the program wrote a finite number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

impl Point {
    /// A point with the loss as the program wrote it.
    pub fn new(at: Timestamp, step: u64, loss: Option<&str>) -> Self {
        let loss = loss.and_then(|text| text.trim().parse::<f64>().ok()).filter(|loss| loss.is_finite());
        Self { at, step, loss }
    }
}

/// The points, by time; their steps grow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Step at which the attempt began, as far as it was told; until a worker tells it, where its job took it to begin. The
    /// job itself remembers only its newest attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// A worker has told where it began.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_from_told: bool,
    /// It was to begin from nothing, whatever had been made before. Not so of one that was to go on and found no checkpoint.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from_scratch: bool,
    /// Two points are at least so far apart, in milliseconds.
    pub gap_ms: u64,
    /// The points.
    pub points: Vec<Point>,
}

impl Series {
    /// Adds a point, unless it is no later and higher one, or too near to the last. True if the series changed.
    pub fn add(&mut self, point: Point) -> bool {
        if let Some(last) = self.points.last() {
            let after_ms = u64::try_from(point.at.duration_since(last.at).as_millis()).unwrap_or(0);
            if point.step <= last.step || point.at <= last.at || after_ms < self.gap_ms {
                return false;
            }
        }
        self.points.push(point);
        if self.points.len() > POINTS_MAX {
            self.thin();
        }
        true
    }

    /// Takes over where workers say that the attempt began, of several the smallest; `taken` is what its job takes it to be,
    /// and counts only until one is told, be it lower or higher. True if the series changed.
    pub fn begin(&mut self, told: Option<u64>, taken: Option<u64>) -> bool {
        let known = self.from.filter(|_| self.is_from_told);
        let from = known.into_iter().chain(told).min();
        let next = (from.or(self.from).or(taken), from.is_some());
        let is_news = next != (self.from, self.is_from_told);
        (self.from, self.is_from_told) = next;
        is_news
    }

    /// Keeps every other point, the first among them, and asks for twice the distance.
    fn thin(&mut self) {
        let mut index = 0;
        self.points.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        let span = match self.points.as_slice() {
            [first, .., last] => u64::try_from(last.at.duration_since(first.at).as_millis()).unwrap_or(0),
            _ => 0,
        };
        let between = span / self.points.len().max(2).saturating_sub(1) as u64;
        self.gap_ms = between.max(self.gap_ms);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::at;

    #[test]
    fn a_long_series_stays_small_and_keeps_its_shape() {
        let mut series = Series::default();
        for step in 0..20_000_u64 {
            series.add(Point::new(at(step as i64 * 20), step, Some("1.5")));
        }
        let (first, last) = (series.points[0], series.points[series.points.len() - 1]);
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&series.points.len()), "{}", series.points.len());
        assert_eq!(first.step, 0);
        assert!(last.step > 19_000, "{last:?}");
        let gaps: Vec<u64> = series.points.windows(2).map(|pair| pair[1].step - pair[0].step).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(most <= &(least * 3), "points are spread evenly: {least} to {most}");
    }

    #[test]
    fn what_is_no_progress_is_no_point() {
        let mut series = Series::default();
        assert!(series.add(Point::new(at(0), 5, None)));
        assert!(!series.add(Point::new(at(1), 5, None)), "the same step");
        assert!(!series.add(Point::new(at(1), 4, None)), "a lower one");
        assert!(!series.add(Point::new(at(0), 6, None)), "no later");
        assert!(series.add(Point::new(at(1), 6, None)));
    }

    #[test]
    fn a_loss_that_is_no_number_is_none() {
        for (text, want) in [(" 2.5 ", Some(2.5)), ("nan", None), ("inf", None), ("x", None), ("1e-3", Some(0.001))] {
            assert_eq!(Point::new(at(0), 1, Some(text)).loss, want, "{text}");
        }
    }

    #[test]
    fn it_begins_where_it_is_told_and_until_then_where_the_job_takes_it_to() {
        let mut series = Series::default();
        for (told, taken, is_news, from) in [
            (None, None, false, None),
            (None, Some(900), true, Some(900)),
            (None, Some(900), false, Some(900)),
            (Some(1000), Some(900), true, Some(1000)),
            (Some(950), Some(900), true, Some(950)),
            (Some(1000), Some(900), false, Some(950)),
            (None, Some(900), false, Some(950)),
        ] {
            assert_eq!((series.begin(told, taken), series.from), (is_news, from), "{told:?}");
        }
        let stored = serde_json::to_string(&series).unwrap();
        assert_eq!(serde_json::from_str::<Series>(&stored).unwrap(), series, "{stored}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn it_is_bounded_and_grows_in_time_and_step(
            jumps in proptest::collection::vec((0..5000_i64, 0..9_u64), 0..2000),
        ) {
            let (mut series, mut second, mut step) = (Series::default(), 0, 0);
            for (secs, steps) in jumps {
                second += secs;
                step += steps;
                series.add(Point::new(at(second), step, None));
                prop_assert!(series.points.len() <= POINTS_MAX);
            }
            for pair in series.points.windows(2) {
                prop_assert!(pair[0].at < pair[1].at && pair[0].step < pair[1].step);
            }
        }
    }
}
