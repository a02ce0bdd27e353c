//! Linker options that make the shipped program start fast, because a cache hit takes little
//! longer than the start of the program.
//!
//! - A fixed address. A position-independent program of this size contains about eleven thousand
//!   addresses that the loader relocates at every start, which touches every page of its tables.
//!   kubectl and every other Go program on Linux are linked at a fixed address, too. Libraries,
//!   heap and stack stay at random addresses.
//! - A static unwinder. It is the only part of `libgcc_s.so` that is used; finding and loading that
//!   library takes longer than reading the token.
//!
//! Each saves about a tenth of the time of a hit; `docs/kubectl-tenant.md` has the figures.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TENANT_COMMIT");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
        // It comes before the libraries that the compiler adds, so that it is found first. "dylib"
        // leaves the search to the linker, which knows where its compiler keeps the archive.
        println!("cargo::rustc-link-lib=dylib=gcc_eh");
    }
}
