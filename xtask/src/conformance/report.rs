//! What came out: counts, allowed differences by entry, and every other difference with the query and all four replies.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use super::{
    allowed::{self, ALLOWED, Case},
    compare::{self, Field, Reply},
    data::Data,
    message,
    query::Query,
    servers::{SERVERS, Server},
};

/// Unexplained differences that are told in full.
const SHOWN: usize = 12;
/// Of each kind that are kept for the file.
const EXAMPLES: u64 = 20;

/// Counts of a run.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    /// Queries, by how they were made.
    made: BTreeMap<String, u64>,
    queries: u64,
    /// Those asked over TCP, also after a truncated reply.
    tcp: u64,
    /// Per server: replies, and their response codes.
    replies: [u64; SERVERS],
    rcodes: [BTreeMap<String, u64>; SERVERS],
    /// Per entry and peer.
    allowed: BTreeMap<(usize, Server), u64>,
    /// Unexplained differences, by whether the query was good, what differs, and from whom.
    unexplained: BTreeMap<(bool, Field, Server), u64>,
    unexplained_queries: u64,
    examples: Vec<String>,
}

impl Report {
    /// Of nothing yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            made: BTreeMap::new(),
            queries: 0,
            tcp: 0,
            replies: [0; SERVERS],
            rcodes: Default::default(),
            allowed: BTreeMap::new(),
            unexplained: BTreeMap::new(),
            unexplained_queries: 0,
            examples: Vec::new(),
        }
    }

    /// Compares the four replies to a query.
    pub fn add(&mut self, query: &Query, replies: &[Reply; SERVERS], data: &Data) {
        self.queries += 1;
        self.tcp += u64::from(query.tcp);
        let made = format!("{:?}", query.made);
        *self.made.entry(made).or_default() += 1;
        for (index, reply) in replies.iter().enumerate() {
            self.replies[index] += u64::from(reply.is_some());
            if let Some(Ok(reply)) = reply {
                *self.rcodes[index].entry(message::rcode_text(reply.rcode)).or_default() += 1;
            }
        }
        let mut unexplained: Vec<(Field, Server)> = Vec::new();
        let ours = &replies[Server::Responder.index()];
        let good = |reply: &'_ Reply| -> Option<message::Message> { reply.as_ref()?.as_ref().ok().cloned() };
        for peer in Server::PEERS {
            let theirs = &replies[peer.index()];
            for field in compare::differences(ours, theirs) {
                let (ours, theirs) = (good(ours), good(theirs));
                let case = Case { query, peer, field, ours: ours.as_ref(), theirs: theirs.as_ref(), data };
                match allowed::find(&case) {
                    Some(entry) => *self.allowed.entry((entry, peer)).or_default() += 1,
                    None => unexplained.push((field, peer)),
                }
            }
        }
        if !query.tcp && matches!(ours, Some(Ok(reply)) if reply.len > query.udp_limit()) {
            unexplained.push((Field::TooLong, Server::Responder));
        }
        if !unexplained.is_empty() {
            self.tell(query, replies, &unexplained);
        }
    }

    fn tell(&mut self, query: &Query, replies: &[Reply; SERVERS], differences: &[(Field, Server)]) {
        self.unexplained_queries += 1;
        let mut kinds = Vec::new();
        let mut is_new = false;
        for (field, server) in differences {
            let seen = self.unexplained.entry((query.asked.is_some(), *field, *server)).or_default();
            *seen += 1;
            // A few of each kind say more than many of one.
            is_new |= *seen <= EXAMPLES;
            kinds.push(format!("{field} ({})", server.name()));
        }
        if !is_new {
            return;
        }
        let mut text = format!("{query}\n  differs in {}\n", kinds.join(", "));
        for server in Server::ALL {
            let reply = match &replies[server.index()] {
                None => "no reply\n".to_owned(),
                Some(Err(error)) => format!("a reply that cannot be read: {error}\n"),
                Some(Ok(reply)) => reply.text(),
            };
            let _ = writeln!(text, "  {}", server.name());
            for line in reply.lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
        self.examples.push(text);
    }

    /// True if every difference is an allowed one.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.unexplained_queries == 0
    }

    /// Queries compared so far, and those with an unexplained difference.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.queries, self.unexplained_queries)
    }

    /// For people.
    #[must_use]
    pub fn render(&self, took: Duration) -> String {
        let mut text = String::new();
        for example in self.examples.iter().take(SHOWN) {
            let _ = writeln!(text, "{example}");
        }
        let _ = writeln!(text, "{:<11} {:>9}  response codes", "", "replies");
        for server in Server::ALL {
            let rcodes: Vec<String> =
                self.rcodes[server.index()].iter().map(|(rcode, count)| format!("{rcode} {count}")).collect();
            let _ = writeln!(text, "{:<11} {:>9}  {}", server.name(), self.replies[server.index()], rcodes.join(", "));
        }
        let _ = writeln!(text, "\n{:<36} {:>7} {:>7} {:>7}", "allowed differences", "NSD", "Knot", "BIND");
        for (index, entry) in ALLOWED.iter().enumerate() {
            let [nsd, knot, bind] = Server::PEERS.map(|peer| self.uses(index, peer));
            let unused = if nsd + knot + bind == 0 { "  not used" } else { "" };
            let _ = writeln!(text, "{:<36} {nsd:>7} {knot:>7} {bind:>7}{unused}", entry.name);
        }
        if !self.is_good() {
            let _ = writeln!(text, "\nunexplained");
            for (kind, count) in self.kinds() {
                let _ = writeln!(text, "{count:>9}  {kind}");
            }
        }
        let _ = writeln!(
            text,
            "\n{} queries ({} over TCP) to four servers in {:.0} s, seed {}: {} with unexplained differences",
            self.queries,
            self.tcp,
            took.as_secs_f64(),
            self.seed,
            self.unexplained_queries
        );
        text
    }

    /// For machines.
    #[must_use]
    pub fn json(&self, took: Duration) -> Value {
        let servers: Vec<Value> = Server::ALL
            .iter()
            .map(|server| {
                let index = server.index();
                json!({ "name": server.name(), "replies": self.replies[index], "rcodes": self.rcodes[index] })
            })
            .collect();
        let allowed: Vec<Value> = ALLOWED
            .iter()
            .enumerate()
            .map(|(index, entry)| {
                let [nsd, knot, bind] = Server::PEERS.map(|peer| self.uses(index, peer));
                json!({ "name": entry.name, "rule": entry.rule, "NSD": nsd, "Knot": knot, "BIND": bind })
            })
            .collect();
        json!({
            "seed": self.seed,
            "seconds": took.as_secs_f64(),
            "queries": self.queries,
            "tcp": self.tcp,
            "made": self.made,
            "servers": servers,
            "allowed": allowed,
            "unexplained": self.unexplained_queries,
            "kinds": self.kinds().into_iter().collect::<BTreeMap<_, _>>(),
            "examples": self.examples,
        })
    }

    fn kinds(&self) -> Vec<(String, u64)> {
        let kind = |(good, field, server): &(bool, Field, Server)| {
            let query = if *good { "a query" } else { "a broken query" };
            format!("{field}, {}, {query}", server.name())
        };
        self.unexplained.iter().map(|(key, count)| (kind(key), *count)).collect()
    }

    fn uses(&self, entry: usize, peer: Server) -> u64 {
        self.allowed.get(&(entry, peer)).copied().unwrap_or(0)
    }
}
