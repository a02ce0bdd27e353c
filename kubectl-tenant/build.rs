//! Links the shipped program so that it starts fast: a cache hit is little more than a start.
//!
//! - At a fixed address. A position-independent program of this size has about eleven thousand
//!   addresses in it that the loader writes anew at every start, which touches every page of its
//!   tables. kubectl and every other Go program on Linux are linked at a fixed address, too.
//!   Libraries, heap and stack stay at random ones.
//! - With the unwinder inside. It is the only thing of `libgcc_s.so` that is used; finding and
//!   loading that library takes longer than reading the token.
//!
//! Each is about a tenth of the time that a hit takes; `docs/kubectl-tenant.md` has the figures.

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
        // Before the libraries that the compiler adds, so that it is found first. "dylib" leaves the
        // search to the linker, which knows where its compiler keeps the archive.
        println!("cargo::rustc-link-lib=dylib=gcc_eh");
    }
}
