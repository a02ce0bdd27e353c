//! Objects of custom resources: list, watch, create and update with conflicts of field managers.

mod custom_resource;
mod custom_write;
mod managed_fields;
mod watch;

pub use self::{
    custom_resource::{CustomObject, CustomResource, DefinitionState},
    custom_write::{CustomWriteError, Persistence},
    managed_fields::{FieldConflict, field_conflicts},
    watch::WatchEvent,
};
