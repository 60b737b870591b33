//! What a transition tells the feeds of those whom it concerns.

use serde_json::json;

use crate::domain::request_event::EventKind;
use crate::stores::master::feed::NewEvent;
use crate::stores::master::requests::Sealed;

/// The feed events of a request's or order's transition: for both parties, once there are two. A broadcast
/// that nobody has accepted tells its author alone; others find it in their lists.
#[must_use]
pub fn of_transition(sealed: &Sealed) -> Vec<NewEvent> {
    let request = &sealed.request;
    let payload = json!({
        "status": request.status,
        "version": request.version,
        "event_seq": sealed.event.seq,
    });
    let thing = if request.id.is_order() {
        "order"
    } else {
        "request"
    };
    let kind = format!("{thing}.{}", sealed.event.kind);
    let hidden = sealed.event.kind == EventKind::AcceptFailed && request.broadcast;
    let target = request.target.filter(|_| !hidden);
    std::iter::once(request.author)
        .chain(target)
        .map(|broker| NewEvent {
            broker,
            kind: kind.clone(),
            subject: request.id.to_string(),
            payload: payload.clone(),
        })
        .collect()
}
