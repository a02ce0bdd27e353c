//! Model services over a real API server with RBAC, users by token file and people with workspaces.

mod attacks;
mod browser;
mod callers;
mod canary;
mod commands;
mod crashes;
pub(crate) mod fixture;
mod kill_switch;
mod listener;
mod llama_stack;
mod lost_answers;
mod memberships;
mod models;
mod namespaces;
mod namespaces_by_way;
mod namespaces_property;
mod refusals;
mod refused_creations;
