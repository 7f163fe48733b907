//! `account`: chip hours and money, and what they went into.

use rekindle_core::account::{Dimension, hours_text};
use rekindle_wire::account::{AccountRow, AccountView};

use super::Context;
use crate::api::typed;
use crate::args::{Account, By};
use crate::fault::{Fault, Result};
use crate::human;
use crate::table::{Column, Table, number, text};

const PATH: &str = "/v1/account";

/// Shows the account.
pub(crate) async fn run(context: &Context, options: &Account) -> Result<()> {
    let by: Vec<&str> = options.by.iter().map(|by| dimension(*by).as_str()).collect();
    let query = [
        ("by", Some(by.join(","))),
        ("owner", options.owner.clone()),
        ("weeks", Some(options.weeks.to_string())),
        ("format", options.csv.then(|| "csv".to_owned())),
    ];
    if options.csv {
        // Of the options that every command takes clap does not see a conflict where they stand before the command.
        if context.printer.is_json {
            return Err(Fault::input("--csv and --json are two forms of one answer").next("leave one of them out"));
        }
        return context.api.get_text(PATH, &query, |piece| context.printer.bytes(piece)).await;
    }
    let value = context.api.get(PATH, &query).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let account: AccountView = typed(value)?;
    let weeks = human::count(u64::from(options.weeks), "week");
    if account.rows.is_empty() {
        context.printer.talk(&format!("no chip was paid for in the last {weeks}; --weeks N looks further back"));
        return Ok(());
    }
    context.printer.data(&table(&account).render(context.printer.width()))?;
    context.printer.talk(&format!("{} in the last {weeks}, since {}", total(&account.total), account.since));
    let counted: u64 = account.rows.iter().map(|row| row.jobs).sum();
    if account.by.contains(&Dimension::Tag) && counted > account.total.jobs {
        context.printer.talk("a job with several tags is in the row of each of them; the total has it once");
    }
    Ok(())
}

const fn dimension(by: By) -> Dimension {
    match by {
        By::Job => Dimension::Job,
        By::Owner => Dimension::Owner,
        By::Tag => Dimension::Tag,
        By::Week => Dimension::Week,
    }
}

fn title(dimension: Dimension) -> Column {
    match dimension {
        Dimension::Week => text("WEEK OF", 0),
        Dimension::Owner => text("OWNER", 0),
        Dimension::Tag => text("TAG", 0),
        Dimension::Job => text("JOB", 0),
    }
}

fn table(account: &AccountView) -> Table {
    let names = account.by.iter().map(|dimension| title(*dimension));
    // What the money went into but useful work is what can be mended; useful work is the rest of it, and the line below tells the total.
    let amounts = [
        number("JOBS", 7),
        number("CHIP HOURS", 5),
        number("USEFUL", 6),
        number("REPEATED", 3),
        number("WAITING", 2),
        number("IDLE", 1),
        number("ORPHAN", 4),
        number("COST", 0),
        number("WASTED", 0),
    ];
    let columns: Vec<Column> = names.chain(amounts).collect();
    let mut table = Table::new(&columns);
    for row in &account.rows {
        let names = account.by.iter().map(|dimension| name(row, *dimension));
        let hours = row.chip_hours.columns().map(|(_, hours)| hours_text(hours));
        let jobs = [row.jobs.to_string()];
        let money = [human::usd(row.usd.total), wasted(row)];
        table.row(names.chain(jobs).chain(hours).chain(money).collect());
    }
    table
}

fn name(row: &AccountRow, dimension: Dimension) -> String {
    let name = row.name(dimension);
    if name.is_empty() { "-".to_owned() } else { human::tame(&name) }
}

/// The share of the chip hours that brought no new step.
fn wasted(row: &AccountRow) -> String {
    let hours = &row.chip_hours;
    if hours.total <= 0.0 {
        return "-".to_owned();
    }
    let percent = 100.0 * (hours.total - hours.useful) / hours.total;
    // Time is counted in whole seconds: of a program that ran for less than one, nothing looks useful.
    let is_sure = hours.useful <= 0.0 && hours.total >= 1.0;
    if percent >= 99.5 && !is_sure { ">99%".to_owned() } else { format!("{percent:.0}%") }
}

fn total(row: &AccountRow) -> String {
    let jobs = human::count(row.jobs, "job");
    let (hours, usd) = (row.chip_hours.total, human::usd(row.usd.total));
    let hours = hours_text(hours);
    format!("{usd} for {hours} chip hours of {jobs}, {} of them wasted,", wasted(row))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_it_is_narrow_what_was_wasted_stays() {
        let hours =
            json!({"total": 1234.5, "useful": 1111.0, "repeated": 20.5, "waiting": 60.0, "idle": 41.0, "orphan": 2.0});
        let row =
            json!({"owner": "research", "tag": "ablation-of-warmup", "jobs": 12, "chip_hours": hours, "usd": hours});
        let view = json!({
            "by": ["owner", "tag"], "since": "2026-09-07", "through": "2026-11-28T12:00:00Z", "rows": [row], "total": row,
        });
        let table = table(&serde_json::from_value(view).unwrap());
        let head =
            |width| table.render(Some(width)).lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(head(100), "OWNER TAG CHIP HOURS REPEATED WAITING IDLE ORPHAN COST WASTED");
        assert_eq!(head(80), "OWNER TAG REPEATED WAITING IDLE ORPHAN COST WASTED");
        assert_eq!(head(64), "OWNER TAG WAITING IDLE COST WASTED");
        assert_eq!(head(54), "OWNER TAG IDLE COST WASTED");
    }
}
