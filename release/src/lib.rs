//! `cargo make-release`: builds and checks the artifacts of a release from a tag.
//!
//! | Modules | Contents |
//! |---|---|
//! | [`source`], [`target`] | the commit; the platforms and what this machine can build for |
//! | [`compile`], `profile_guided`, `cargo` | builds of broker and plugin |
//! | [`dependencies`], [`linkage`], [`c_library`] | what the programs consist of and need |
//! | [`bill_of_materials`], [`licenses`] | documents about that |
//! | [`file_tree`], [`digest`] | deterministic archives |
//! | [`image`], [`package`], [`archive`], [`deployment`], [`krew`], [`installer`] | the kinds of artifacts |
//! | [`plugin_files`] | completion scripts and manual pages |
//! | [`artifacts`], [`output`], [`summary`] | all of them, in a folder |

pub mod archive;
pub mod artifacts;
pub mod bill_of_materials;
pub mod c_library;
mod cargo;
pub mod compile;
pub mod dependencies;
pub mod deployment;
pub mod digest;
pub mod file_tree;
pub mod image;
pub mod installer;
pub mod krew;
pub mod licenses;
pub mod linkage;
pub mod output;
pub mod package;
pub mod plugin_files;
mod profile_guided;
pub mod source;
pub mod summary;
pub mod target;

/// Package and program of the broker.
pub const BROKER: &str = "tenant-broker";
/// Package and program of the plugin.
pub const PLUGIN: &str = "kubectl-tenant";
