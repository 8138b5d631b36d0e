//! Follows the frames that a peer sends, only so far as to tell whether it is in the middle of something that
//! others wait for: the hello of HTTP/2, a frame's head, a header block. What lies in them is hyper's business.
//!
//! Data is not looked at: how fast messages have to come is [`super::body`]'s business.

use std::time::Instant;

/// What every HTTP/2 client says first, `PRI * HTTP/2.0` and so on; its settings follow.
const PREFACE: usize = 24;

/// A frame's head: three bytes of length, one of kind, one of flags, four of the stream (RFC 9113, 4.1).
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Where in the byte stream a peer is.
#[derive(Debug)]
pub(super) struct Frames {
    at: At,
    /// The hello is the preface and a first frame.
    greeted: bool,
    /// Headers began and are not complete.
    in_headers: bool,
    /// Since when it has been in the middle of something.
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Preface { left: usize },
    Head { bytes: [u8; HEAD], len: usize },
    Payload { left: usize, kind: u8, flags: u8 },
}

/// Between two frames.
const BETWEEN: At = At::Head {
    bytes: [0; HEAD],
    len: 0,
};

// === impl Frames ===

impl Frames {
    /// A peer that has just connected.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            at: At::Preface { left: PREFACE },
            greeted: false,
            in_headers: false,
            since: Some(now),
        }
    }

    /// Since when the peer has been in the middle of something; `None` between frames, and inside of data.
    pub(super) fn unfinished_since(&self) -> Option<Instant> {
        self.since
    }

    /// The peer sent `bytes`.
    pub(super) fn follow(&mut self, mut bytes: &[u8], now: Instant) {
        while !bytes.is_empty() {
            let taken = self.step(bytes);
            bytes = &bytes[taken..];
        }
        let midway = match self.at {
            At::Preface { .. } => true,
            At::Head { len, .. } => len > 0,
            At::Payload { kind, .. } => kind != DATA,
        };
        let unfinished = midway || self.in_headers || !self.greeted;
        self.since = unfinished.then(|| self.since.unwrap_or(now));
    }

    /// Takes in some of `bytes`, which are not empty, and says how many.
    fn step(&mut self, bytes: &[u8]) -> usize {
        match &mut self.at {
            At::Preface { left } => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                if *left == 0 {
                    self.at = BETWEEN;
                }
                taken
            }
            At::Head { bytes: head, len } => {
                let taken = bytes.len().min(HEAD - *len);
                head[*len..*len + taken].copy_from_slice(&bytes[..taken]);
                *len += taken;
                if *len == HEAD {
                    let [a, b, c, kind, flags, ..] = *head;
                    let left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                    self.at = At::Payload { left, kind, flags };
                    self.end_of_payload();
                }
                taken
            }
            At::Payload { left, .. } => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                self.end_of_payload();
                taken
            }
        }
    }

    fn end_of_payload(&mut self) {
        let At::Payload {
            left: 0,
            kind,
            flags,
        } = self.at
        else {
            return;
        };
        if matches!(kind, HEADERS | CONTINUATION) {
            self.in_headers = flags & END_HEADERS == 0;
        }
        self.greeted = true;
        self.at = BETWEEN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![
            0,
            0,
            u8::try_from(payload).unwrap(),
            kind,
            flags,
            0,
            0,
            0,
            1,
        ];
        bytes.resize(HEAD + payload, 7);
        bytes
    }

    fn hello() -> Vec<u8> {
        let mut bytes = vec![0; PREFACE];
        bytes.extend(frame(4, 0, 6));
        bytes
    }

    /// Whether a peer that sent `bytes`, in pieces of `piece`, is in the middle of something.
    fn unfinished(bytes: &[u8], piece: usize) -> bool {
        let now = Instant::now();
        let mut frames = Frames::new(now);
        bytes
            .chunks(piece)
            .for_each(|piece| frames.follow(piece, now));
        frames.unfinished_since().is_some()
    }

    #[test]
    fn a_peer_is_unfinished_until_it_has_said_hello() {
        let hello = hello();
        for piece in [1, 5, 100] {
            assert!(unfinished(&hello[..hello.len() - 1], piece));
            assert!(!unfinished(&hello, piece));
        }
        assert!(unfinished(&hello[..PREFACE], 3));
        assert!(unfinished(&[], 1));
    }

    #[test]
    fn headers_are_unfinished_until_their_last_frame_has_come() {
        let (begun, ended) = (frame(HEADERS, 0, 10), frame(CONTINUATION, END_HEADERS, 0));
        let begun = [hello(), begun].concat();
        for piece in [1, 7, 100] {
            assert!(unfinished(&begun, piece));
            assert!(!unfinished(&[begun.clone(), ended.clone()].concat(), piece));
            let whole = [hello(), frame(HEADERS, END_HEADERS, 20)].concat();
            assert!(!unfinished(&whole, piece));
            assert!(unfinished(&whole[..whole.len() - 1], piece));
        }
    }

    #[test]
    fn data_may_take_its_time() {
        let bytes = [hello(), frame(DATA, 0, 100)].concat();
        assert!(!unfinished(&bytes[..bytes.len() - 50], 9));
        // A head of which only a part has come is not known to be one of data.
        assert!(unfinished(&bytes[..hello().len() + 4], 9));
    }

    #[test]
    fn the_time_counts_from_where_it_began() {
        let start = Instant::now();
        let later = start + std::time::Duration::from_secs(5);
        let mut frames = Frames::new(start);
        frames.follow(&hello(), start);
        frames.follow(&frame(HEADERS, 0, 3), start);
        frames.follow(&frame(CONTINUATION, 0, 3), later);
        assert_eq!(frames.unfinished_since(), Some(start));
    }
}
