//! What a run may try, and the life of a request as a table of its own.

use settlenet::domain::request::RequestStatus;
use settlenet::domain::request_event::EventKind;

#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    Create,
    /// Whatever is next in the request's life.
    Carry,
    Accept,
    Reject,
    Cancel,
    Resend,
    Sent,
    Confirm,
    ConfirmLess,
    Dispute,
    Expire,
    Work,
    Stale,
    Compensate,
    Retry,
    Jump,
    Restart,
    OpenOrClose,
}

impl Move {
    /// Those that carry requests on are the more likely ones.
    pub(super) const DRAW: [(Self, u32); 18] = [
        (Self::Create, 12),
        (Self::Carry, 50),
        (Self::Accept, 4),
        (Self::Reject, 1),
        (Self::Cancel, 6),
        (Self::Resend, 2),
        (Self::Sent, 3),
        (Self::Confirm, 4),
        (Self::ConfirmLess, 6),
        (Self::Dispute, 1),
        (Self::Expire, 2),
        (Self::Work, 8),
        (Self::Stale, 5),
        (Self::Compensate, 3),
        (Self::Retry, 2),
        (Self::Jump, 6),
        (Self::Restart, 3),
        (Self::OpenOrClose, 4),
    ];
}

/// What carries a request on.
pub(super) fn next(status: RequestStatus) -> Move {
    match status {
        RequestStatus::Pending => Move::Accept,
        RequestStatus::Accepted => Move::Sent,
        RequestStatus::Sent => Move::Confirm,
        RequestStatus::Accepting => Move::Work,
        RequestStatus::Completed
        | RequestStatus::Rejected
        | RequestStatus::Cancelled
        | RequestStatus::Expired
        | RequestStatus::Disputed => Move::Create,
    }
}

/// Status and whether a saga owns the request, after an event; `None` where it may not happen. What
/// is `at_once` confirmed by being executed begins its saga so.
pub(super) fn after(
    before: Option<(RequestStatus, bool)>,
    event: EventKind,
    at_once: bool,
) -> Option<(RequestStatus, bool)> {
    use EventKind as E;
    use RequestStatus as S;
    let to = |status| Some((status, false));
    match (before, event) {
        (None, E::Created) | (Some((S::Accepting, true)), E::AcceptFailed) => to(S::Pending),
        (Some((S::Pending, false)), E::Accepting) => Some((S::Accepting, true)),
        (Some((S::Pending, false) | (S::Accepting, true)), E::Accepted)
        | (Some((S::Sent, false)), E::ResendAgreed) => to(S::Accepted),
        (Some((S::Pending, false)), E::Rejected) => to(S::Rejected),
        (Some((S::Accepted | S::Sent, false)), E::CancelProposed)
        | (Some((S::Sent, false)), E::ResendProposed | E::ReceivedClaimed)
        | (Some((S::Pending | S::Accepted, false)), E::PickupRenewed)
        | (Some((S::Accepted, false)), E::PickupRefused) => before,
        (Some((S::Pending | S::Accepted | S::Sent, false)), E::Cancelled) => to(S::Cancelled),
        (Some((S::Accepted, false)), E::Sent) => Some((S::Sent, at_once)),
        (Some((S::Sent, true)), E::ConfirmFailed) => to(S::Sent),
        (Some((S::Sent, false)), E::Confirmed) => Some((S::Sent, true)),
        (Some((S::Sent, true)), E::Completed) => to(S::Completed),
        (Some((S::Pending | S::Accepted, false)), E::Expired) => to(S::Expired),
        (Some((S::Sent, false)), E::Disputed) => to(S::Disputed),
        _ => None,
    }
}
