//! The commands for models: `models`, `models install`, `models status` and `models delete`.
//!
//! | module | what it does |
//! |---|---|
//! | `calls` | the calls of model services, and the errors of their failures |
//! | `target` | the namespace and the broker of a command |
//! | `list` | the list of models |
//! | `distribution` | the Llama Stack: install, wait, status, delete |

mod calls;
mod distribution;
mod list;
mod target;

pub(crate) use list::models;
