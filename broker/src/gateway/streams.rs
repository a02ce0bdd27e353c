//! Everything that is under way through the gateway, so that it can be ended.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use super::{
    cut::{Cut, Why},
    path::Kind,
};

/// Whose a request or stream is.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// What it does.
    pub(super) kind: Kind,
    /// The workspace that it is in.
    pub(super) workspace: Uuid,
    /// The ServiceAccount that it began with, by uid.
    pub(super) service_account: Arc<str>,
    /// Who asked.
    pub(super) user: Uuid,
    /// In which session.
    pub(super) session: Uuid,
    /// The token that it goes on with, by `jti`, once it has one.
    pub(super) credential: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, (Facts, Arc<Cut>)>,
}

/// The registry. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(Arc<Mutex<Table>>);

impl Streams {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request; it is under way until the entry is dropped.
    pub(super) fn enter(&self, facts: Facts) -> Entry {
        let cut = Arc::new(Cut::default());
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        table.open.insert(id, (facts, Arc::clone(&cut)));
        Entry { streams: self.clone(), id, cut }
    }

    /// Ends what this picks; returns how many that was, without those that were ended before.
    pub(super) fn cut(&self, why: Why, which: impl Fn(&Facts) -> bool) -> usize {
        let table = self.table();
        let picked = table.open.values().filter(|(facts, _)| which(facts));
        picked.filter(|(_, cut)| cut.now(why)).count()
    }

    /// What is under way now.
    pub(super) fn open(&self) -> Vec<Facts> {
        self.table().open.values().map(|(facts, _)| facts.clone()).collect()
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Entry {
    streams: Streams,
    id: u64,
    cut: Arc<Cut>,
}

impl Entry {
    /// The token that it goes on with.
    pub(super) fn goes_as(&self, credential: &Arc<str>) {
        if let Some((facts, _)) = self.streams.table().open.get_mut(&self.id) {
            facts.credential = Some(Arc::clone(credential));
        }
    }

    /// The switch that ends it.
    pub(super) fn cut(&self) -> &Cut {
        &self.cut
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.streams.table().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(workspace: u128, session: u128) -> Facts {
        Facts {
            kind: Kind::Watch,
            workspace: Uuid::from_u128(workspace),
            service_account: "uid".into(),
            user: Uuid::nil(),
            session: Uuid::from_u128(session),
            credential: None,
        }
    }

    #[tokio::test]
    async fn only_what_is_picked_is_ended_and_what_is_over_is_forgotten() {
        let streams = Streams::default();
        let (one, other) = (streams.enter(facts(1, 7)), streams.enter(facts(2, 7)));
        assert_eq!(streams.open().len(), 2);
        assert_eq!(streams.cut(Why::Suspended, |of| of.workspace == Uuid::from_u128(1)), 1);
        assert_eq!(one.cut().happened().await, Why::Suspended);
        assert_eq!(other.cut().why(), None);
        assert_eq!(streams.cut(Why::Stopping, |_| true), 1, "the other one was ended before");
        assert_eq!(one.cut().why(), Some(Why::Suspended), "the first reason counts");
        assert_eq!(other.cut().happened().await, Why::Stopping);
        drop((one, other));
        assert!(streams.open().is_empty());
    }
}
