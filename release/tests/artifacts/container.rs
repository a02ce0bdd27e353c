//! Runs a program from an unpacked image as a container engine does, as far as this machine allows:
//! in a mount namespace of its own, with the image as a read-only root file system, as user and
//! group 65532, and with two mounted folders.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use integration::process::{Process, Program};
use release::image::{PROGRAM, STATE_FOLDER, USER};

use crate::fixture::{TOOL_TIMEOUT, tool};

/// Folder of the settings in the container.
pub(crate) const SETTINGS_FOLDER: &str = "/etc/tenant-broker";

/// Makes the mounts, then becomes the rest of its arguments. The first three are the folders of the
/// root file system, the state and the settings.
const MOUNT: &str = r#"set -e
root=$1 state=$2 settings=$3
shift 3
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --bind "$state" "$root/var/lib/tenant-broker"
mount --bind "$settings" "$root/etc/tenant-broker"
mount -o remount,bind,ro "$root/etc/tenant-broker"
exec "$@"
"#;

/// How this machine isolates a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// We are root: files and process belong to user 65532 of the machine.
    Root,
    /// User 65532 of a user namespace is our own user.
    UserNamespace,
}

impl Isolation {
    /// Finds out what this machine allows.
    ///
    /// # Errors
    /// It allows neither; the message has the reasons.
    pub(crate) async fn find() -> Result<Self> {
        tool("unshare", "util-linux")?;
        let mut reasons = Vec::new();
        let is_root = rustix::process::geteuid().is_root();
        for isolation in [Self::Root, Self::UserNamespace] {
            if isolation == Self::Root && !is_root {
                continue;
            }
            let probe = Program::new("unshare").args(isolation.unshare()).arg("true");
            match probe.run(TOOL_TIMEOUT).await?.success() {
                Ok(_) => return Ok(isolation),
                Err(error) => reasons.push(format!("{error:#}")),
            }
        }
        bail!(
            "this test needs a mount namespace: run it as root with CAP_SYS_ADMIN, or allow user \
             namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns)\n{}",
            reasons.join("\n")
        )
    }

    /// The user that the process has on the machine.
    pub(crate) fn user(self) -> u32 {
        match self {
            Self::Root => USER,
            Self::UserNamespace => rustix::process::geteuid().as_raw(),
        }
    }

    fn unshare(self) -> Vec<&'static str> {
        let mut args = vec!["--mount", "--propagation", "private"];
        if self == Self::UserNamespace {
            args.extend(["--user", "--map-root-user"]);
        }
        args
    }

    /// The command that enters the root file system as the image's user.
    fn enter(self, root: &Path) -> Vec<String> {
        let root = root.display();
        match self {
            Self::Root => {
                let user = format!("--userspec={USER}:{USER}");
                vec!["chroot".to_owned(), user, "--groups=".to_owned(), root.to_string()]
            }
            Self::UserNamespace => vec![
                "unshare".to_owned(),
                "--user".to_owned(),
                format!("--map-user={USER}"),
                format!("--map-group={USER}"),
                format!("--root={root}"),
                "--wd=/".to_owned(),
            ],
        }
    }
}

/// The folders of a container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) isolation: Isolation,
    /// The root file system.
    pub(crate) root: PathBuf,
    state: PathBuf,
    settings: PathBuf,
    log: PathBuf,
}

impl Container {
    /// Makes a container below this folder, with an empty root file system and an empty state.
    pub(crate) async fn new(folder: &Path) -> Result<Self> {
        let isolation = Isolation::find().await?;
        let make = |name: &str, mode| -> Result<PathBuf> {
            let path = folder.join(name);
            std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
            std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
            Ok(path)
        };
        let (root, state) = (make("root", 0o755)?, make("state", 0o700)?);
        let settings = make("settings", 0o755)?;
        if isolation == Isolation::Root {
            chown(&state, Some(USER), Some(USER)).context("give the state to the image's user")?;
        }
        Ok(Self { isolation, root, state, settings, log: folder.join("log") })
    }

    /// Writes a file of the settings, readable by everybody.
    pub(crate) fn write_setting(&self, name: &str, text: &str) -> Result<()> {
        let path = self.settings.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        Ok(())
    }

    /// Starts the image's program with these arguments and this environment (`NAME=value`).
    pub(crate) fn start(&self, environment: &[String], args: &[&str]) -> Result<Process> {
        // Programs of the machine are found for the mounts; the image has none of them.
        let mut program = Program::new("unshare")
            .args(self.isolation.unshare())
            .args(["sh", "-c", MOUNT, "sh"])
            .args([&self.root, &self.state, &self.settings])
            .args(self.isolation.enter(&self.root))
            .arg(PROGRAM)
            .args(args)
            .clear_env()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for variable in environment {
            let (name, value) = variable.split_once('=').context("read the image's environment")?;
            program = program.env(name, value);
        }
        program.spawn_logged(&self.log)
    }

    /// Names of the files in the mounted state.
    pub(crate) fn state_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.state).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

/// The options of the mount at `path`, as a process sees it (`/proc/PID/mountinfo`, proc(5)).
pub(crate) fn mount_options(pid: u32, path: &str) -> Option<String> {
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let mut options = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (*fields.get(4)? == path).then_some(())?;
        Some((*fields.get(5)?).to_owned())
    });
    options.next_back()
}

/// The user of a process on the machine.
pub(crate) fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn the_mounted_folders_are_those_of_the_image() {
    assert!(MOUNT.contains(&format!("$root{STATE_FOLDER}")));
    assert!(MOUNT.contains(&format!("$root{SETTINGS_FOLDER}")));
}
