//! `cargo xtask vm matrix`: what the bypass has on each kernel, as a table for the README.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::{
    Bench, fetch,
    guest::{Guest, NIC, Nic, Options},
};
use crate::setup;

/// Queues of each guest.
const QUEUES: u32 = 2;
const SECONDS: u64 = 5;
const RATE: u32 = 5_000;

/// Flags of `vm matrix`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Write the rows to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One kernel with one NIC.
#[derive(Debug, Serialize)]
struct Row {
    kernel: String,
    nic: String,
    xdp: String,
    /// Each queue's mode.
    modes: Vec<String>,
    /// Replies in a system call in copy mode.
    tx_budget: Option<u64>,
    /// Nothing of the program is left after the server was killed.
    clean_after_kill: bool,
    /// Each queue's busy polling.
    busy_poll: Vec<String>,
    asked: u64,
    answered: u64,
    problems: Vec<String>,
}

impl Row {
    fn markdown(&self) -> String {
        let same = |texts: &[String]| {
            let mut texts = texts.to_vec();
            texts.dedup();
            texts.join(", ").replace("given up: replies stayed in the TX ring", "given up")
        };
        let budget = self.tx_budget.map_or_else(|| "32".to_owned(), |budget| budget.to_string());
        let works = if self.problems.is_empty() { "all".to_owned() } else { self.problems.join("; ") };
        format!(
            "| {} | {} | {} | {} | {budget} | {} | {} | {works} |",
            self.kernel,
            self.nic,
            self.xdp,
            same(&self.modes),
            if self.clean_after_kill { "yes" } else { "no" },
            same(&self.busy_poll),
        )
    }
}

impl Bench {
    pub(super) fn kernels(&self, flags: &Flags) -> anyhow::Result<ExitCode> {
        let mut rows = Vec::new();
        for series in fetch::series() {
            for nic in [Nic::Virtio, Nic::Igb] {
                eprintln!("Linux {series}, {nic}");
                rows.push(self.row(nic, series).with_context(|| format!("Linux {series}, {nic}"))?);
            }
        }
        println!(
            "| Linux | NIC | XDP | sockets | replies in a system call (copy) | clean after kill -9 | busy polling | answered |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        rows.iter().for_each(|row| println!("{}", row.markdown()));
        setup::write_json(flags.json.as_deref(), &rows)?;
        let good = rows.iter().all(|row| row.problems.is_empty() && row.clean_after_kill);
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn row(&self, nic: Nic, series: &str) -> anyhow::Result<Row> {
        let options = Options { nic, queues: QUEUES, kernel: series.to_owned(), virtio_iommu: true };
        let guest = Guest::boot(&options, &self.responder, &self.zones, &self.stop)?;
        let field = |status: &Value, name: &str| -> Vec<Value> {
            let queues = status["interfaces"][0]["queues"].as_array();
            queues.into_iter().flatten().map(|queue| queue[name].clone()).collect()
        };
        let texts = |status: &Value, name: &str| -> Vec<String> {
            field(status, name).iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
        };

        guest.serve(&self.zones, "--zero-copy off --busy-poll 50")?;
        let copy = guest.status()?;
        guest.end_server()?;
        guest.wait_for_carrier()?;
        guest.serve(&self.zones, "--busy-poll 50")?;
        self.ask(&guest, 1, RATE)?;
        let polled = guest.status()?;
        guest.end_server()?;
        guest.wait_for_carrier()?;
        guest.serve(&self.zones, "")?;
        let report = self.ask(&guest, SECONDS, RATE)?;
        let status = guest.status()?;
        guest.kill_server()?;
        std::thread::sleep(std::time::Duration::from_secs(1));
        let link = guest.run(&format!("/sbin/ip link show {NIC}"))?;
        ensure!(!self.stop.load(std::sync::atomic::Ordering::Relaxed), "stopped by a signal");
        Ok(Row {
            kernel: guest.release.clone(),
            nic: nic.to_string(),
            xdp: status["interfaces"][0]["xdp_mode"].as_str().unwrap_or_default().to_owned(),
            modes: texts(&status, "mode"),
            tx_budget: field(&copy, "tx_budget").first().and_then(Value::as_u64),
            clean_after_kill: !link.contains("xdp"),
            busy_poll: texts(&polled, "busy_poll"),
            asked: report.sent,
            answered: report.right,
            problems: report.problems(),
        })
    }
}
