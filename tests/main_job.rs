//! `cargo xtask run` itself: it ends 0 when all is well, and 1 when replies leave from another CPU than their worker's.
//!
//! In a test binary of its own, one at a time: it measures. Needs root, RESPONDER, and `xtask` built beside it.

use std::{
    env,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
};

use tests::server::{ended, responder};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn xtask() -> PathBuf {
    let this = env::current_exe().expect("this executable has a path");
    // target/debug/deps/main_job-0123
    let path = this.ancestors().nth(2).expect("it lies in target/debug/deps").join("xtask");
    assert!(path.is_file(), "{} is not there: `cargo build -p xtask` makes it", path.display());
    path
}

/// Exit status and output of a run of three seconds.
fn run(flags: &[&str]) -> (Option<i32>, String) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(responder().is_file());
    let output = ended(Command::new(xtask()).args(["run", "--built", "--for", "3"]).args(flags));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

#[test]
fn the_matrix_is_diagonal() {
    let (code, text) = run(&[]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn workers_that_cross_are_seen_off_the_diagonal() {
    let (code, text) = run(&["--cross"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("replies left by another queue, or from another CPU"), "{text}");
}
