//! The control planes that the tests of one process share, one for each set of options.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use anyhow::Result;

use super::{ControlPlane, ControlPlaneOptions};

/// The control plane of one set of options, while it is in use. The lock is held during its start.
type Slot = Arc<tokio::sync::Mutex<Weak<ControlPlane>>>;

static SLOTS: Mutex<Vec<(ControlPlaneOptions, Slot)>> = Mutex::new(Vec::new());
/// Most tests use this one, so it stays between them.
static DEFAULT: OnceLock<Arc<ControlPlane>> = OnceLock::new();

/// Returns the running control plane with these options, or starts one.
pub(super) async fn get(options: &ControlPlaneOptions) -> Result<Arc<ControlPlane>> {
    let slot = slot(options);
    let mut slot = slot.lock().await;
    if let Some(running) = slot.upgrade() {
        return Ok(running);
    }
    let started = Arc::new(ControlPlane::start(options.clone()).await?);
    *slot = Arc::downgrade(&started);
    if *options == ControlPlaneOptions::default() {
        DEFAULT.get_or_init(|| Arc::clone(&started));
    }
    Ok(started)
}

fn slot(options: &ControlPlaneOptions) -> Slot {
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, slot)) = slots.iter().find(|(known, _)| known == options) {
        return Arc::clone(slot);
    }
    let slot = Slot::default();
    slots.push((options.clone(), Arc::clone(&slot)));
    slot
}
