//! Builds a program of the workspace with cargo and runs it: `xtask [--release] PROGRAM [ARGUMENT]…`.
//! The aliases of `.cargo/config.toml` call it.
//!
//! `cargo run` compiles the dependencies with the features that the program's own package needs.
//! `cargo dev` then builds the broker and the plugin, with the features of the whole workspace, so
//! that a hundred crates would be compiled twice. This crate builds with the features of the
//! workspace, and has no dependencies, so that it is ready at once. Before the build it checks what
//! `cargo dev` needs, because a build of a fresh clone takes minutes.

#![expect(clippy::print_stderr, reason = "a program for the terminal")]

mod checks;
#[path = "../../src/control_plane/prerequisites.rs"]
mod prerequisites;
#[path = "../../src/search_path.rs"]
mod search_path;

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const USAGE: &str = "usage: xtask [--release] PROGRAM [ARGUMENT]…";

/// A program of the workspace, and how it is run.
#[derive(Debug, PartialEq, Eq)]
struct Task {
    release: bool,
    program: String,
    arguments: Vec<OsString>,
}

impl Task {
    /// Parses the command line without the name of this program.
    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter().peekable();
        let release = arguments.next_if(|it| it == "--release").is_some();
        let program = arguments.next()?.into_string().ok()?;
        let is_name = program.starts_with(|first: char| first.is_ascii_alphabetic());
        is_name.then(|| Self { release, program, arguments: arguments.collect() })
    }

    /// Arguments of cargo that build the program.
    fn build(&self) -> Vec<&str> {
        let mut arguments = vec!["build", "--workspace", "--bin", &self.program];
        arguments.extend(self.release.then_some("--release"));
        arguments
    }

    /// Command that builds the program. It lacks the variables by which cargo describes this crate,
    /// because cargo runs the build script of `ring` again if they differ from those of another build,
    /// and then compiles thirty crates again.
    fn build_command(&self, cargo: &OsStr, variables: impl Iterator<Item = OsString>) -> Command {
        let mut command = Command::new(cargo);
        command.args(self.build());
        for name in variables.filter(|name| describes_crate(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command
    }

    /// Path of the program that cargo built, beside this one at `xtask`.
    fn path(&self, xtask: &Path) -> Option<PathBuf> {
        let debug = xtask.parent()?;
        let folder = if self.release { debug.parent()?.join("release") } else { debug.to_owned() };
        Some(folder.join(format!("{}{}", self.program, env::consts::EXE_SUFFIX)))
    }
}

/// Whether this is a variable that cargo sets for the program that `cargo run` starts.
fn describes_crate(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"]
            .contains(&name)
}

fn main() -> ExitCode {
    let Some(task) = Task::parse(env::args_os().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if task.program == "dev"
        && let Some(fault) = checks::fault(&task.arguments)
    {
        eprintln!("error: {fault}");
        return ExitCode::FAILURE;
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let variables = env::vars_os().map(|(name, _)| name);
    match task.build_command(&cargo, variables).status() {
        Ok(status) if status.success() => {}
        // cargo has printed the reason.
        Ok(_) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cannot run {}: {error}", cargo.display());
            return ExitCode::FAILURE;
        }
    }
    let Some(program) = env::current_exe().ok().and_then(|xtask| task.path(&xtask)) else {
        eprintln!("error: cannot find the folder of the built programs");
        return ExitCode::FAILURE;
    };
    let error = match run(Command::new(&program).args(task.arguments)) {
        Ok(code) => return code,
        Err(error) => error,
    };
    eprintln!("error: cannot run {}: {error}", program.display());
    ExitCode::FAILURE
}

/// Replaces this process by the command, so that signals reach it.
#[cfg(unix)]
fn run(command: &mut Command) -> io::Result<ExitCode> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

/// Runs the command and returns its exit code.
#[cfg(not(unix))]
fn run(command: &mut Command) -> io::Result<ExitCode> {
    let status = command.status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Option<Task> {
        Task::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_program_gets_all_arguments_after_its_name() {
        let task = parse(&["dev", "--tenants", "--release"]).unwrap();
        assert_eq!(task.arguments, ["--tenants", "--release"]);
        assert_eq!(task.build(), ["build", "--workspace", "--bin", "dev"]);
        let measure = parse(&["--release", "measure"]).unwrap();
        assert_eq!(measure.build(), ["build", "--workspace", "--bin", "measure", "--release"]);
        for arguments in [&[][..], &["--release"], &["--bin"], &[""]] {
            assert_eq!(parse(arguments), None, "{arguments:?}");
        }
    }

    #[test]
    fn the_build_lacks_the_variables_that_describe_this_crate() {
        let described =
            ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_PRE", "CARGO_MANIFEST_DIR", "OUT_DIR"];
        let kept = ["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "PATH"];
        let variables = described.iter().chain(&kept).map(OsString::from);
        let command = parse(&["dev"]).unwrap().build_command(OsStr::new("cargo"), variables);
        let mut removed: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
        removed.sort_unstable_by_key(|name| described.iter().position(|it| name == it));
        assert_eq!(removed, described);
        assert!(command.get_envs().all(|(_, value)| value.is_none()));
        // Variables that cargo has set for this test.
        let set = env::vars_os().map(|(name, _)| name);
        let command = parse(&["dev"]).unwrap().build_command(OsStr::new("cargo"), set);
        assert!(command.get_envs().any(|(name, _)| name == "CARGO_PKG_NAME"));
    }

    #[test]
    fn the_program_is_in_the_folder_of_its_profile() {
        let path = |arguments: &[&str]| {
            parse(arguments).unwrap().path(Path::new("target/debug/xtask")).unwrap()
        };
        let suffix = env::consts::EXE_SUFFIX;
        assert_eq!(path(&["dev"]), PathBuf::from(format!("target/debug/dev{suffix}")));
        let release = PathBuf::from(format!("target/release/measure{suffix}"));
        assert_eq!(path(&["--release", "measure"]), release);
    }
}
