//! Reservations: chips of a zone that were bought beforehand, by name.

use serde_json::{Map, Value};

use crate::model::{Node, RpcStatus, World, short_name};

/// Stands for whichever reservation has room.
pub(super) const ANY: &str = "-";

/// Why a reservation gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    /// The zone has none of that name.
    NotFound,
    /// Not so many of its chips are free.
    UsedUp,
}

impl World {
    /// The reservation that has room for so many more chips, of this name or full name, or of [`ANY`]. `None`: the zone's are not counted.
    pub(super) fn reserve(&self, zone: &str, asked: &str, chips: u64) -> Result<Option<String>, Shortage> {
        let known = self.zone(zone).reservations;
        if known.is_empty() {
            return Ok(None);
        }
        let asked = short_name(asked);
        let mut fitting = known.iter().filter(|(name, _)| asked == ANY || *name == asked).peekable();
        if fitting.peek().is_none() {
            return Err(Shortage::NotFound);
        }
        let found = fitting.find(|(name, size)| self.held_of(zone, name) + chips <= **size);
        found.map(|(name, _)| Some(name.clone())).ok_or(Shortage::UsedUp)
    }

    fn held_of(&self, zone: &str, reservation: &str) -> u64 {
        let takes = |node: &&Node| {
            node.location.zone == zone && node.reservation.as_deref() == Some(reservation) && node.state.holds_chips()
        };
        self.nodes.values().filter(takes).map(|node| u64::from(node.catalogue().chips)).sum()
    }
}

/// The reservation that the body of a queued resource asks for.
pub(super) fn of_queued(body: &Map<String, Value>) -> Option<&str> {
    let name = body.get("reservationName").and_then(Value::as_str).filter(|name| !name.is_empty());
    // So the alpha version asks for any of them.
    let is_reserved = body.get("guaranteed").is_some_and(|tier| tier["reserved"] == Value::Bool(true));
    name.or(is_reserved.then_some(ANY))
}

/// The reservation is used up, as an operation or a FAILED queued resource says it.
pub(super) fn used_up(event_id: &str) -> RpcStatus {
    let text = "Insufficient reserved capacity. Contact customer support to increase your reservation.";
    RpcStatus { code: 9, message: format!("{text} {event_id}") }
}
