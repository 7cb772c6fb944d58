//! The differences that the RFCs allow: a small list, reviewed. Each entry says where it applies, as narrowly as can be told, and which
//! sentence allows it. That most servers agree is no reason to be on it.

use super::{
    compare::Field,
    data::Data,
    message::{A, AAAA, AD, ANY, AXFR, CD, CNAME, DNAME, DS, IXFR, Message, NS, QR, Record, TC, is_within, u16_at},
    query::{Asked, Made, Mutation, Query},
    servers::Server,
};

/// A difference between ours and a peer.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What was asked.
    pub query: &'a Query,
    /// The peer.
    pub peer: Server,
    /// In what the replies differ.
    pub field: Field,
    /// Our reply, if there is one that can be read.
    pub ours: Option<&'a Message>,
    /// The peer's.
    pub theirs: Option<&'a Message>,
    /// The zones.
    pub data: &'a Data,
}

/// An allowed difference.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// A short name.
    pub name: &'static str,
    /// What allows it.
    pub rule: &'static str,
    /// Where it applies.
    pub applies: fn(&Case<'_>) -> bool,
}

/// Types that are no data: OPT, TKEY, TSIG.
const META: [u16; 3] = [41, 249, 250];
/// RRSIG and NSEC, which may stand beside a CNAME, and NSEC3, which has no name of its own.
const BESIDE_CNAME: [u16; 3] = [46, 47, 50];
/// Aliases that Knot follows.
const KNOT_ALIASES: usize = 5;

/// The list. The first entry that applies is the one that counts.
pub const ALLOWED: &[Entry] = &[
    Entry {
        name: "CD is not copied",
        rule: "RFC 4035 section 3.1.6: a server that knows DNSSEC copies CD from the query. Ours does; NSD and Knot clear it in some replies",
        applies: |case| {
            case.field == Field::Bits
                && both(case).is_some_and(|(ours, theirs)| {
                    (ours.bits ^ theirs.bits) & HEADER == CD && (ours.bits ^ sent_bits(case)) & CD == 0
                })
        },
    },
    Entry {
        name: "AD of unsigned data",
        rule: "RFC 4035 section 3.1.6 lets an authority set AD only for data that it knows to be authentic; ours never sets it. BIND sets it where the query had it",
        applies: |case| {
            case.field == Field::Bits
                && case.peer == Server::Bind
                && both(case)
                    .is_some_and(|(ours, theirs)| (ours.bits ^ theirs.bits) & HEADER & !CD == AD && ours.bits & AD == 0)
        },
    },
    Entry {
        name: "transfer over UDP",
        rule: "RFC 5936 section 4.2 defines no AXFR over UDP; RFC 1995 section 2 and RFC 5936 section 5 leave to the server who gets a zone. Ours refuses",
        applies: |case| asks(case, &[AXFR, IXFR]) && rcode(case.ours) == Some(5),
    },
    Entry {
        name: "OPT, TKEY, TSIG as QTYPE",
        rule: "RFC 6895 section 3.1: meta types are no data, so that a query for one cannot be interpreted (RFC 1035 section 4.1.1, code 1)",
        applies: |case| asks(case, &META) && rcode(case.ours) == Some(1),
    },
    Entry {
        name: "NXNAME as QTYPE",
        rule: "RFC 9824 section 3.5: an explicit query for NXNAME gets FORMERR",
        applies: |case| asks(case, &[128]) && rcode(case.ours) == Some(1),
    },
    Entry {
        name: "QTYPEs nobody has assigned",
        rule: "RFC 6895 section 3.1 sets 128 to 255 aside for QTYPEs and meta types; RFC 3597 section 3 treats unknown types alike, as ours does, and BIND takes these for broken",
        applies: |case| {
            let is_free = |asked: &Asked| (129..=248).contains(&asked.qtype);
            case.peer == Server::Bind && rcode(case.theirs) == Some(1) && case.query.asked.as_ref().is_some_and(is_free)
        },
    },
    Entry {
        name: "MAILA, MAILB as QTYPE",
        rule: "RFC 1035 section 3.2.3 has them as obsolete or experimental; code 4 (not implemented) is BIND's choice, no data is ours",
        applies: |case| asks(case, &[253, 254]) && rcode(case.theirs) == Some(4),
    },
    Entry {
        name: "type 0 as QTYPE",
        rule: "RFC 6895 section 3.1 reserves it for use elsewhere; it is no data of any name, so that NODATA, NXDOMAIN or a referral are true. Knot does not implement it",
        applies: |case| case.peer == Server::Knot && asks(case, &[0]) && rcode(case.theirs) == Some(4),
    },
    Entry {
        name: "ANY gets one RRset",
        rule: "RFC 8482 section 4.1: a subset of the RRsets of the name may be the answer",
        applies: |case| {
            asks(case, &[ANY])
                && [Field::Answer, Field::Additional, Field::Truncation].contains(&case.field)
                && case
                    .ours
                    .is_some_and(|ours| is_one_set(ours) && ours.answer.iter().all(|record| is_known(case, record)))
        },
    },
    Entry {
        name: "chain into another zone",
        rule: "RFC 1034 section 4.3.2: step 3a goes back to step 1, and step 2 looks for the nearest zone again. Knot and BIND stop at their zone's end",
        applies: |case| {
            case.peer != Server::Nsd
                && [Field::Rcode, Field::Answer, Field::AuthoritySection, Field::Additional, Field::Truncation]
                    .contains(&case.field)
                && case.query.asked.as_ref().zip(case.ours).is_some_and(|(asked, ours)| leaves_zone(case, asked, ours))
        },
    },
    Entry {
        name: "RRSIG, NSEC, NSEC3 of an alias",
        rule: "RFC 4035 section 2.5 lets RRSIG and NSEC stand beside CNAME; where they do not, RFC 1034 section 3.6.2 follows the alias. Knot and BIND never follow it for these, NSD for NSEC3",
        applies: |case| {
            let unfollowed = if case.peer == Server::Nsd { &BESIDE_CNAME[2..] } else { &BESIDE_CNAME[..2] };
            asks(case, unfollowed)
                && case.ours.is_some_and(|ours| ours.is(TC) || ours.answer.iter().any(|record| record.rtype == CNAME))
        },
    },
    Entry {
        name: "long chain",
        rule: "RFC 1034 section 3.6.2 restarts the query at each alias and section 5.2.2 has loops in mind, so that there is a limit; the client asks on. Knot's is lower",
        applies: |case| {
            case.peer == Server::Knot
                && both(case).is_some_and(|(ours, theirs)| {
                    let aliases = theirs.answer.iter().filter(|record| record.rtype == CNAME).count();
                    aliases >= KNOT_ALIASES && theirs.answer.iter().all(|record| ours.answer.contains(record))
                })
        },
    },
    Entry {
        name: "loop of aliases",
        rule: "RFC 1034 section 3.6.2: software is not to fail at a loop, and may signal it. The loop is the signal of ours; others go round once more, and BIND adds SERVFAIL",
        applies: |case| {
            both(case).is_some_and(|(ours, theirs)| {
                ours.rcode == 0
                    && (is_loop(ours) || is_loop(theirs))
                    && (theirs.is(TC) || ours.answer.iter().all(|record| theirs.answer.contains(record)))
            })
        },
    },
    Entry {
        name: "record sent twice",
        rule: "RFC 2181 section 5: a set has each record once. Knot repeats a DNAME that leads to its own owner",
        applies: |case| {
            case.peer == Server::Knot
                && case.field == Field::Answer
                && both(case).is_some_and(|(ours, theirs)| {
                    let mut once = theirs.answer.clone();
                    once.dedup();
                    once == ours.answer
                })
        },
    },
    Entry {
        name: "names that become too long",
        rule: "RFC 6672 section 2.2: the DNAME and YXDOMAIN are the answer. Knot adds the SOA, and says NXDOMAIN when an alias led there",
        applies: |case| case.peer == Server::Knot && rcode(case.ours) == Some(6),
    },
    Entry {
        name: "ANY below a DNAME",
        rule: "RFC 1034 section 4.3.2 step 3a follows an alias only where QTYPE does not match CNAME, and ANY does. NSD and Knot follow it",
        applies: |case| {
            asks(case, &[ANY])
                && case.peer != Server::Bind
                && case.ours.is_some_and(|ours| ours.answer.iter().any(|record| record.rtype == DNAME))
        },
    },
    Entry {
        name: "DS behind an alias",
        rule: "RFC 4035 section 3.1.4.1: who serves both sides of a cut answers DS from the parent's. Knot and BIND do so only for the name that was asked",
        applies: |case| {
            asks(case, &[DS])
                && case.peer != Server::Nsd
                && [Field::Answer, Field::AuthoritySection].contains(&case.field)
                && case.ours.is_some_and(|ours| {
                    ours.answer.iter().any(|record| record.rtype == CNAME && case.data.apexes.contains(&record.data))
                })
        },
    },
    Entry {
        name: "child without delegation",
        rule: "RFC 8020 section 2: NXDOMAIN says that nothing is below the name. A zone that is served is, also where its parent does not delegate it: no DS, and no NXDOMAIN",
        applies: |case| {
            asks(case, &[DS])
                && case.field == Field::Rcode
                && rcode(case.ours) == Some(0)
                && rcode(case.theirs) == Some(3)
                && case.query.asked.as_ref().is_some_and(|asked| case.data.apexes.contains(&asked.name))
        },
    },
    Entry {
        name: "RCODE of what is truncated",
        rule: "RFC 2181 section 9: a reply with TC is ignored, and asked for again over TCP, where its code is compared",
        applies: |case| {
            case.field == Field::Rcode && both(case).is_some_and(|(ours, theirs)| ours.is(TC) || theirs.is(TC))
        },
    },
    Entry {
        name: "size of a rewritten answer",
        rule: "RFC 1035 section 4.1.4 leaves to the server how well it compresses. Ours writes the targets of synthesised CNAMEs in full",
        applies: |case| {
            case.field == Field::Truncation
                && both(case).is_some_and(|(ours, theirs)| {
                    ours.is(TC) && theirs.answer.iter().any(|record| record.rtype == DNAME)
                })
        },
    },
    Entry {
        name: "names of the parent's zone",
        rule: "RFC 1034 section 4.3.2 step 2: the nearest zone alone is searched. NSD takes names that the parent has below the child's apex for names of the child",
        applies: |case| {
            let is_hidden = |asked: &Asked| case.data.has_hidden_above(&asked.name);
            case.peer == Server::Nsd && case.query.asked.as_ref().is_some_and(is_hidden)
        },
    },
    Entry {
        name: "size of a reply",
        rule: "RFC 1035 section 4.1.4 leaves to the server how well it compresses. BIND keeps the zone's case of names and does not point at a question in another",
        applies: |case| {
            case.field == Field::Truncation
                && both(case).is_some_and(|(ours, theirs)| !ours.is(TC) && theirs.is(TC) && !lacks_glue(case, ours))
        },
    },
    Entry {
        name: "TC for glue that does not fit",
        rule: "RFC 9471 section 3: a referral without all glue for name servers below the cut has TC. NSD and BIND leave glue out without a word",
        applies: |case| {
            case.field == Field::Truncation
                && case.ours.is_some_and(|ours| ours.is(TC))
                && case.theirs.is_some_and(|theirs| lacks_glue(case, theirs))
        },
    },
    Entry {
        name: "additional data",
        rule: "RFC 1034 section 4.3.2 step 6 leaves to the server what else is useful; RFC 2181 section 9: what does not fit there is left out. Glue of a referral is not meant, unless it was made from a wildcard (RFC 4592 section 2.2.1: nothing is made below a delegation), and ours must be true",
        applies: |case| {
            case.field == Field::Additional && both(case).is_some_and(|(ours, theirs)| is_optional(case, ours, theirs))
        },
    },
    Entry {
        name: "class that is not served",
        rule: "RFC 1035 section 4.1.1: code 5 is for policy, and ours serves IN alone. What is told of an error beside its code is free",
        applies: |case| {
            case.query.asked.as_ref().is_some_and(|asked| asked.qclass != 1)
                && rcode(case.ours).is_some_and(|rcode| [5, 16].contains(&rcode))
        },
    },
    Entry {
        name: "more than a query needs",
        rule: "RFC 1035 section 4.1.1 gives AA, TC and RA a meaning in replies alone and wants Z zero, no RFC says what records in a query do: ours does without them, others reject or drop the query. NSD sends the flags back with an error",
        applies: |case| {
            is_odd(case)
                && (rcode(case.theirs).is_none_or(|rcode| rcode == 1)
                    || case.theirs.is_some_and(|theirs| is_error(theirs) && is_echo(case, theirs)))
        },
    },
    Entry {
        name: "payload size of 1",
        rule: "RFC 6891 section 6.2.3: sizes below 512 are taken as 512, as ours does. Knot rejects the one that looks like class IN",
        applies: |case| {
            let edns = case.query.asked.as_ref().and_then(|asked| asked.edns.as_ref());
            case.peer == Server::Knot && rcode(case.theirs) == Some(1) && edns.is_some_and(|edns| edns.payload == 1)
        },
    },
    Entry {
        name: "DO beside BADVERS",
        rule: "RFC 3225 section 3: DO is copied to the reply, as ours does. NSD leaves it out when the version is wrong",
        applies: |case| case.peer == Server::Nsd && case.field == Field::Edns && rcode(case.ours) == Some(16),
    },
    Entry {
        name: "data of EDNS options",
        rule: "RFC 6891 section 6.1.2: options that are not known are ignored, and ours knows none of these; those who know client subnet or cookies check them (RFC 7871 section 7.1)",
        applies: |case| {
            let changed = case.query.made == Made::Mutated(Mutation::Bits);
            let edns = case.query.asked.as_ref().and_then(|asked| asked.edns.as_ref());
            changed && rcode(case.theirs) == Some(1) && edns.is_some_and(|edns| !edns.options.is_empty())
        },
    },
    Entry {
        name: "no reply to what is broken",
        rule: "RFC 1035 section 4.1.1 has codes for it and demands none to be sent (section 4.2.1: UDP is not reliable); to a response nothing may be sent (RFC 5625 section 4)",
        applies: |case| {
            case.query.asked.is_none()
                && case.field == Field::Silence
                && match case.ours {
                    None => sent_bits(case) & QR != 0 || case.query.bytes.len() < 12,
                    Some(ours) => is_error(ours) && sent_bits(case) & QR == 0,
                }
        },
    },
    Entry {
        name: "which error for what is broken",
        rule: "RFC 1035 section 4.1.1: code 1 for what cannot be interpreted, code 4 for a kind of query that is not supported; RFC 6891 section 6.1.1 and RFC 9619 section 4 want code 1",
        applies: |case| case.query.asked.is_none() && case.field == Field::Rcode && case.ours.is_some_and(is_error),
    },
    Entry {
        name: "what is said beside an error",
        rule: "No RFC says whether the question, OPT or flags come back with the code when the query was broken (RFC 6891 section 7 for FORMERR)",
        applies: |case| {
            case.query.asked.is_none()
                && [Field::Bits, Field::Question, Field::Edns, Field::Authority].contains(&case.field)
                && case.ours.is_some_and(is_error)
        },
    },
];

/// The flags and the opcode, without AA, TC and the code.
const HEADER: u16 = !(0x0400 | TC | 0xf);

/// The entry that allows a difference.
#[must_use]
pub fn find(case: &Case<'_>) -> Option<usize> {
    ALLOWED.iter().position(|entry| (entry.applies)(case))
}

fn both<'a>(case: &Case<'a>) -> Option<(&'a Message, &'a Message)> {
    case.ours.zip(case.theirs)
}

fn rcode(reply: Option<&Message>) -> Option<u16> {
    reply.map(|reply| reply.rcode)
}

fn asks(case: &Case<'_>, types: &[u16]) -> bool {
    case.query.asked.as_ref().is_some_and(|asked| types.contains(&asked.qtype))
}

fn sent_bits(case: &Case<'_>) -> u16 {
    u16_at(&case.query.bytes, 2).unwrap_or(0)
}

/// FORMERR, NOTIMP, REFUSED, NOTAUTH, BADVERS, without any records.
fn is_error(reply: &Message) -> bool {
    [1, 4, 5, 9, 16].contains(&reply.rcode) && reply.answer.is_empty() && reply.authority.is_empty()
}

/// A query with more in it than it needs: records, or flags that only replies have.
fn is_odd(case: &Case<'_>) -> bool {
    case.query.asked.as_ref().is_some_and(|asked| asked.odd)
}

/// True where an error differs from ours in flags that the query had.
fn is_echo(case: &Case<'_>, theirs: &Message) -> bool {
    [Field::Authority, Field::Truncation, Field::Bits].contains(&case.field)
        && case.ours.is_some_and(|ours| (ours.bits ^ theirs.bits) & !sent_bits(case) & !0xf == 0)
}

fn is_one_set(reply: &Message) -> bool {
    let mut sets: Vec<_> = reply.answer.iter().map(|record| (&record.owner, record.rtype)).collect();
    // The chain of aliases to it.
    sets.retain(|(_, rtype)| ![CNAME, DNAME].contains(rtype));
    sets.dedup();
    sets.len() <= 1
}

/// True where the answer is aliases alone, and they lead back to one of them, or below a DNAME that was followed already.
fn is_loop(reply: &Message) -> bool {
    let next = |name: &[u8]| reply.answer.iter().find(|record| record.rtype == CNAME && record.owner == name);
    let is_on_loop = |start: &Record| {
        let mut at = Some(start);
        // As many steps as there are records lead round any loop.
        reply.answer.iter().any(|_| {
            at = at.and_then(|alias| next(&alias.data));
            at.is_some_and(|alias| alias.owner == start.owner)
        })
    };
    let dnames = || reply.answer.iter().filter(|record| record.rtype == DNAME);
    let aliases = || reply.answer.iter().filter(|record| record.rtype == CNAME);
    let is_rewritten_again = |alias: &Record| {
        next(&alias.data).is_none()
            && dnames().any(|dname| dname.owner != alias.data && is_within(&alias.data, &dname.owner))
    };
    dnames().count() + aliases().count() == reply.answer.len()
        && aliases().any(|alias| is_on_loop(alias) || is_rewritten_again(alias))
}

/// True where an alias in the answer leads from one of our zones to another.
fn leaves_zone(case: &Case<'_>, asked: &Asked, ours: &Message) -> bool {
    let first = case.data.zone_of(&asked.name);
    let aliases = ours.answer.iter().filter(|record| record.rtype == CNAME);
    aliases.filter_map(|alias| case.data.zone_of(&alias.data)).any(|zone| Some(zone) != first)
}

/// True where a referral lacks an address, that the zone has, of a server below the cut.
fn lacks_glue(case: &Case<'_>, reply: &Message) -> bool {
    let servers = reply.authority.iter().filter(|record| record.rtype == NS);
    servers.filter(|server| is_within(&server.data, &server.owner)).any(|server| {
        let glue = case.data.addresses(&server.data);
        glue.iter().any(|record| !reply.additional.contains(record))
    })
}

/// True if the additional sections differ in nothing that a referral needs, and what only ours has is in the zones.
fn is_optional(case: &Case<'_>, ours: &Message, theirs: &Message) -> bool {
    let only = |these: &Message, those: &Message| -> Vec<Record> {
        these.additional.iter().filter(|record| !those.additional.contains(record)).cloned().collect()
    };
    let more = only(ours, theirs);
    let less = only(theirs, ours);
    more.iter().all(|record| is_true(case, record))
        && !less.iter().any(|record| case.data.has(record) && Data::is_needed_glue(theirs, record))
}

/// An address of the zones.
fn is_true(case: &Case<'_>, record: &Record) -> bool {
    [A, AAAA].contains(&record.rtype) && is_known(case, record)
}

/// A record of the zones, or made from a wildcard of theirs, or the CNAME that goes with a DNAME.
fn is_known(case: &Case<'_>, record: &Record) -> bool {
    record.rtype == CNAME || case.data.has(record) || case.data.has_by_wildcard(record)
}

#[cfg(test)]
mod tests;
