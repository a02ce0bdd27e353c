//! The commands for tenants: `tenants`, `namespaces`, `use`, `why` and `import`.
//!
//! | module | what it does |
//! |---|---|
//! | `calls` | the calls of the broker's API |
//! | `choose` | which of a person's tenants a namespace belongs to |
//! | `membership` | becoming a member of a tenant |
//! | `list`, `suspension`, `write` | `tenants` |
//! | `namespaces`, `deletion`, `moves` | `namespaces` |
//! | `use_tenant` | `use` |
//! | `why` | `why`: the parser of the API server's reason, and the explanation |
//! | `import` | `import`: the translation, and the report |
//! | `input_file`, `documents`, `render` | YAML files: their text, their objects, and how objects are written |

mod calls;
mod choose;
mod deletion;
mod documents;
mod import;
mod input_file;
mod list;
mod membership;
mod moves;
mod namespaces;
mod render;
mod suspension;
mod use_tenant;
mod why;
mod write;

pub(crate) use choose::{is_suspended, namespaces_of_person, own_tenants};
pub(crate) use import::import;
pub(crate) use list::tenants;
pub(crate) use namespaces::namespaces;
pub(crate) use use_tenant::use_tenant;
pub(crate) use why::why;
