//! What a program needs from the system that runs it, as its ELF headers say: the loader, shared
//! libraries, and the version of the C library.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use goblin::elf::Elf;

/// The needs of a program or a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linkage {
    /// Path of the loader (`PT_INTERP`); a static program and a library have none.
    pub loader: Option<String>,
    /// Names of shared libraries (`DT_NEEDED`), in the order in which they are searched.
    pub libraries: Vec<String>,
    /// Symbol versions by library, for example `libc.so.6` and `GLIBC_2.34`.
    pub versions: BTreeSet<(String, String)>,
    /// The processor (`e_machine`).
    pub machine: u16,
}

impl Linkage {
    /// Reads the headers of an ELF file.
    ///
    /// # Errors
    /// The bytes are no ELF file.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let elf = Elf::parse(bytes).context("read the ELF headers")?;
        let mut versions = BTreeSet::new();
        for library in elf.verneed.iter().flatten() {
            let name = elf.dynstrtab.get_at(library.vn_file).unwrap_or_default();
            for version in &library {
                let version = elf.dynstrtab.get_at(version.vna_name).unwrap_or_default();
                versions.insert((name.to_owned(), version.to_owned()));
            }
        }
        Ok(Self {
            loader: elf.interpreter.map(str::to_owned),
            libraries: elf.libraries.iter().map(|library| (*library).to_owned()).collect(),
            versions,
            machine: elf.header.e_machine,
        })
    }

    /// The newest version of the GNU C library that it needs, for example `(2, 34)`.
    pub fn glibc(&self) -> Option<(u32, u32)> {
        let numbers = self.versions.iter().filter_map(|(_, version)| {
            let mut parts = version.strip_prefix("GLIBC_")?.split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        });
        numbers.max()
    }
}

/// Whether a library defines this function.
///
/// # Errors
/// The bytes are no ELF file.
pub fn defines(bytes: &[u8], function: &str) -> Result<bool> {
    let elf = Elf::parse(bytes).context("read the ELF headers")?;
    Ok(elf.dynsyms.iter().any(|symbol| {
        !symbol.is_import() && elf.dynstrtab.get_at(symbol.st_name) == Some(function)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn the_test_program_itself_needs_a_loader_and_a_c_library() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let linkage = Linkage::read(&program).unwrap();
        assert!(linkage.loader.is_some_and(|loader| loader.contains("/ld-linux")));
        assert!(linkage.libraries.iter().any(|library| library == "libc.so.6"));
        let glibc = Linkage::read(&program).unwrap().glibc();
        assert!(glibc > Some((2, 0)), "{glibc:?}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let versions = ["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_PRIVATE", "GCC_3.0"];
        let linkage = Linkage {
            loader: None,
            libraries: Vec::new(),
            versions: versions.map(|text| ("libc.so.6".to_owned(), text.to_owned())).into(),
            machine: 62,
        };
        assert_eq!(linkage.glibc(), Some((2, 34)));
    }

    #[test]
    fn a_script_is_no_program() {
        assert!(Linkage::read(b"#!/bin/sh\n").is_err());
    }
}
