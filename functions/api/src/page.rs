//! Pages: sizes and tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use rekindle_engine::tokens;
use rekindle_ports::docs::Cursor;
use rekindle_web::{Problem, faulty_query};

use crate::Api;

/// Entries of a page when the caller names no size.
const SIZE: usize = 50;
/// Most entries of a page.
// A job is a few kB as JSON; where they are larger the store's pages hold fewer.
const SIZE_MAX: usize = 500;

/// The size of a page: 1 to 500, 50 by default. 400 for none; more than the most is the most.
pub(crate) fn size(asked: Option<usize>) -> Result<usize, Problem> {
    match asked {
        Some(0) => Err(faulty_query("page_size", &format!("must be 1 to {SIZE_MAX}"))),
        asked => Ok(asked.unwrap_or(SIZE).min(SIZE_MAX)),
    }
}

/// A cursor as text for the caller, opaque to them: it may name a job that they are not to know of. `list` says which list it is
/// of, with its filter and who asks.
pub(crate) fn token(api: &Api, list: &str, cursor: &Cursor) -> Option<String> {
    let json = serde_json::to_vec(cursor).ok()?;
    tokens::seal(&api.engine.installation.secret, list, &json).map(|sealed| URL_SAFE_NO_PAD.encode(sealed))
}

/// Reads a token back. 400 when it is none of ours, or of another list.
pub(crate) fn cursor(api: &Api, list: &str, token: Option<&str>) -> Result<Option<Cursor>, Problem> {
    let Some(token) = token.filter(|t| !t.is_empty()) else { return Ok(None) };
    let sealed = URL_SAFE_NO_PAD.decode(token).ok();
    let json = sealed.and_then(|sealed| tokens::unseal(&api.engine.installation.secret, list, &sealed));
    let read = json.and_then(|json| serde_json::from_slice(&json).ok());
    read.map(Some).ok_or_else(|| faulty_query("page_token", "was not made here for this list"))
}
