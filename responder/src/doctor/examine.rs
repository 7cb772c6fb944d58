//! Judges what was read. No function here asks the system anything: made-up facts show what each fault is called.
//!
//! Order: can a bypass be built here at all; how packets reach queues and queues reach CPUs; what the NIC does to packets; what the
//! system lets a server do; what the bypass skips.

mod driver;
mod host;
mod nic;
mod queues;
#[cfg(test)]
mod tests;

use super::{
    Finding, State, Step,
    facts::{Facts, Reading, Unread},
};

/// All findings, in the order in which they are shown.
#[must_use]
pub fn examine(facts: &Facts) -> Vec<Finding> {
    if let Some(stacked) = &facts.stacked {
        // Nothing else matters: whatever is served on is another interface.
        return vec![finding(
            "kind",
            State::Fail,
            "nothing that a bypass can be built on",
            "a physical interface",
            stacked,
        )];
    }
    let checks = [
        driver::kernel,
        driver::driver,
        nic::link,
        nic::xdp_program,
        nic::mtu,
        queues::channels,
        queues::hash,
        queues::interrupts,
        queues::irqbalance,
        queues::xps,
        queues::numa_node,
        nic::vlan_offload,
        nic::lro,
        nic::gro,
        nic::rings,
        nic::busy_polling,
        host::capabilities,
        host::memlock,
        host::firewall,
        host::rp_filter,
        host::routes,
    ];
    checks.iter().map(|check| check(facts)).collect()
}

fn finding(
    check: &'static str,
    state: State,
    found: impl Into<String>,
    wanted: impl Into<String>,
    why: impl Into<String>,
) -> Finding {
    Finding { check, state, found: found.into(), wanted: wanted.into(), why: why.into(), fix: Vec::new() }
}

impl Finding {
    fn fix(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.fix.extend(steps);
        self
    }

    fn by(self, command: String) -> Self {
        self.fix([Step::Command(command)])
    }
}

/// What was read, or how it is that it was not: nobody can set what the driver does not offer, so that it is no fault.
fn read<'a, T>(check: &'static str, reading: &'a Reading<T>, wanted: &str, why: &str) -> Result<&'a T, Finding> {
    reading.as_ref().map_err(|unread| match unread {
        Unread::NotOffered => finding(check, State::Ok, "not offered by the driver", "nothing", why),
        Unread::Refused(error) => finding(check, State::Note, format!("cannot be read: {error}"), wanted, why),
    })
}

/// Numbers for a message: `0, 1, 2`.
fn list<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}
