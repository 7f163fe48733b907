//! Moments as people write them.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

/// The forms, for a refusal.
pub(crate) const FORMS: &str = "write 12h, 11:05 (in UTC), yesterday, 2026-11-27, or 2026-11-27T18:00:00Z";

/// How long ago, a time of day, a day, or a moment. Days begin at midnight where `now` is, and a day and time without a zone are
/// of there; a time of day alone is copied from what is printed here, which is in UTC.
pub(crate) fn parse(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
        return Some(now.timestamp().checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    if let Some(moment) = time_of_day(text, now) {
        return Some(moment);
    }
    let local = match text {
        "today" => now.date().to_datetime(Time::midnight()),
        "yesterday" => now.date().yesterday().ok()?.to_datetime(Time::midnight()),
        _ => text.parse::<DateTime>().ok()?,
    };
    Some(local.to_zoned(now.time_zone().clone()).ok()?.timestamp())
}

/// `11:05` or `11:05:07` in UTC: the last one that has been.
fn time_of_day(text: &str, now: &Zoned) -> Option<Timestamp> {
    let time = ["%H:%M:%S", "%H:%M"].into_iter().find_map(|format| Time::strptime(format, text).ok())?;
    let utc = now.with_time_zone(TimeZone::UTC);
    let today = utc.date().to_datetime(time);
    let last = if today > utc.datetime() { today.checked_sub(1.day()).ok()? } else { today };
    Some(last.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The same as an argument, by the clock and the zone of this machine.
pub(crate) fn argument(text: &str) -> Result<Timestamp, String> {
    parse(text, &Zoned::now()).ok_or_else(|| FORMS.to_owned())
}

/// A length of time as an argument: as in a job, a number alone is of seconds.
pub(crate) fn span(text: &str) -> Result<std::time::Duration, String> {
    if let Ok(secs) = text.parse() {
        return Ok(std::time::Duration::from_secs(secs));
    }
    humantime::parse_duration(text).map_err(|_| "write it like 90s, 30m, 24h, 7d, or in seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_may_be_in_seconds_as_in_a_job() {
        let secs = |text| span(text).unwrap().as_secs();
        assert_eq!([secs("1"), secs("90s"), secs("2h")], [1, 90, 7200]);
        for text in ["", "-1", "1.5", "soon"] {
            assert!(span(text).unwrap_err().contains("or in seconds"), "{text}");
        }
    }

    #[test]
    fn moments_are_taken_in_every_form_that_is_named() {
        let now: Zoned = "2026-11-29T05:00:00+01:00[+01:00]".parse().unwrap();
        for (text, want) in [
            ("12h", "2026-11-28T16:00:00Z"),
            ("1h 30m", "2026-11-29T02:30:00Z"),
            ("11:05", "2026-11-28T11:05:00Z"),
            ("04:00:01", "2026-11-28T04:00:01Z"),
            ("04:00:00", "2026-11-29T04:00:00Z"),
            ("3:59", "2026-11-29T03:59:00Z"),
            ("today", "2026-11-28T23:00:00Z"),
            ("yesterday", "2026-11-27T23:00:00Z"),
            ("2026-11-27", "2026-11-26T23:00:00Z"),
            ("2026-11-27 18:00", "2026-11-27T17:00:00Z"),
            ("2026-11-27T18:00:00Z", "2026-11-27T18:00:00Z"),
            ("2026-11-27T18:00:00+05:00", "2026-11-27T13:00:00Z"),
        ] {
            assert_eq!(parse(text, &now), Some(want.parse().unwrap()), "{text}");
        }
        for text in ["", "soon", "-1h", "2026-13-01", "tomorrow", "11", "24:00", "11:05:61x", "2026-13-01 11:05"] {
            assert_eq!(parse(text, &now), None, "{text}");
        }
    }
}
