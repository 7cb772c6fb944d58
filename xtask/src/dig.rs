//! DNS messages as text, the way dig prints them: for people, not to be parsed.

use std::borrow::Cow;

use hickory_proto::op::{Message, MessageType, ResponseCode};

/// A response code as dig prints it.
pub fn code(code: ResponseCode) -> Cow<'static, str> {
    match code {
        ResponseCode::NoError => "NOERROR".into(),
        ResponseCode::FormErr => "FORMERR".into(),
        ResponseCode::ServFail => "SERVFAIL".into(),
        ResponseCode::NXDomain => "NXDOMAIN".into(),
        ResponseCode::NotImp => "NOTIMP".into(),
        ResponseCode::Refused => "REFUSED".into(),
        other => format!("RCODE{}", u16::from(other)).into(),
    }
}

/// A message as dig prints it.
pub fn dig(message: &Message) -> String {
    let head = &message.metadata;
    let flags = [
        (head.message_type == MessageType::Response, " qr"),
        (head.authoritative, " aa"),
        (head.truncation, " tc"),
        (head.recursion_desired, " rd"),
        (head.recursion_available, " ra"),
    ];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let mut text = format!(
        ";; ->>HEADER<<- opcode: QUERY, status: {}, id: {}\n;; flags:{flags}; QUERY: {}, ANSWER: {}, AUTHORITY: {}, ADDITIONAL: {}\n",
        code(head.response_code),
        head.id,
        message.queries.len(),
        message.answers.len(),
        message.authorities.len(),
        message.additionals.len() + usize::from(message.edns.is_some()),
    );
    if let Some(edns) = &message.edns {
        text += &format!("; EDNS: version: {}, flags:; udp: {}\n", edns.version(), edns.max_payload());
    }
    text += ";; QUESTION SECTION:\n";
    for query in &message.queries {
        text += &format!(
            ";{:<31} {:<7} {:<5} {}\n",
            query.name.to_string(),
            "",
            query.query_class.to_string(),
            query.query_type
        );
    }
    for (title, records) in
        [("ANSWER", &message.answers), ("AUTHORITY", &message.authorities), ("ADDITIONAL", &message.additionals)]
    {
        if !records.is_empty() {
            text += &format!(";; {title} SECTION:\n");
        }
        for record in records {
            let (name, class, kind) = (record.name.to_string(), record.dns_class.to_string(), record.record_type());
            text += &format!("{name:<32} {:<7} {class:<5} {:<7} {}\n", record.ttl, kind.to_string(), record.data);
        }
    }
    text
}
