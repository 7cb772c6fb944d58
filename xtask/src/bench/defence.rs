//! `bench flood-defence`: what is left for legitimate clients while others flood the same queue.

use anyhow::Context as _;

use super::{
    Bench, Output, beside,
    sheet::{Bound, Shape, Sheet, number},
    stage::{SPOOFED, Stage, Subject},
};
use crate::{lab::Side, setup};

const SUBJECTS: [Subject; 6] =
    [Subject::Xdp, Subject::KnotXdp, Subject::Socket, Subject::KnotSocket, Subject::Nsd, Subject::Bind];
/// Legitimate queries a second.
const LEGITIMATE: f64 = 50_000.0;
/// Of what the server can do, the flood has this share.
const FLOOD: f64 = 0.8;

/// A kind of flood: its name, the flag of its share, and what of the legitimate queries should be answered, in per cent.
const FLOODS: [(&str, &str, Option<Bound>); 3] = [
    ("garbage", "--malformed", Some(Bound::AtLeast(99.0))),
    ("random subdomains", "--random", Some(Bound::AtLeast(95.0))),
    ("spoofed prefix, rate limited", "--spoofed", None),
];

/// Measures.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let stage = bench.stage()?;
    route(stage)?;
    let mut peak = Sheet::new("Peak rate for queries of that kind", "queries/s", Shape::Bars);
    let mut share = Sheet::new("Legitimate queries that were answered during the flood", "%", Shape::Bars);
    let (search, seconds) = (bench.search(0.3), bench.seconds(2.0, 0.4));
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let among = if bench.quick { 2 } else { SUBJECTS.len() };
    let subjects: Vec<(usize, usize)> =
        (0..FLOODS.len()).flat_map(|flood| (0..among).map(move |subject| (flood, subject))).collect();
    bench.rounds(&subjects, "floods", |(flood, subject)| {
        let (name, flag, _) = FLOODS[flood];
        let subject = SUBJECTS[subject];
        // It has no list of clients without a limit.
        let limited = flag == "--spoofed";
        if limited && subject == Subject::Nsd {
            return Ok(());
        }
        let prefix: &[&str] = if limited { &["--spoof-prefix", SPOOFED] } else { &[] };
        // Garbage need not be answered: what can be done of it shows in what else is.
        let kind = if flag == "--malformed" { "0.9" } else { "1" };
        let running = stage.start(subject, &[], false)?;
        let rate = stage.ask(&running, &[&[flag, kind], &search[..], prefix].concat())?.figure("/sent_per_s");
        peak.add(subject.name(), name, rate);
        let running = if limited {
            drop(running);
            stage.start(subject, &[], true)?
        } else {
            running
        };
        let all = LEGITIMATE + FLOOD * rate;
        let kind = format!("{:.4}", 1.0 - LEGITIMATE / all);
        let load = [flag, &kind, "--rate", &format!("{all:.0}"), "--for", &seconds];
        let asked = stage.ask(&running, &[&load[..], prefix].concat())?;
        let kinds = asked.report["kinds"].as_array().context("the generator tells kinds apart")?;
        let plain = kinds.iter().find(|kind| kind["kind"] == "plain").context("some queries are legitimate")?;
        let (sent, answered) = (plain["sent"].as_f64().unwrap_or(0.0), plain["answered"].as_f64().unwrap_or(0.0));
        share.add(subject.name(), name, 100.0 * answered / sent.max(1.0));
        Ok(())
    })?;
    let mut says = Vec::new();
    for (name, _, bound) in FLOODS {
        for subject in SUBJECTS {
            if let (Some(share), Some(rate)) = (share.median(subject.name(), name), peak.median(subject.name(), name)) {
                let verdict = bound.filter(|_| subject == Subject::Xdp).map(|bound| bound.verdict(share));
                says.push(format!(
                    "{}, {name}: {share:.2} % of {}/s answered beside a flood of {}/s{}",
                    subject.name(),
                    number(LEGITIMATE),
                    number(FLOOD * rate),
                    verdict.unwrap_or_default()
                ));
            }
        }
    }
    let [xdp, knot_xdp, socket, knot_socket, nsd, bind] = SUBJECTS.map(Subject::name);
    let [garbage, random, spoofed] = FLOODS.map(|(name, ..)| name);
    let of = |name: &str, flood: &str| share.median(name, flood).map_or_else(|| "-".to_owned(), number);
    let words = format!(
        "Behind the bypass {} % of the legitimate queries are answered beside garbage, {} % beside random subdomains and {} % beside a spoofed prefix, with Knot in XDP mode {} %, {} % and {} %. Each flood is in \
         proportion to what its server can take of that kind. On kernel sockets it is {} %, {} % and {} %: there a datagram of the flood takes the place of a legitimate one in the \
         socket's buffer before anybody has looked at it, whoever serves, and more so the nearer flood and legitimate queries together are to the peak.",
        of(xdp, garbage),
        of(xdp, random),
        of(xdp, spoofed),
        of(knot_xdp, garbage),
        of(knot_xdp, random),
        of(knot_xdp, spoofed),
        of(socket, garbage),
        of(socket, random),
        of(socket, spoofed),
    );
    Ok(Output {
        about: "A legitimate client asks 50,000 queries a second; on the same queue arrives a flood of 0.8 of what that server can take of its kind: names that do not exist, each another \
                one; malformed messages; queries from a spoofed /24, with a limit of 200 answers a second for each network, from which the legitimate client is exempt (NSD has no such \
                exemption). Both are sent by one thread, evenly mixed."
            .to_owned(),
        sheets: vec![share, peak],
        rivals: [beside(xdp, &[knot_xdp, knot_socket, nsd, bind]), beside(socket, &[knot_socket, nsd, bind])].concat(),
        words,
        says,
    })
}

/// Replies to spoofed sources have a way back, as they would by a default route.
fn route(stage: &Stage) -> anyhow::Result<()> {
    let mut route = stage.lab.command(Side::Server, "ip");
    route.args(["route", "replace", SPOOFED, "via", &stage.lab.client.v4.to_string()]);
    setup::output(&mut route).map(drop)
}
