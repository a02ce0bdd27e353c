//! Which way to sign in fits this machine.

use crate::world::{Env, World};

/// How the sign-in gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The browser of this machine comes back to a port of it.
    Browser {
        /// Whether the address that the browser ended at may be pasted too.
        paste: bool,
    },
    /// The person copies a code from a page.
    Paste,
    /// The person types a code into a page on any device, and this program asks until it is done.
    Device(Why),
}

/// Why it is to be another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The person wants it so.
    Asked,
    /// The terminal is on another machine.
    Ssh,
    /// A browser in here could not be seen, and one outside cannot come back.
    Container,
    /// There is no desktop.
    NoDesktop,
}

impl Why {
    /// The line that explains the choice; none is needed for what was asked for.
    pub(super) fn text(self) -> Option<&'static str> {
        match self {
            Self::Asked => None,
            Self::Ssh => Some("This is an SSH session, so you sign in on another device."),
            Self::Container => Some("This is a container, so you sign in on another device."),
            Self::NoDesktop => Some("There is no desktop here, so you sign in on another device."),
        }
    }
}

/// What speaks for one way or another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "six independent facts, each looked up once")]
struct Surroundings {
    browser_command: bool,
    ssh: bool,
    wsl: bool,
    container: bool,
    display: bool,
    linux: bool,
}

impl Surroundings {
    fn of(env: &Env, in_container: bool, linux: bool) -> Self {
        let any = |names: &[&str]| names.iter().any(|name| env.get(name).is_some());
        Self {
            browser_command: any(&["BROWSER"]),
            ssh: any(&["SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"]),
            wsl: any(&["WSL_DISTRO_NAME"]),
            container: in_container || any(&["container"]),
            display: any(&["DISPLAY", "WAYLAND_DISPLAY"]),
            linux,
        }
    }

    /// What the person says in `BROWSER` comes first: remote editors set it to a command that opens
    /// a page where the person is. A forwarded display in an SSH session or a container is no
    /// desktop: the browser that a person looks at is elsewhere.
    fn way(self) -> Way {
        let browser = Way::Browser { paste: true };
        match self {
            Self { browser_command: true, .. } => browser,
            Self { ssh: true, .. } => Way::Device(Why::Ssh),
            Self { wsl: true, .. } => browser,
            Self { container: true, .. } => Way::Device(Why::Container),
            Self { linux: true, display: false, .. } => Way::Device(Why::NoDesktop),
            _ => browser,
        }
    }
}

/// The way that fits this machine.
pub(super) fn fitting(world: &World) -> Way {
    Surroundings::of(&world.env, (world.in_container)(), cfg!(target_os = "linux")).way()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_its_way() {
        let browser = Way::Browser { paste: true };
        let device = Way::Device;
        for (variables, in_container, linux, expected) in [
            (&["DISPLAY"][..], false, true, browser),
            (&["WAYLAND_DISPLAY"], false, true, browser),
            (&[], false, true, device(Why::NoDesktop)),
            (&["BROWSER"], false, true, browser),
            (&["BROWSER", "SSH_CONNECTION"], true, true, browser),
            (&["SSH_CONNECTION", "DISPLAY"], false, true, device(Why::Ssh)),
            (&["SSH_TTY"], false, true, device(Why::Ssh)),
            (&["SSH_CLIENT"], false, true, device(Why::Ssh)),
            (&["WSL_DISTRO_NAME"], false, true, browser),
            (&["WSL_DISTRO_NAME", "SSH_TTY"], false, true, device(Why::Ssh)),
            (&["DISPLAY"], true, true, device(Why::Container)),
            (&["container", "DISPLAY"], false, true, device(Why::Container)),
            // macOS
            (&[], false, false, browser),
            (&["SSH_TTY"], false, false, device(Why::Ssh)),
        ] {
            let set = variables.iter().map(|name| (name.into(), "x".into())).collect();
            let found = Surroundings::of(&Env::Fixed(set), in_container, linux).way();
            assert_eq!(found, expected, "{variables:?} {in_container} {linux}");
        }
    }

    #[test]
    fn a_choice_that_nobody_made_is_explained() {
        assert!(Why::Asked.text().is_none());
        assert!(Why::Ssh.text().unwrap().contains("SSH"));
        assert!(Why::Container.text().unwrap().contains("container"));
        assert!(Why::NoDesktop.text().unwrap().contains("desktop"));
    }
}
