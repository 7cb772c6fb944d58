//! Datagrams of a UDP socket in batches: received, answered in place and sent with one system call each way.
//!
//! A reply goes out with the header that its query came in with. So it goes to who asked, and where the socket hears packets for many addresses
//! (`IP_PKTINFO`, `IPV6_RECVPKTINFO`), from the address that was asked.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, sockaddr_storage};
use nix::errno::Errno;

/// Room for any UDP payload. One cache line more than a power of two, so that the messages of a batch do not all fall into the same
/// cache sets. Pages that no message reaches cost nothing.
const ROOM: usize = 65_536 + 64;
/// The control message with the address that was asked, of either family, on its own alignment.
const CONTROL: usize = 64;

#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// A batch of datagrams.
pub struct Datagrams {
    // What the headers point at. It is on the heap and never moves or goes before them.
    buffers: Box<[[u8; ROOM]]>,
    peers: Box<[sockaddr_storage]>,
    controls: Box<[Control]>,
    vectors: Box<[iovec]>,
    /// For each datagram.
    headers: Box<[mmsghdr]>,
    /// Headers of replies, as many as there are.
    outgoing: Box<[mmsghdr]>,
    replies: usize,
}

impl Datagrams {
    /// Room for `batch` datagrams at once.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        // SAFETY: these are plain structures of the C library, for which all bytes zero are a value.
        let (peer, header): (sockaddr_storage, mmsghdr) =
            unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
        let vector = iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut new = Self {
            buffers: vec![[0; ROOM]; batch].into(),
            peers: vec![peer; batch].into(),
            controls: vec![Control([0; CONTROL]); batch].into(),
            vectors: vec![vector; batch].into(),
            headers: vec![header; batch].into(),
            outgoing: vec![header; batch].into(),
            replies: 0,
        };
        (0..batch).for_each(|index| new.reset(index));
        new
    }

    /// Makes a header ready to receive.
    fn reset(&mut self, index: usize) {
        self.vectors[index] = iovec { iov_base: self.buffers[index].as_mut_ptr().cast(), iov_len: ROOM };
        let header: &mut msghdr = &mut self.headers[index].msg_hdr;
        header.msg_name = ptr::from_mut(&mut self.peers[index]).cast();
        header.msg_namelen = length(size_of::<sockaddr_storage>());
        header.msg_iov = &raw mut self.vectors[index];
        header.msg_iovlen = 1;
        header.msg_control = self.controls[index].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL;
        header.msg_flags = 0;
    }

    /// Waits for a datagram as long as the socket's timeout says, then takes what else is there. Returns their number.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.replies = 0;
        let batch = length(self.headers.len());
        // SAFETY: each header points at a name, a vector and a control buffer of this batch, with their lengths, and the vector at a buffer of ROOM bytes.
        let received = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), batch, libc::MSG_WAITFORONE, ptr::null_mut())
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// A datagram that was received: who sent it, its buffer, its length. What a socket yields after its shutdown has no sender.
    pub fn get(&mut self, index: usize) -> (Option<SocketAddr>, &mut [u8], usize) {
        let is_sent = self.headers[index].msg_hdr.msg_namelen > 0;
        (
            address(&self.peers[index]).filter(|_| is_sent),
            &mut self.buffers[index],
            self.headers[index].msg_len as usize,
        )
    }

    /// Has the first `length` bytes of a datagram's buffer sent to its sender.
    pub fn reply(&mut self, index: usize, length: usize) {
        self.vectors[index].iov_len = length.min(ROOM);
        forget_interface(&mut self.headers[index].msg_hdr);
        self.outgoing[self.replies] = self.headers[index];
        self.replies += 1;
    }

    /// Has a datagram that `write` makes in a buffer, whose length it returns, sent to whom the socket is connected to.
    pub fn ask(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        let index = self.replies;
        let written = write(&mut self.buffers[index]);
        self.vectors[index] = iovec { iov_base: self.buffers[index].as_mut_ptr().cast(), iov_len: written.min(ROOM) };
        let header = &mut self.outgoing[index].msg_hdr;
        *header = self.headers[index].msg_hdr;
        header.msg_iov = &raw mut self.vectors[index];
        (header.msg_name, header.msg_namelen) = (ptr::null_mut(), 0);
        (header.msg_control, header.msg_controllen) = (ptr::null_mut(), 0);
        self.replies += 1;
    }

    /// Forgets what was to be sent.
    pub fn begin(&mut self) {
        self.replies = 0;
    }

    /// Sends the replies, and returns how many the kernel took. `refuse` hears the number of each that it did not: for want of a route, for example.
    pub fn send(&mut self, socket: BorrowedFd<'_>, mut refuse: impl FnMut(usize)) -> u32 {
        let (mut sent, mut refused) = (0, 0);
        while let Some(rest) = self.outgoing.get_mut(sent + refused..self.replies).filter(|rest| !rest.is_empty()) {
            // SAFETY: the headers point at names, vectors and control buffers of this batch.
            let taken = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), length(rest.len()), 0) };
            match usize::try_from(taken) {
                Ok(taken) => sent += taken,
                Err(_) if Errno::last() == Errno::EINTR => {}
                // The first of them cannot be sent; the others may.
                Err(_) => {
                    refuse(sent + refused);
                    refused += 1;
                }
            }
        }
        length(sent)
    }

    /// Makes ready for the next batch.
    pub fn clear(&mut self, received: usize) {
        (0..received).for_each(|index| self.reset(index));
    }
}

/// The address that the kernel has written; UDP sockets know these two families.
fn address(peer: &sockaddr_storage) -> Option<SocketAddr> {
    let peer = ptr::from_ref(peer);
    // SAFETY: the storage is large enough for either, aligned for both, and its first field says which it is.
    unsafe {
        match c_int::from((*peer).ss_family) {
            libc::AF_INET => {
                let v4 = *peer.cast::<libc::sockaddr_in>();
                Some(SocketAddr::new(
                    Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into(),
                    u16::from_be(v4.sin_port),
                ))
            }
            libc::AF_INET6 => {
                let v6 = *peer.cast::<libc::sockaddr_in6>();
                Some(SocketAddr::new(Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

/// Interface 0 in the control message: replies leave by route, as any packet.
fn forget_interface(header: &mut msghdr) {
    // SAFETY: the kernel has written the control messages and their length, and what CMSG_FIRSTHDR finds is within it; their data is read and written
    // without regard to alignment.
    unsafe {
        let Some(control) = libc::CMSG_FIRSTHDR(header).as_ref() else { return };
        let data: *mut c_void = libc::CMSG_DATA(control).cast();
        match (control.cmsg_level, control.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let data = data.cast::<libc::in_pktinfo>();
                data.write_unaligned(libc::in_pktinfo { ipi_ifindex: 0, ..data.read_unaligned() });
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let data = data.cast::<libc::in6_pktinfo>();
                data.write_unaligned(libc::in6_pktinfo { ipi6_ifindex: 0, ..data.read_unaligned() });
            }
            _ => header.msg_controllen = 0,
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "numbers of a batch, and sizes of addresses")]
fn length(number: usize) -> c_uint {
    number as c_uint
}

const _: () = assert!(size_of::<c_int>() == 4 && CONTROL >= 40);

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsFd, time::Duration};

    use super::*;

    #[test]
    fn each_reply_goes_to_who_asked() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let clients: Vec<UdpSocket> = (0..5).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut datagrams = Datagrams::new(4);
        for round in 0..3u8 {
            for (client, number) in clients.iter().zip(0u8..) {
                client.send_to(&[round, number], server.local_addr().unwrap()).unwrap();
            }
            let mut answered = 0;
            while answered < clients.len() {
                let received = datagrams.receive(server.as_fd()).unwrap();
                for index in 0..received {
                    let (peer, buffer, length) = datagrams.get(index);
                    assert_eq!(length, 2);
                    assert_eq!(peer, Some(clients[usize::from(buffer[1])].local_addr().unwrap()));
                    buffer[2] = 0xff;
                    datagrams.reply(index, 3);
                }
                assert_eq!(datagrams.send(server.as_fd(), |_| panic!("it is refused")), length(received));
                datagrams.clear(received);
                answered += received;
            }
            for (client, number) in clients.iter().zip(0u8..) {
                let mut reply = [0; 8];
                assert_eq!(client.recv(&mut reply).unwrap(), 3);
                assert_eq!(reply[..3], [round, number, 0xff]);
            }
        }
    }

    #[test]
    fn what_cannot_be_sent_does_not_hold_up_the_others() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..3u8 {
            client.send_to(&[number], server.local_addr().unwrap()).unwrap();
        }
        let mut datagrams = Datagrams::new(3);
        let mut received = 0;
        while received < 3 {
            received = datagrams.receive(server.as_fd()).unwrap();
        }
        // More than a datagram holds.
        datagrams.reply(0, 65_520);
        datagrams.reply(1, 1);
        datagrams.reply(2, 1);
        let mut refused = Vec::new();
        assert_eq!(datagrams.send(server.as_fd(), |index| refused.push(index)), 2);
        assert_eq!(refused, [0]);
    }
}
