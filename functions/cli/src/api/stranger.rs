//! What answers at the server's address in its place: a proxy, or the login of a network. And what tells it from a server of ours.

use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::{Body as Sent, Method, Response, header};

use rekindle_wire::v1::{VERSION_HEADER, VersionView};

use super::{Api, Body, CALL_TIMEOUT, excerpt};
use crate::fault::{Fault, Result};

/// Where a server says which version it is.
const VERSION_PATH: &str = "/version";
/// Bytes of an answer to [`VERSION_PATH`]: far more than any of ours has.
const VERSION_MAX: usize = 64 << 10;
/// Bytes of an answer that are read for what it is told to begin with.
const BEGIN_MAX: usize = 4 << 10;
/// What begins later than that is told without its words.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(3);

impl Api {
    /// The answer, if it comes from a server of ours.
    ///
    /// Each answer of one says so in a header. Servers of earlier versions do not: what is no web page is taken from one whose
    /// [`VERSION_PATH`] answers as ours do; it is asked once.
    pub(super) async fn ours(&self, path: &str, response: Response) -> Result<Response> {
        if response.headers().contains_key(VERSION_HEADER) {
            return Ok(response);
        }
        if is_page(&response) {
            return Err(self.stranger(path, response).await);
        }
        if path == VERSION_PATH {
            let (status, headers) = (response.status(), response.headers().clone());
            let bytes = begin(response, VERSION_MAX, CALL_TIMEOUT).await;
            if !is_version(&bytes) {
                return Err(self.no_rekindle(path, false, &bytes));
            }
            self.is_earlier.store(true, Ordering::Relaxed);
            let mut again = axum::http::Response::new(Sent::from(bytes));
            *again.status_mut() = status;
            *again.headers_mut() = headers;
            return Ok(again.into());
        }
        if self.is_of_earlier_version().await { Ok(response) } else { Err(self.stranger(path, response).await) }
    }

    /// Whether a server of ours from before the header is there.
    async fn is_of_earlier_version(&self) -> bool {
        if self.is_earlier.load(Ordering::Relaxed) {
            return true;
        }
        // What answered just now took the token; a fresh one is not needed.
        let request = self.request(Method::GET, VERSION_PATH, &[], &Body::None, Some(CALL_TIMEOUT), false).await;
        let Ok(request) = request else { return false };
        let Ok(response) = request.send().await else { return false };
        let is_earlier =
            response.status().is_success() && is_version(&begin(response, VERSION_MAX, CALL_TIMEOUT).await);
        self.is_earlier.store(is_earlier, Ordering::Relaxed);
        is_earlier
    }

    async fn stranger(&self, path: &str, response: Response) -> Fault {
        let is_page = is_page(&response);
        self.no_rekindle(path, is_page, &begin(response, BEGIN_MAX, BEGIN_TIMEOUT).await)
    }

    /// It may go away.
    fn no_rekindle(&self, path: &str, is_page: bool, begin: &[u8]) -> Fault {
        let (what, next) = if is_page {
            ("answered a web page", "log in where that page says, or check the address; `rekindle doctor` tells more")
        } else {
            (
                "is not answered by Rekindle",
                "check the address, and what stands before it; `rekindle doctor` tells more",
            )
        };
        Fault::unexpected(format!("{}{path} {what}", self.url()))
            .because("what answers there is no Rekindle: a proxy, or the login of a network")
            .because(format!("it begins: {}", excerpt(&String::from_utf8_lossy(begin))))
            .next(next)
    }
}

/// The beginning of an answer: so many bytes at most, and what is there in time. What breaks off is as long as it came.
pub(super) async fn begin(mut response: Response, max: usize, timeout: Duration) -> Vec<u8> {
    let mut begin = Vec::new();
    let read = async {
        while begin.len() < max
            && let Ok(Some(piece)) = response.chunk().await
        {
            let room = max - begin.len();
            begin.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    };
    // A silent one has said what it has said.
    tokio::time::timeout(timeout, read).await.ok();
    begin
}

fn is_version(bytes: &[u8]) -> bool {
    serde_json::from_slice::<VersionView>(bytes).is_ok()
}

/// True of an answer that says that it is HTML.
pub(super) fn is_page(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_begins_an_answer_without_end_is_read_with_a_bound_in_bytes_and_in_time() {
        use futures::StreamExt as _;

        let answer = |stream| Response::from(axum::http::Response::new(Sent::wrap_stream(stream)));
        let piece = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"blocked\n"));
        let endless = futures::stream::repeat_with(piece).boxed();
        let long = Duration::from_mins(1);
        assert_eq!(begin(answer(endless), 20, long).await, b"blocked\nblocked\nbloc");
        let stalled = futures::stream::iter([piece()]).chain(futures::stream::pending()).boxed();
        assert_eq!(begin(answer(stalled), 20, Duration::from_millis(50)).await, b"blocked\n");
        let torn = futures::stream::iter([piece(), Err(std::io::Error::other("torn"))]).boxed();
        assert_eq!(begin(answer(torn), 20, long).await, b"blocked\n");
    }
}
