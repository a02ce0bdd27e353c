//! Audit rows of RoleBindings that are about to be deleted for a move. Without a row from before the
//! deletion, a broker that stops in between leaves no trace of them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::TenantController;
use crate::{
    audit::{self, Action},
    cluster::BindingsText,
    tenant::NamespaceMove,
};

/// Texts that are kept, one for each namespace.
const MAX_TEXTS: usize = 100;

/// The last text that this process recorded for each namespace, so that attempts that find the same
/// RoleBindings again and again do not fill the audit trail.
#[derive(Debug, Default)]
pub(super) struct RecordedDeletions(Mutex<BTreeMap<String, String>>);

impl RecordedDeletions {
    fn contains(&self, namespace: &str, text: &str) -> bool {
        let texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(namespace).is_some_and(|recorded| recorded == text)
    }

    fn insert(&self, namespace: &str, text: String) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() >= MAX_TEXTS {
            texts.clear();
        }
        texts.insert(namespace.to_owned(), text);
    }
}

impl TenantController {
    /// Records RoleBindings before they are deleted for a move, if there are any and an earlier
    /// attempt did not record the same.
    ///
    /// # Errors
    /// The database failed; nothing may be deleted then.
    pub(super) async fn record_deletion(
        &self,
        of: &NamespaceMove,
        bindings: &BindingsText,
        text: String,
    ) -> sqlx::Result<()> {
        if bindings.is_empty() || self.recorded_deletions.contains(&of.namespace, &text) {
            return Ok(());
        }
        let event = audit::Event {
            user_id: Some(of.requested_by),
            reason: Some(text.clone()),
            ..audit::Event::success(Action::NamespaceMoved)
        };
        audit::record_in_own_tx(&self.db, &self.clock, event).await?;
        self.recorded_deletions.insert(&of.namespace, text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::RoleBinding;

    use super::*;
    use crate::{
        tenant_controller::testing::{Fixture, announced_move},
        testing::{On, on_both_engines},
    };

    on_both_engines!(repeated_attempts_record_the_same_deletion_once);

    async fn repeated_attempts_record_the_same_deletion_once(on: On) {
        let fixture = Fixture::new(on).await;
        let of = announced_move();
        let some = BindingsText::of([&RoleBinding::default()]);
        let none = BindingsText::default();
        for (bindings, text, rows) in
            [(&none, "a", 0), (&some, "a", 1), (&some, "a", 1), (&some, "b", 2), (&some, "a", 3)]
        {
            fixture.controller.record_deletion(&of, bindings, text.to_owned()).await.unwrap();
            let number = fixture.storage.number("SELECT COUNT(*) FROM audit_logs").await;
            assert_eq!(number, rows, "{text}");
        }
    }
}
