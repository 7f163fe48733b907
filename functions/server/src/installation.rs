//! The installation document: made once, by whichever process starts first, and read by all others.

use rekindle_core::ids::InstallationId;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, Store, StoreError};
use rekindle_ports::world::{Clock, Ids};

/// Lost races before the start fails; a second one can only be a store that forgets.
const RACES_MAX: u32 = 5;

/// Reads it, or makes it. Processes that start together agree, since only one write takes place.
pub async fn load(store: &Store, clock: &dyn Clock, ids: &dyn Ids) -> Result<Installation, StoreError> {
    for _ in 0..RACES_MAX {
        if let Some(at) = store.read::<Installation>(&Kind::Installation).await? {
            return Ok(at.value);
        }
        let made = Installation {
            id: new_id(ids)?,
            secret: format!("{:032x}{:032x}", ids.random(), ids.random()),
            born_at: clock.now(),
        };
        match store.write(&Kind::Installation, &made, Precondition::Absent).await {
            Ok(_) => {
                // An alert waits for this line: on a database that is empty by mistake nothing else says that TPUs of the former one are left alone.
                tracing::warn!(installation = %made.id, "a new installation was made in this store");
                return Ok(made);
            }
            Err(StoreError::Conflict(_) | StoreError::Unclear(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Unavailable("the installation document can neither be read nor made".into()))
}

fn new_id(ids: &dyn Ids) -> Result<InstallationId, StoreError> {
    const CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut bits = ids.random();
    let mut draw = |from: &[u8]| {
        let index = (bits % from.len() as u128) as usize;
        bits /= from.len() as u128;
        char::from(from[index])
    };
    let mut text = String::from(draw(&CHARACTERS[..26]));
    while text.len() < InstallationId::LEN {
        text.push(draw(CHARACTERS));
    }
    InstallationId::parse(&text).map_err(|e| StoreError::Refused(e.to_string()))
}
