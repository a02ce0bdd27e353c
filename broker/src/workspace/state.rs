//! State machine of a workspace: its events and the transitions they allow. No I/O.
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
//! Suspend is possible from every state. A suspended workspace becomes suspending again if rights
//! are found in it that cannot be revoked at once.

use tenant_shared::WorkspaceStatus as Status;

/// The objects that a workspace consists of in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkspaceKind {
    /// A namespace of its own, and the objects in it.
    Personal,
    /// A ServiceAccount in the home of a tenant. All other objects are the tenant's.
    Membership,
}

/// An event that may change the status of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The owner calls `init` again after a failure.
    Retry,
    /// All of its objects exist.
    ObjectsExist,
    /// An object that is not ours has the name of one of the workspace's objects.
    Conflict,
    /// The namespace is gone, or it is no longer ours.
    Lost,
    /// An administrator suspends the workspace (the kill switch).
    Suspend,
    /// All rights in the cluster are revoked.
    RightsGone,
    /// Rights were found in a suspended workspace and could not be revoked at once.
    RightsFound,
    /// An administrator resumes the workspace.
    Resume,
}

/// The source states of an event, and the state that it leads to.
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

/// States in which the sweep has work to finish.
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
    fn only_existing_objects_lead_to_provisioned() {
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
    fn every_unfinished_state_has_a_next_state() {
        for status in UNFINISHED {
            assert!(EVENTS.iter().any(|event| transition(*event).0.contains(&status)));
        }
    }
}
