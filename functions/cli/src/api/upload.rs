//! PUT of a file to an upload address: of our own server in the local mode, of Cloud Storage (a resumable session)
//! else. The address is the right to write; no token goes with it.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use indicatif::ProgressBar;
use reqwest::{StatusCode, header};

use super::Api;
use crate::fault::{Fault, Result};

/// Read and handed on at once.
const PIECE: usize = 256 * 1024;

/// How far an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uploaded {
    All,
    /// The store has this many bytes from the beginning on.
    UpTo(u64),
}

/// Why an upload did not end.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    /// Whether trying again may help.
    pub(crate) may_pass: bool,
}

impl Api {
    /// Sends the file from a byte on.
    pub(crate) async fn upload(
        &self,
        address: &str,
        file: &File,
        from: u64,
        size: u64,
        bar: &ProgressBar,
    ) -> std::result::Result<(), Failed> {
        let body = body(file, from, bar).map_err(|fault| Failed { fault, may_pass: false })?;
        let mut request = self.http.put(address).header(header::CONTENT_LENGTH, size - from).body(body);
        if from > 0 {
            request = request.header(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", size - 1));
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                let fault = Fault::unexpected("the upload broke off").caused_by(&super::bare(&error));
                return Err(Failed {
                    fault: fault.next("check the network, and run the command again"),
                    may_pass: true,
                });
            }
        };
        let status = response.status();
        if status.is_success() && super::is_page(&response) {
            let fault = Fault::unexpected("the upload was answered by a web page")
                .because("what answers there is no object store: the login of a network, or a proxy");
            return Err(Failed {
                fault: fault.next("log in where that page says, and run the command again"),
                may_pass: false,
            });
        }
        if status.is_success() {
            return Ok(());
        }
        let text = response.text().await.unwrap_or_default();
        let fault = Fault::unexpected(format!("the upload was answered {status}")).because(super::excerpt(&text));
        let is_partial = status == StatusCode::PERMANENT_REDIRECT;
        let may_pass = is_partial
            || status.is_server_error()
            || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        Err(Failed {
            fault: fault.next("run the command again; an address for an upload holds for a while only"),
            may_pass,
        })
    }

    /// Asks how far an upload is; a store that cannot tell has nothing.
    pub(crate) async fn uploaded(&self, address: &str, size: u64) -> Uploaded {
        let request = self
            .http
            .put(address)
            .header(header::CONTENT_LENGTH, 0)
            .header(header::CONTENT_RANGE, format!("bytes */{size}"));
        let Ok(response) = request.send().await else { return Uploaded::UpTo(0) };
        if response.status().is_success() && !super::is_page(&response) {
            return Uploaded::All;
        }
        let range = response.headers().get(header::RANGE).and_then(|value| value.to_str().ok());
        let last = range.and_then(|range| range.strip_prefix("bytes=0-")?.parse::<u64>().ok());
        Uploaded::UpTo(last.map_or(0, |last| last + 1).min(size.saturating_sub(1)))
    }
}

fn body(file: &File, from: u64, bar: &ProgressBar) -> Result<reqwest::Body> {
    let cannot = |error: io::Error| {
        Fault::unexpected("cannot read the bundle")
            .caused_by(&error)
            .next("run the command again; it packs the folder anew")
    };
    let mut file = file.try_clone().map_err(cannot)?;
    // Of what has no places, such as a pipe, nothing is sent.
    file.seek(SeekFrom::Start(from)).map_err(cannot)?;
    let stream = futures::stream::try_unfold((Arc::new(file), from, bar.clone()), |(file, at, bar)| async move {
        // From its own place on: a read of an upload that broke off may be under way, and files that were cloned share a position.
        let reader = Arc::clone(&file);
        let read = move || {
            let mut piece = vec![0; PIECE];
            let read = reader.read_at(&mut piece, at)?;
            piece.truncate(read);
            Ok::<_, io::Error>(piece)
        };
        let piece = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        if piece.is_empty() {
            return Ok::<_, io::Error>(None);
        }
        let read = piece.len() as u64;
        bar.inc(read);
        Ok(Some((bytes::Bytes::from(piece), (file, at + read, bar))))
    });
    Ok(reqwest::Body::wrap_stream(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Origin, Server};

    #[tokio::test]
    async fn an_upload_that_cannot_be_says_why_and_what_to_do() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let refusal = (StatusCode::FORBIDDEN, "<Error>the signature has expired</Error>");
        let page = axum::routing::put(async || axum::response::Html("<html>log in</html>"));
        let router = axum::Router::new().route("/page", page).fallback(async move || refusal);
        let page = format!("{url}/page");
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let api = Api::new(Server { url: url.clone(), origin: Origin::Given, token_command: None }, None).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"bytes").unwrap();
        let (pipe, _end) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        let log_in = "log in where that page says, and run the command again";
        let holds = "run the command again; an address for an upload holds for a while only";
        let try_again = "check the network, and run the command again";
        for (address, file, causes, next, may_pass) in [
            (
                url.as_str(),
                &pipe,
                ["cannot read the bundle", "Illegal seek"],
                "run the command again; it packs the folder anew",
                false,
            ),
            (&page, &file, ["the upload was answered by a web page", "is no object store"], log_in, false),
            (&url, &file, ["the upload was answered 403", "signature has expired"], holds, false),
            ("http://127.0.0.1:1", &file, ["the upload broke off", "Connection refused"], try_again, true),
        ] {
            let failed = api.upload(address, file, 0, 5, &ProgressBar::hidden()).await.unwrap_err();
            let text = failed.fault.text();
            assert!(causes.iter().all(|cause| text.contains(cause)) && text.contains(next), "{text}");
            assert_eq!(failed.may_pass, may_pass, "{text}");
        }
        server.abort();
    }
}
