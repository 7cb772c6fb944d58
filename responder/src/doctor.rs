//! What an operator should know of a NIC before the bypass serves on it: what was found, what is wanted, why, and the command that
//! brings it about.
//!
//! `facts` reads the system, `examine` judges without asking it anything, `render` shows, `fix` applies what harms nobody. Whatever
//! may reset the link, or is the operator's choice, is named and left to them.

pub mod examine;
pub mod facts;
mod files;
pub mod firewall;
pub mod fix;
pub mod render;
pub mod routes;

use std::{fmt, path::PathBuf};

use serde::Serialize;

use crate::sys::{Flow, HashFields};

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As wanted.
    Ok,
    /// To be known; the bypass does its work.
    Note,
    /// It costs speed, or surprises.
    Warn,
    /// The bypass cannot work.
    Fail,
}

impl State {
    /// As it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it is.
    pub state: State,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub wanted: String,
    /// Why that matters.
    pub why: String,
    /// What brings it about; nothing where all is well, or where it is not for a command to change.
    pub fix: Vec<Step>,
}

impl Finding {
    /// Whether `--fix` may apply its steps: the link stays up and no traffic is refused.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        !self.fix.is_empty() && self.fix.iter().all(|step| !matches!(step, Step::Command(_)))
    }

    /// Its steps as a line of shell.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        let steps: Vec<String> = self.fix.iter().map(ToString::to_string).collect();
        (!steps.is_empty()).then(|| steps.join("; "))
    }
}

/// One step of a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// For the operator to decide on.
    Command(String),
    /// Text for a file of the kernel, whose path is relative to the root.
    Write {
        /// The file.
        path: PathBuf,
        /// The text.
        value: String,
    },
    /// What of a flow's packets decides their queue.
    Hash {
        /// The NIC.
        interface: String,
        /// The flow.
        flow: Flow,
        /// The fields.
        fields: HashFields,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.write_str(command),
            Self::Write { path, value } => write!(f, "echo {value} >/{}", path.display()),
            Self::Hash { interface, flow, fields } => {
                write!(f, "ethtool -N {interface} rx-flow-hash {} {}", flow.name(), fields.letters())
            }
        }
    }
}
