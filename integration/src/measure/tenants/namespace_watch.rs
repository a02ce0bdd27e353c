//! A watch of namespaces, with the time at which each event came.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::Response;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::measure::raw::RawApi;
use crate::probe::{self, Probe};

/// Time limit until a watch is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit until an event comes. The namespace controller of Kubernetes leaves a deleted namespace
/// alone for five seconds. A client that reads nothing for a minute gives up.
const EVENT_TIMEOUT: Duration = Duration::from_secs(45);
/// The code of the event with which the gateway ends a watch whose caller sees other objects now (API
/// concepts, "410 Gone responses").
const EXPIRED: u16 = 410;

/// Something that a watch showed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchEvent {
    /// An event of this type about a namespace.
    Namespace { kind: String, name: String },
    /// The watch ended, with an event of the code 410 or without.
    Ended,
    /// Another event.
    Other(String),
}

/// An open watch, which a task of its own reads.
#[derive(Debug)]
pub(super) struct NamespaceWatch {
    events: UnboundedReceiver<(Instant, WatchEvent)>,
    reader: JoinHandle<()>,
}

impl NamespaceWatch {
    /// Opens a watch, and waits until it has shown this namespace, which exists already.
    pub(super) async fn open(api: &RawApi, path: &str, namespace: &str) -> Result<Self> {
        // The gateway knows a new member after a moment.
        let response = probe::until("a watch of namespaces", OPEN_TIMEOUT, || async {
            Ok(match api.open(path).await {
                Ok(response) => Probe::Ready(response),
                Err(error) => Probe::NotYet(format!("{error:#}")),
            })
        })
        .await?;
        let (sender, events) = unbounded_channel();
        let mut watch = Self { events, reader: tokio::spawn(read(response, sender)) };
        watch.until("ADDED", namespace).await?;
        Ok(watch)
    }

    /// Waits for an event of this type about a namespace, and returns when it came.
    pub(super) async fn until(&mut self, kind: &str, name: &str) -> Result<Instant> {
        let wanted = WatchEvent::Namespace { kind: kind.to_owned(), name: name.to_owned() };
        self.until_event(&wanted).await
    }

    /// Waits for the end of the watch, and returns when it came.
    pub(super) async fn until_ended(&mut self) -> Result<Instant> {
        self.until_event(&WatchEvent::Ended).await
    }

    async fn until_event(&mut self, wanted: &WatchEvent) -> Result<Instant> {
        let came = tokio::time::timeout(EVENT_TIMEOUT, self.next_match(wanted)).await;
        came.with_context(|| format!("a watch showed no {wanted:?} in {EVENT_TIMEOUT:?}"))?
    }

    async fn next_match(&mut self, wanted: &WatchEvent) -> Result<Instant> {
        loop {
            let (at, event) = self.events.recv().await.context("the watch has ended before")?;
            if event == *wanted {
                return Ok(at);
            }
            if !matches!(event, WatchEvent::Namespace { .. }) {
                bail!("a watch showed {event:?} instead of {wanted:?}");
            }
        }
    }
}

impl Drop for NamespaceWatch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads the response until its end, or until nobody waits for events.
async fn read(mut response: Response, events: UnboundedSender<(Instant, WatchEvent)>) {
    let mut unread = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let at = Instant::now();
        unread.extend_from_slice(&chunk);
        while let Some(end) = unread.iter().position(|&byte| byte == b'\n') {
            let event = parse(&unread[..end]);
            unread.drain(..=end);
            if events.send((at, event)).is_err() {
                return;
            }
        }
    }
    // A watch that a suspension ends has no last event, and its response is incomplete.
    let _ = events.send((Instant::now(), WatchEvent::Ended));
}

/// Parses a line of a watch.
fn parse(line: &[u8]) -> WatchEvent {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let object = &event["object"];
    match (event["type"].as_str(), object["metadata"]["name"].as_str()) {
        (Some("ERROR"), _) if object["code"] == EXPIRED => WatchEvent::Ended,
        (Some(kind), Some(name)) => {
            WatchEvent::Namespace { kind: kind.to_owned(), name: name.to_owned() }
        }
        _ => WatchEvent::Other(String::from_utf8_lossy(line).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_code_410_ends_a_watch() {
        let added = r#"{"type":"ADDED","object":{"kind":"Namespace","metadata":{"name":"a"}}}"#;
        let name = "a".to_owned();
        assert_eq!(
            parse(added.as_bytes()),
            WatchEvent::Namespace { kind: "ADDED".to_owned(), name }
        );
        for (code, is_end) in [(410, true), (503, false)] {
            let error = format!(
                r#"{{"type":"ERROR","object":{{"kind":"Status","metadata":{{}},"code":{code}}}}}"#
            );
            assert_eq!(parse(error.as_bytes()) == WatchEvent::Ended, is_end, "{error}");
        }
        assert_eq!(parse(b"no event"), WatchEvent::Other("no event".to_owned()));
    }
}
