//! Objects in Protobuf (API concepts, "Kubernetes Protobuf encoding"). The API server encodes and the
//! broker decodes them several times as fast as JSON, and both skip `managedFields` as bytes.
//!
//! The API server accepts strings that are not UTF-8 in Protobuf. They are read as in JSON, where it
//! replaces each wrong byte by U+FFFD.

mod namespace;
mod object_meta;
mod role_binding;

pub(in crate::cluster) use self::{namespace::NamespaceMessage, role_binding::RoleBindingMessage};
