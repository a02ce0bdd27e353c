//! Objects of the API server: create, compare with the desired state, delete.

pub(super) mod deletion_rounds;
mod difference;
pub(super) mod labels;
mod live_object;
mod managed_objects;
pub(super) mod messages;
mod object;
mod object_identity;
mod quantity;
pub(super) mod revoke;
mod selected;

pub use self::{
    deletion_rounds::EMPTY_LIST_INTERVAL,
    difference::{Compared, DRIFT_KINDS, Difference, is_marked_suspended},
    object::{EnsuredObject, Object, ObjectComparison},
    quantity::{NANOS_PER_UNIT, is_quantity, nanos_of, quantity_of},
};
