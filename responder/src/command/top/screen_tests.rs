//! Frames as text.

use std::time::Instant;

use ratatui::style::Modifier;

use super::*;
use crate::command::top::rates::tests::sample;

fn view() -> View {
    let start = Instant::now();
    View { rates: Rates::between(&sample(start, 10), &sample(start, 11)), ..View::default() }
}

#[test]
fn a_frame_of_80_by_24() {
    let expected = "\
responder 0.1.0  pid 42  up 1 h 02 m  io xdp  dns  0 zones  every 1.0 s
recv/s 102030  answ/s 101020  drop/s 1010  TC/s 202  limited/s 101

WORKERS
                       cpu   recv/s   answ/s  drop/s batch   usr  sys sirq  thr
eth0 queue 0             1   101000   100000    1000  10.1    40   25   30   64
eth0 queue 1             0     1010     1000      10  10.1     3    1    0    2
udp 192.0.2.53:53        0       20       20       0   1.0     3    1    0    1
tcp                      -        0        0       0     -     -    -    -    0





RX > TX, REPLIES/S        ANSWERS/S        TYPES/S      DROPS, VERDICTS/S
       tx 0   tx 1        NOERROR   90900  A      70700 response            1010
rx 0 100000      .        NXDOMAIN  10100  AAAA   30199 rx_ring_full         505
rx 1    !10    990                         other    101 redirected        102010
                                                        not_udp              3.0




q quit  p pause  tab section  up/down scroll  enter zoom  ? help
";
    assert_eq!(view().text(80, 24), expected);
}

#[test]
fn a_frame_that_is_printed_is_as_high_as_it_needs_to_be() {
    let mut view = View { is_printed: true, ..view() };
    let text = view.print();
    assert!(text.lines().all(|line| line.len() <= 80 && !line.ends_with(' ')), "{text}");
    assert!(!text.contains("q quit") && text.ends_with("3.0\n"), "{text}");
    let worker = view.rates.as_ref().unwrap().workers[0].clone();
    view.rates.as_mut().unwrap().workers.extend(std::iter::repeat_n(worker, 100));
    let text = view.print();
    assert_eq!(text.matches("eth0 queue 0").count(), 101, "{text}");
}

#[test]
fn what_has_no_room_is_counted_and_can_be_scrolled_to() {
    let mut view = view();
    let workers = &mut view.rates.as_mut().unwrap().workers;
    for queue in 2..20 {
        workers.push(Worker { name: format!("eth0 queue {queue}"), ..Worker::default() });
    }
    let text = view.text(80, 24);
    assert!(text.contains("WORKERS (+13)") && !text.contains("eth0 queue 19"), "{text}");
    view.scrolled = 13;
    let text = view.text(80, 24);
    assert!(text.contains("WORKERS\n") && text.contains("eth0 queue 19") && text.contains("recv/s"), "{text}");
    view.scrolled = 0;
    view.is_zoomed = true;
    let text = view.text(80, 40);
    assert!(text.contains("eth0 queue 19") && !text.contains("RX > TX"), "{text}");
}

/// Many queues, or names that are long: a list has what a matrix has no room for.
#[test]
fn a_wide_matrix_is_a_list() {
    let mut view = view();
    let flows = &mut view.rates.as_mut().unwrap().matrix;
    flows.push(Flow { interface: "enp130s0f1np12".into(), rx_queue: 12, tx_queue: 3, tx_cpu: 3, replies_per_s: 7.0 });
    let text = view.text(80, 24);
    assert!(text.contains("eth0 0>0           100000") && text.contains("enp130s0f1n~ 12>3    !7.0"), "{text}");
    (view.section, view.is_zoomed) = (Section::Matrix, true);
    let text = view.text(80, 24);
    assert!(text.contains("enp130s0f1np12 rx 12      .      .   !7.0"), "{text}");
}

#[test]
fn an_error_and_the_help_have_the_place_they_need() {
    let error = "trying again: no responder answers at /run/responder.sock: is it running?";
    let view = View { error: Some(error.into()), ..View::default() };
    assert!(view.text(80, 24).starts_with(&format!("responder  {}", &error[..69])));
    let view = View { has_help: true, ..self::view() };
    let text = view.text(80, 24);
    assert!(text.contains("by which queue replies leave") && text.contains("? help"), "{text}");
    assert!(HELP.lines().count() <= 24 - 4 && HELP.lines().all(|line| line.len() <= 80));
    // A terminal that is too small is no reason to fail.
    for (width, height) in [(1, 1), (20, 5), (0, 0)] {
        self::view().text(width, height);
    }
}

#[test]
fn no_colour_where_none_is_wanted() {
    let colours = |has_color| {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(80, 24));
        let view = View { has_color, ..view() };
        let Ok(_) = terminal.draw(|frame| view.draw(frame));
        let cells = &terminal.backend().buffer().content;
        assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)), "the section is marked");
        cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 0);
}

#[test]
fn rates_and_times_are_short() {
    for (rate, expected) in
        [(0.0, "0"), (0.04, "0.0"), (9.94, "9.9"), (9.96, "10"), (999_999.0, "999999"), (1_234_567.0, "1.23M")]
    {
        assert_eq!(short(rate), expected);
    }
    for (seconds, expected) in [(5.9, "5 s"), (65.0, "1 m 05 s"), (3725.0, "1 h 02 m"), (90_000.0, "1 d 01 h")] {
        assert_eq!(duration(seconds), expected);
    }
    assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab~".to_owned()));
}
