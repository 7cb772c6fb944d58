//! Rules of nftables and iptables that the bypass skips: those for port 53, and chains that drop what no rule lets in.
//!
//! Rules are read as nft(8) and iptables-save(8) show them. What a rule does is not worked out: it is named, and the operator judges.

use std::{fs, io, path::Path, process::Command};

use serde_json::Value;

use crate::config::DNS_PORT;

/// What is known of the firewall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Firewall {
    /// Why nobody knows.
    NotRead(String),
    /// Where each of the rules is, and what it does.
    Rules(Vec<String>),
}

/// Asks nft, and iptables-save where the kernel has such tables that nft does not know of.
pub(super) fn read(root: &Path) -> Firewall {
    let mut rules = match run("nft", &["-j", "list", "ruleset"]) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(ruleset) => of_nftables(&ruleset),
            Err(error) => return Firewall::NotRead(format!("what nft says is no JSON: {error}")),
        },
        Err(error) => return Firewall::NotRead(error),
    };
    for (names, program) in [("ip_tables_names", "iptables-legacy-save"), ("ip6_tables_names", "ip6tables-legacy-save")]
    {
        let tables = fs::read_to_string(root.join("proc/net").join(names)).unwrap_or_default();
        if tables.trim().is_empty() {
            continue;
        }
        match run(program, &[]) {
            Ok(text) => rules.extend(of_iptables(&text)),
            Err(error) => rules.push(format!("tables of iptables that cannot be read: {error}")),
        }
    }
    Firewall::Rules(rules)
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program} cannot be started: {error}"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}", said.lines().next().unwrap_or("failed")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Rules whose destination port is, or may be, ours; chains on the way in that drop by default.
fn of_nftables(ruleset: &Value) -> Vec<String> {
    let items = ruleset["nftables"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for item in items {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let chain = &item["chain"];
        let inwards = matches!(chain["hook"].as_str(), Some("ingress" | "prerouting" | "input"));
        if inwards && chain["policy"] == "drop" {
            let [family, table, name] = ["family", "table", "name"].map(|key| text(&chain[key]));
            found.push(format!("nft {family} {table} {name}: policy drop"));
        }
        let rule = &item["rule"];
        let Some(expressions) = rule["expr"].as_array() else { continue };
        let tcp = expressions.iter().any(|expression| expression["match"]["right"] == "tcp");
        if expressions.iter().any(|expression| is_for_dns(expression) || (!tcp && may_be_for_dns(expression))) {
            let [family, table, name] = ["family", "table", "chain"].map(|key| text(&rule[key]));
            found.push(format!("nft {family} {table} {name}: {}, handle {}", verdict(expressions), rule["handle"]));
        }
    }
    found
}

/// A match on the destination port of UDP, or of whatever transport.
fn is_for_dns(expression: &Value) -> bool {
    let found = &expression["match"];
    let payload = &found["left"]["payload"];
    let ours = payload["field"] == "dport" && (payload["protocol"] == "udp" || payload["protocol"] == "th");
    // A rule for all other ports is not one for ours.
    ours && found["op"] != "!=" && has_port(&found["right"])
}

/// A match of iptables that nft has no words for: its JSON does not say which ports.
fn may_be_for_dns(expression: &Value) -> bool {
    let found = &expression["xt"];
    found["type"] == "match" && (found["name"] == "udp" || found["name"] == "multiport")
}

/// A port, a set or a range of ports. What is behind a name (`@set`) may be ours.
fn has_port(right: &Value) -> bool {
    match right {
        Value::Number(port) => port.as_u64() == Some(DNS_PORT.into()),
        Value::String(name) => name.starts_with('@') || name == "domain",
        Value::Array(items) => items.iter().any(has_port),
        Value::Object(object) => {
            let bounds = object.get("range").and_then(Value::as_array);
            let bounds = bounds.map(|bounds| bounds.iter().filter_map(Value::as_u64).collect::<Vec<_>>());
            bounds.is_some_and(|bounds| matches!(bounds[..], [low, high] if (low..=high).contains(&DNS_PORT.into())))
                || object.get("set").is_some_and(has_port)
        }
        _ => false,
    }
}

/// What a rule does in the end, by the name of its last expression.
fn verdict(expressions: &[Value]) -> &str {
    let last = expressions.last().and_then(Value::as_object).and_then(|object| object.keys().next());
    last.map_or("no verdict", String::as_str)
}

/// Rules for UDP with our destination port, in the lines of iptables-save.
fn of_iptables(saved: &str) -> Vec<String> {
    let port = |words: &[&str]| matches!(*words, ["--dport" | "--dports", ports] if ports.split(',').any(names_port));
    let rules = saved.lines().filter(|line| line.starts_with("-A") && !line.contains("-p tcp"));
    let ours = rules.filter(|line| line.split_whitespace().collect::<Vec<_>>().windows(2).any(port));
    ours.map(|line| format!("iptables {line}")).collect()
}

/// `53`, or `50:60`.
fn names_port(ports: &str) -> bool {
    let (low, high) = ports.split_once(':').unwrap_or((ports, ports));
    matches!((low.parse::<u16>(), high.parse::<u16>()), (Ok(low), Ok(high)) if (low..=high).contains(&DNS_PORT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(protocol: &str, op: &str, right: &Value) -> Value {
        let left = json!({"payload": {"protocol": protocol, "field": "dport"}});
        let rule = json!({"family": "inet", "table": "t", "chain": "c", "handle": 4, "expr": [
            {"match": {"op": op, "left": left, "right": right}}, {"counter": {"packets": 0}}, {"drop": null}]});
        json!({"nftables": [{"metainfo": {}}, {"rule": rule}]})
    }

    /// CASES 27: firewall rules for port 53 silently stop applying.
    #[test]
    fn case_27_rules_for_port_53_are_found() {
        let cases = [
            ("udp", "==", json!(53), true),
            ("th", "==", json!(53), true),
            ("tcp", "==", json!(53), false),
            ("udp", "==", json!(5353), false),
            ("udp", "!=", json!(53), false),
            ("udp", "==", json!({"set": [123, 53]}), true),
            ("udp", "==", json!({"set": [123, {"range": [50, 60]}]}), true),
            ("udp", "==", json!({"range": [54, 60]}), false),
            ("udp", "==", json!("@services"), true),
        ];
        for (protocol, op, right, expected) in cases {
            let found = of_nftables(&rule(protocol, op, &right));
            let wanted: &[&str] = if expected { &["nft inet t c: drop, handle 4"] } else { &[] };
            assert_eq!(found, wanted, "{protocol} {op} {right}");
        }
    }

    /// `iptables -A INPUT -p udp -m multiport --dports 53,80 -j DROP`, where iptables is nftables underneath.
    #[test]
    fn a_match_that_nft_does_not_show_may_be_for_port_53() {
        for (protocol, found) in [("udp", 1), ("tcp", 0)] {
            let rule = json!({"family": "ip", "table": "filter", "chain": "INPUT", "handle": 3, "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": protocol}},
                {"xt": {"type": "match", "name": "multiport"}}, {"drop": null}]});
            assert_eq!(of_nftables(&json!({"nftables": [{"rule": rule}]})).len(), found, "{protocol}");
        }
    }

    #[test]
    fn a_chain_that_drops_by_default_is_found() {
        for (hook, policy, found) in [("input", "drop", 1), ("input", "accept", 0), ("output", "drop", 0)] {
            let chain = json!({"family": "ip", "table": "filter", "name": "INPUT", "hook": hook, "policy": policy});
            assert_eq!(of_nftables(&json!({"nftables": [{"chain": chain}]})).len(), found, "{hook} {policy}");
        }
    }

    #[test]
    fn rules_of_iptables_are_found() {
        let saved = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -m udp --dport 53 -j DROP\n-A INPUT -p tcp -m tcp --dport 53 -j DROP\n\
                     -A INPUT -p udp -m multiport --dports 50:60,99 -j DROP\n-A INPUT -p udp -m udp --dport 5353 -j DROP\nCOMMIT\n";
        let found = of_iptables(saved);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "iptables -A INPUT -p udp -m udp --dport 53 -j DROP");
    }
}
