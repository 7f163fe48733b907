//! Objects in a Cloud Storage bucket, through its JSON API. The official client for objects brings gRPC and 115,000
//! lines for five calls; these need none of it.

use async_trait::async_trait;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::Deserialize;

use rekindle_ports::world::{Objects, WorldError};

use crate::auth::{ConnectError, Service, Tokens};
use crate::http::Http;

const WHAT: &str = "Cloud Storage";
const GOOGLE: &str = "https://storage.googleapis.com";

/// What may stand in one path segment as it is; the slashes of object names may not.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The most names that one answer of the service holds.
const PAGE_MAX: usize = 1000;

/// Longest part of an answer that is kept as a reason, in characters.
const WHY_MAX: usize = 300;

/// [`Objects`] over a bucket.
#[derive(Debug, Clone)]
pub struct GcsObjects {
    http: Http,
    tokens: Tokens,
    base: String,
    bucket: String,
}

#[derive(Deserialize)]
struct Metadata {
    /// A 64-bit number, and so a text in JSON.
    size: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Names {
    #[serde(default)]
    items: Vec<Name>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

impl GcsObjects {
    /// Nothing is called yet.
    pub fn connect(bucket: &str, service: &Service) -> Result<Self, ConnectError> {
        Ok(Self {
            http: Http::new(service.timeout),
            tokens: Tokens::new(WHAT, service.access)?,
            base: service.endpoint.clone().unwrap_or_else(|| GOOGLE.to_owned()),
            bucket: utf8_percent_encode(bucket, SEGMENT).to_string(),
        })
    }

    fn object(&self, name: &str) -> String {
        format!("{}/storage/v1/b/{}/o/{}", self.base, self.bucket, utf8_percent_encode(name, SEGMENT))
    }

    fn upload(&self) -> String {
        format!("{}/upload/storage/v1/b/{}/o", self.base, self.bucket)
    }

    fn client(&self, what: &'static str) -> Result<&reqwest::Client, WorldError> {
        self.http.client().map_err(|why| WorldError { what, why })
    }

    async fn send(&self, what: &'static str, request: RequestBuilder) -> Result<Response, WorldError> {
        let headers = self.tokens.headers().await.map_err(|why| WorldError { what, why })?;
        request.headers(headers).send().await.map_err(|error| WorldError { what, why: causes(&error) })
    }

    /// Whether an object that may not be read is not there. Of what is not there, 404 is told only to those who may list the bucket;
    /// rights on a folder let its names be listed, and answer 403 here.
    // As IAM's conditions are documented: a list of objects is judged by its prefix, which a read has not.
    async fn is_unlisted(&self, name: &str) -> Result<bool, WorldError> {
        Ok(self.list(name, None, 1).await?.first().map(String::as_str) != Some(name))
    }

    async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        count: usize,
        token: Option<&str>,
    ) -> Result<Names, WorldError> {
        const WHAT: &str = "list objects";
        let count = count.to_string();
        let mut query = vec![("prefix", prefix), ("maxResults", &count), ("fields", "items/name,nextPageToken")];
        query.extend(after.map(|after| ("startOffset", after)));
        query.extend(token.map(|token| ("pageToken", token)));
        let url = format!("{}/storage/v1/b/{}/o", self.base, self.bucket);
        let answer = self.send(WHAT, self.client(WHAT)?.get(url).query(&query)).await?;
        json(WHAT, good(WHAT, answer).await?).await
    }
}

#[async_trait]
impl Objects for GcsObjects {
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError> {
        const WHAT: &str = "write an object";
        let request = self
            .client(WHAT)?
            .post(self.upload())
            .query(&[("uploadType", "media"), ("name", name)])
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .body(body);
        good(WHAT, self.send(WHAT, request).await?).await?;
        Ok(())
    }

    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError> {
        const WHAT: &str = "read an object";
        if len == 0 {
            return Ok(self.size(name).await?.map(|_| Bytes::new()));
        }
        let last = from.saturating_add(len - 1);
        let request = self
            .client(WHAT)?
            .get(self.object(name))
            .query(&[("alt", "media")])
            .header(header::RANGE, format!("bytes={from}-{last}"));
        let answer = self.send(WHAT, request).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::FORBIDDEN if self.is_unlisted(name).await? => return Ok(None),
            // It begins behind the end: there is nothing there (yet).
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(Some(Bytes::new())),
            _ => {}
        }
        let answer = good(WHAT, answer).await?;
        let whole = answer.status() != StatusCode::PARTIAL_CONTENT;
        let bytes = answer.bytes().await.map_err(|error| WorldError { what: WHAT, why: causes(&error) })?;
        // Some servers send all of it, whatever the range.
        let start = if whole { usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len()) } else { 0 };
        let end = start.saturating_add(usize::try_from(len).unwrap_or(usize::MAX)).min(bytes.len());
        Ok(Some(bytes.slice(start..end)))
    }

    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError> {
        const WHAT: &str = "look at an object";
        let request = self.client(WHAT)?.request(Method::GET, self.object(name)).query(&[("fields", "size")]);
        let answer = self.send(WHAT, request).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::FORBIDDEN if self.is_unlisted(name).await? => return Ok(None),
            _ => {}
        }
        let metadata: Metadata = json(WHAT, good(WHAT, answer).await?).await?;
        let size = metadata.size.parse();
        size.map(Some).map_err(|_| WorldError { what: WHAT, why: format!("its size is {:?}", metadata.size) })
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError> {
        let mut names: Vec<String> = Vec::new();
        let mut token: Option<String> = None;
        while names.len() < limit {
            // One more than wanted: the offset is inclusive, so `after` itself comes too.
            let count = (limit - names.len()).saturating_add(1).min(PAGE_MAX);
            let page = self.page(prefix, after, count, token.as_deref()).await?;
            names.extend(page.items.into_iter().map(|item| item.name).filter(|name| Some(name.as_str()) != after));
            match page.next_page_token {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        names.truncate(limit);
        Ok(names)
    }

    /// The address of a resumable upload: whoever has it may write this one object, within a week.
    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        const WHAT: &str = "begin an upload";
        let request = self
            .client(WHAT)?
            .post(self.upload())
            .query(&[("uploadType", "resumable"), ("name", name)])
            .header("x-upload-content-type", "application/octet-stream")
            .header(header::CONTENT_LENGTH, 0);
        let answer = good(WHAT, self.send(WHAT, request).await?).await?;
        let address = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let missing = || WorldError { what: WHAT, why: "the answer names no address".into() };
        address.map(str::to_owned).ok_or_else(missing)
    }
}

async fn good(what: &'static str, answer: Response) -> Result<Response, WorldError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let text: String = answer.text().await.unwrap_or_default().chars().take(WHY_MAX).collect();
    Err(WorldError { what, why: format!("HTTP {status}: {text}") })
}

async fn json<T: serde::de::DeserializeOwned>(what: &'static str, answer: Response) -> Result<T, WorldError> {
    answer.json().await.map_err(|error| WorldError { what, why: causes(&error) })
}

/// The error with what lies under it; the outermost line alone says only "error sending request".
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests;
