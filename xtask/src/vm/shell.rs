//! A root shell in the guest, over its second serial port.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// A command in the guest has so long: its CPU is emulated.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Ends what a command prints. The shell puts it together, so that it is not in the command itself.
const MARK: &str = "\u{1}end of output ";

/// The shell. One command runs at a time.
#[derive(Debug)]
pub(crate) struct Shell {
    stream: UnixStream,
}

/// What a command printed, on both of its outputs, and its exit status.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// What it printed.
    pub(crate) text: String,
    /// 0 when it went well.
    pub(crate) status: i32,
}

impl Shell {
    /// Connects to the socket that QEMU made.
    pub(crate) fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("connecting to the guest's shell at {}", socket.display()))?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Self { stream })
    }

    /// Its bytes, which come within 200 ms or not at all when read.
    pub(crate) fn terminal(&self) -> anyhow::Result<UnixStream> {
        self.stream.try_clone().context("the guest's shell")
    }

    /// Runs a command line: what it printed, whatever its status.
    pub(crate) fn try_run(&mut self, line: &str) -> anyhow::Result<Output> {
        // A line that is not whole or leaves a job in the background still ends with the mark.
        write!(self.stream, "{{ {line}\n}} 2>&1 </dev/null; printf '\\001end of output %d\\n' $?\n")
            .context("writing to the guest's shell")?;
        let asked = Instant::now();
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the guest has ended while it ran `{line}`"),
                Ok(length) => text.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("reading from the guest's shell"),
            }
            if let Some(output) = finished(&text) {
                return Ok(output);
            }
            if asked.elapsed() > ANSWER_MAX {
                bail!(
                    "`{line}` has not ended in the guest after {} s; so far it printed:\n{}",
                    ANSWER_MAX.as_secs(),
                    String::from_utf8_lossy(&text)
                );
            }
        }
    }

    /// Runs a command line that must end with 0: what it printed.
    pub(crate) fn run(&mut self, line: &str) -> anyhow::Result<String> {
        let output = self.try_run(line)?;
        if output.status != 0 {
            bail!("`{line}` failed in the guest with {}: {}", output.status, output.text.trim());
        }
        Ok(output.text)
    }
}

/// What was printed, once the mark has come.
fn finished(bytes: &[u8]) -> Option<Output> {
    let text = String::from_utf8_lossy(bytes);
    let (before, after) = text.rsplit_once(MARK)?;
    let status = after.strip_suffix('\n')?.trim().parse().ok()?;
    Some(Output { text: before.replace('\r', ""), status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_ends_with_the_mark() {
        let output = finished(b"one\r\ntwo\n\x01end of output 3\n").expect("it has ended");
        assert_eq!((output.text.as_str(), output.status), ("one\ntwo\n", 3));
        assert!(finished(b"one\n\x01end of output 3").is_none(), "the status may go on");
        assert!(finished(b"one\n").is_none());
    }
}
