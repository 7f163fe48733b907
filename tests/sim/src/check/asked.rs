//! Reserved capacity is asked for by a queued resource that names the job's reservation: nothing else is of it.

use rekindle_core::job::Via;
use rekindle_core::spec::CapacityKind;
use rekindle_ports::tpu::CreateRequest;

use super::Broken;
use crate::people::RESERVATION;

/// A create was accepted.
pub(super) fn create(request: &CreateRequest) -> Broken {
    let is_named = request.via == Via::QueuedResource && request.reservation.as_deref() == Some(RESERVATION);
    (request.placement.capacity == CapacityKind::Reserved && !is_named).then(|| {
        let text =
            format!("{} asks for reserved capacity by {:?} of {:?}", request.name, request.via, request.reservation);
        ("asked", text)
    })
}
