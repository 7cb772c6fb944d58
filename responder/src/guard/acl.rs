//! Which clients are served, by the prefix of their address. It is looked at before anything of the message is read, and acts on the
//! bypass, on UDP sockets and on TCP alike.

use std::net::IpAddr;

use super::prefix::{Prefix, PrefixMap};

/// What a client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Answers.
    #[default]
    Allow,
    /// REFUSED, with the extended error Prohibited (RFC 8914 section 4.19).
    Refuse,
    /// Nothing.
    Drop,
}

/// Actions by prefix: the longest prefix that matches decides, and who is in none is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(PrefixMap<Action>);

impl Acl {
    /// A list of these entries; of two for one prefix the later counts.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = (Prefix, Action)>) -> Self {
        Self(PrefixMap::new(entries))
    }

    /// What this client gets.
    #[inline]
    #[must_use]
    pub fn action(&self, client: IpAddr) -> Action {
        if self.0.is_empty() { Action::Allow } else { self.0.get(client).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_and_the_rest_is_allowed() {
        let acl = Acl::new(
            [
                ("192.0.2.0/24", Action::Drop),
                ("192.0.2.128/25", Action::Refuse),
                ("192.0.2.200", Action::Allow),
                ("::/0", Action::Refuse),
                ("2001:db8::/32", Action::Allow),
            ]
            .map(|(prefix, action)| (prefix.parse().unwrap(), action)),
        );
        for (client, action) in [
            ("192.0.2.1", Action::Drop),
            ("192.0.2.129", Action::Refuse),
            ("192.0.2.200", Action::Allow),
            ("192.0.3.1", Action::Allow),
            ("2001:db8::1", Action::Allow),
            ("2001:db9::1", Action::Refuse),
        ] {
            assert_eq!(acl.action(client.parse().unwrap()), action, "{client}");
        }
        assert_eq!(Acl::default().action("192.0.2.1".parse().unwrap()), Action::Allow);
    }
}
