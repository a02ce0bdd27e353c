//! Tasks that close requests in flight when a revocation, a suspension or a change of rights ends
//! their authorization.

mod member_rights;
mod reconcile;
mod role_changes;
mod tenant_watcher;
mod watcher;
