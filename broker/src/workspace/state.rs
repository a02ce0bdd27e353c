//! What may follow what in the life of a workspace. Pure.
//!
//! ```text
//!            init                    all objects exist
//!   (none) ───────▶ provisioning ──────────────────────▶ provisioned
//!                    │        ▲                           │      ▲
//!      foreign object│        │init again          suspend│      │all objects exist
//!                    ▼        │                           ▼      │
//!                   failed ───┘                      suspending  │
//!                    ▲ namespace lost (from provisioned)  │      │
//!                                             rights gone ▼      │
//!                                                     suspended ─┴▶ resuming
//! ```
//! Suspend is possible from every state. A suspended workspace is suspending again if rights are found in it
//! that cannot be taken away at once.

use tenant_shared::WorkspaceStatus as Status;

/// Something that happens to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Its owner asks for it again after a failure.
    Retry,
    /// All of its objects exist.
    ObjectsExist,
    /// Something foreign is in the way.
    Conflict,
    /// Its namespace is gone, or is not ours any more.
    Lost,
    /// The kill switch.
    Suspend,
    /// Nothing of its rights is left.
    RightsGone,
    /// Rights were found in what was suspended, and could not be taken away at once.
    RightsFound,
    /// The way back.
    Resume,
}

/// The states from which an event leads on, and where to.
pub(super) fn transition(event: Event) -> (&'static [Status], Status) {
    match event {
        Event::Retry => (&[Status::Failed], Status::Provisioning),
        Event::ObjectsExist => (&[Status::Provisioning, Status::Resuming], Status::Provisioned),
        Event::Conflict => (&[Status::Provisioning], Status::Failed),
        Event::Lost => (&[Status::Provisioned], Status::Failed),
        Event::Suspend => (
            &[Status::Provisioning, Status::Provisioned, Status::Resuming, Status::Failed],
            Status::Suspending,
        ),
        Event::RightsGone => (&[Status::Suspending], Status::Suspended),
        Event::RightsFound => (&[Status::Suspended], Status::Suspending),
        Event::Resume => (&[Status::Suspended], Status::Resuming),
    }
}

/// States that a sweep finishes.
pub(super) const UNFINISHED: [Status; 3] =
    [Status::Provisioning, Status::Suspending, Status::Resuming];

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 8] = [
        Event::Retry,
        Event::ObjectsExist,
        Event::Conflict,
        Event::Lost,
        Event::Suspend,
        Event::RightsGone,
        Event::RightsFound,
        Event::Resume,
    ];

    #[test]
    fn credentials_are_reached_only_by_having_all_objects() {
        for event in EVENTS {
            let (_, to) = transition(event);
            assert_eq!(to == Status::Provisioned, event == Event::ObjectsExist);
        }
    }

    #[test]
    fn nothing_but_resume_leads_out_of_a_suspension() {
        for event in EVENTS {
            let (from, to) = transition(event);
            if from.contains(&Status::Suspended) && event != Event::RightsFound {
                assert_eq!((event, to), (Event::Resume, Status::Resuming));
            }
            if from.contains(&Status::Suspending) {
                assert_eq!(to, Status::Suspended);
            }
        }
    }

    #[test]
    fn every_unfinished_state_has_a_way_on() {
        for status in UNFINISHED {
            assert!(EVENTS.iter().any(|event| transition(*event).0.contains(&status)));
        }
    }
}
