//! Tests of the artifacts of a release, made from the programs of this build: the image runs, the
//! packages install, the installer installs. They need Linux.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod archives;
mod chart;
mod container;
mod documents;
mod fixture;
mod image;
mod installer;
mod krew;
mod packages;
