//! The parent process, which asks for the token.

use std::io::Read;

/// A process; the start time distinguishes it from a later one with the same process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Process id.
    pub pid: u32,
    /// Start time in the kernel's own unit (clock ticks since boot on Linux); 0 if the system does
    /// not tell.
    pub started: u64,
}

impl Parent {
    /// The process that started this one.
    pub fn of_this_process() -> Option<Self> {
        let pid = u32::try_from(rustix::process::getppid()?.as_raw_nonzero().get()).ok()?;
        Some(Self { pid, started: start_time(pid).unwrap_or(0) })
    }

    /// Hash that identifies this process; never 0.
    pub fn fingerprint(self) -> u64 {
        // FNV-1a, because it only has to tell processes apart and nobody gains from a collision.
        let bytes = self.pid.to_le_bytes().into_iter().chain(self.started.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash.max(1)
    }
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat`
/// (`proc_pid_stat(5)`). Where there is no `/proc`, the process id alone has to do.
fn start_time(pid: u32) -> Option<u64> {
    let mut buffer = [0_u8; 512];
    let mut file = std::fs::File::open(["/proc/", &decimal(pid), "/stat"].concat()).ok()?;
    let length = file.read(&mut buffer).ok()?;
    let bytes = buffer.get(..length)?;
    // The second field, the command in parentheses, may itself contain spaces and parentheses.
    let after = bytes.iter().rposition(|byte| *byte == b')')? + 1;
    let field = bytes.get(after..)?.split(|byte| *byte == b' ').nth(20)?;
    field.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Formats a number in decimal digits without the standard formatting code, which is large.
fn decimal(mut number: u32) -> String {
    let mut digits = Vec::with_capacity(10);
    loop {
        digits.push(char::from(b'0' + (number % 10) as u8));
        number /= 10;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_differ_by_start_time() {
        let parent = Parent::of_this_process().unwrap();
        assert!(parent.pid > 0);
        #[cfg(target_os = "linux")]
        assert!(parent.started > 0, "field 22 of /proc/PID/stat");
        let successor = Parent { started: parent.started + 1, ..parent };
        assert_ne!(parent.fingerprint(), successor.fingerprint());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_start_time_is_that_of_the_kernel() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        assert_eq!(start_time(std::process::id()), fields[19].parse().ok());
    }

    #[test]
    fn digits_are_decimal() {
        for number in [0, 7, 10, 4_194_304, u32::MAX] {
            assert_eq!(decimal(number), number.to_string());
        }
    }
}
