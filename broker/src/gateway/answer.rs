//! Answers that the gateway has a part in: see [`super::own`] for which.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tenant_shared::Code;

use super::{
    cut_off,
    exchange::{Exchange, Payload},
    own::{self, Asked, Form},
    request::Outgoing,
    review,
};
use crate::problem::Failure;

/// How long a review may take to come.
const REVIEW_TIME: Duration = Duration::from_secs(30);

/// The list of the one namespace that is the person's. Where the API server refuses that, its answer.
///
/// # Errors
/// The API server does not answer, or not in its own words.
pub(super) async fn list(
    exchange: &mut Exchange<'_>,
    outgoing: &Outgoing,
    form: Form,
    own: &str,
) -> Result<Response<Bytes>, Failure> {
    let mut answers = Vec::with_capacity(2);
    for (path, form) in own::paths(own).into_iter().zip([Form::Plain, form]) {
        let mut headers = outgoing.headers.clone();
        own::readable(&mut headers, form);
        let nothing = Payload::Whole(Bytes::new());
        let response = exchange.send(&Method::GET, &path, &headers, nothing).await?;
        let answer = exchange.read(response, own::MOST_BYTES).await?;
        if answer.status() != StatusCode::OK {
            return Ok(answer);
        }
        answers.push(answer);
    }
    let [versioned, namespace] = &answers[..] else { return Err(not_understood()) };
    let list = own::list(form, versioned.body(), namespace.body()).ok_or_else(not_understood)?;
    let mut answer = Response::new(list);
    *answer.headers_mut() = namespace.headers().clone();
    answer.headers_mut().remove(header::ETAG);
    Ok(answer)
}

/// A review of what the person may do, or who they are.
///
/// # Errors
/// It is too long; the API server does not answer, or not in its own words.
pub(super) async fn reviewed(
    exchange: &mut Exchange<'_>,
    outgoing: &Outgoing,
    asked: &Asked,
    path: &str,
    body: Incoming,
    own: &str,
) -> Result<Response<Bytes>, Failure> {
    let read = Limited::new(exchange.passage.upload(body), own::MOST_REVIEW_BYTES).collect();
    let read = tokio::select! {
        read = tokio::time::timeout(REVIEW_TIME, read) => read,
        why = exchange.passage.cut() => return Err(cut_off(why)),
    };
    let Ok(Ok(asked_for)) = read else {
        let text = "the review broke off, took half a minute, or is longer than 64 KiB";
        return Err(Failure::new(Code::InvalidRequest, text));
    };
    let asked_for = asked_for.to_bytes();
    let mut headers = outgoing.headers.clone();
    own::readable(&mut headers, Form::Plain);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(asked_for.len()));
    let sent = Payload::Whole(asked_for.clone());
    let response = exchange.send(&Method::POST, path, &headers, sent).await?;
    let answer = exchange.read(response, own::MOST_BYTES).await?;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let caller = &exchange.visitor.caller;
    let changed = match asked {
        Asked::SelfReview => {
            own::with_person(answer.body(), &caller.user_id().to_string(), caller.email())
        }
        _ if review::is_about_list(&asked_for, own) => own::allowed(answer.body()),
        _ => return Ok(answer),
    };
    let changed = changed.ok_or_else(not_understood)?;
    Ok(answer.map(|_| changed))
}

fn not_understood() -> Failure {
    Failure::new(Code::ClusterUnavailable, "the API server answers in a way that is not its own")
}
