//! The commands of administrators that write Tenants: `tenants create`, `apply`, `edit` and
//! `delete`.
//!
//! | module | what it does |
//! |---|---|
//! | `create`, `apply`, `edit`, `delete` | the commands |
//! | `manifest` | Tenants in YAML files |
//! | `editor` | the editor and the file of `edit` |
//! | `report` | what a write did |

mod apply;
mod create;
mod delete;
mod edit;
mod editor;
mod manifest;
mod report;

pub(super) use apply::apply;
pub(super) use create::create;
pub(super) use delete::delete;
pub(super) use edit::edit;
