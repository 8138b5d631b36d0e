//! Where a JPEG's scans lie, and which coefficients they bring.
//!
//! The walk looks for markers only; nothing is decoded, and what it keeps does not grow with the file.

use super::jpeg_header::{EOI, FrameHeader, SOS, Segments};

/// Scans of a progressive picture beyond these are not looked at; the decoder reads fewer.
const MAX_SCANS: usize = 256;

/// The scans of a JPEG that are decoded (of a sequential one that is the first), and whether its end marker
/// is there.
#[derive(Debug)]
pub(super) struct Scans {
    pub(super) list: Vec<Scan>,
    /// Whether an end marker follows the last of them.
    pub(super) has_end: bool,
    sent: Coverage,
}

/// The entropy-coded data of one scan, by its offsets in all the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) start: usize,
    /// Of the marker that ends it, or of the end of the bytes.
    pub(super) end: usize,
    /// Whether restart markers lie within.
    pub(super) has_restarts: bool,
}

/// Which coefficients have been sent of each component, and down to which bit.
#[derive(Debug)]
struct Coverage {
    is_progressive: bool,
    components: usize,
    /// Each component's name, in the order in which scans first bring it, and its lowest bit sent of each of
    /// its coefficients.
    lowest_bits: Vec<(u8, [u8; 64])>,
}

/// Nothing sent: above any bit that there is.
const NOTHING: u8 = u8::MAX;

/// Finds the next marker in entropy-coded data: the offset of its 0xff, and its second byte.
pub(super) fn next_marker(data: &[u8]) -> Option<(usize, u8)> {
    let mut from = 0;
    loop {
        let at = from + position_of_ff(&data[from..])?;
        match *data.get(at + 1)? {
            // A stuffed zero: the 0xff is data.
            0x00 => from = at + 2,
            // A fill byte before the marker.
            0xff => from = at + 1,
            marker => return Some((at, marker)),
        }
    }
}

/// Where the first 0xff is. Whole blocks are passed over with a few instructions each.
fn position_of_ff(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    let none = |block: &[u8; BLOCK]| !block.iter().fold(false, |any, &byte| any | (byte == 0xff));
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let skipped = blocks.iter().take_while(|block| none(block)).count() * BLOCK;
    let rest = bytes[skipped..].iter().position(|&byte| byte == 0xff)?;
    Some(skipped + rest)
}

/// Whether a marker restarts the coding within a scan.
pub(super) fn is_restart(marker: u8) -> bool {
    matches!(marker, 0xd0..=0xd7)
}

// === impl Scans ===

impl Scans {
    /// Finds them.
    pub(super) fn of(bytes: &[u8], frame: &FrameHeader) -> Self {
        let mut scans = Self {
            list: Vec::new(),
            has_end: false,
            sent: Coverage {
                is_progressive: frame.is_progressive(),
                components: frame.components(),
                lowest_bits: Vec::new(),
            },
        };
        let most = if frame.is_progressive() { MAX_SCANS } else { 1 };
        let mut at = 2;
        while let Some(header) = Segments::from(bytes, at).find(|segment| segment.marker == SOS) {
            scans.sent.add(header.body);
            let (scan, ended_by) = Scan::at(bytes, header.body_end);
            scans.list.push(scan);
            at = scan.end;
            scans.has_end = ended_by == Some(EOI);
            if ended_by.is_none() || scans.has_end {
                return scans;
            }
            if scans.list.len() == most {
                break;
            }
        }
        // Behind the last scan come other segments; the end may be behind those.
        scans.has_end = !scans.list.is_empty() && next_end(&bytes[at..]);
        scans
    }

    /// Whether some component has not been sent.
    pub(super) fn lack_components(&self) -> bool {
        self.sent.lowest_bits.len() < self.sent.components
    }

    /// Whether a picture can come out: every component has been sent, and of a progressive one more than
    /// the average of its blocks.
    pub(super) fn show_something(&self) -> bool {
        let sent = &self.sent.lowest_bits;
        let has_detail = |bits: &[u8; 64]| bits[1..].iter().any(|&bit| bit != NOTHING);
        !self.lack_components()
            && sent.iter().all(|(_, bits)| bits[0] != NOTHING)
            && sent.iter().any(|(_, bits)| has_detail(bits))
    }

    /// Whether every coefficient of every component has been sent to its last bit, so that no scan can be
    /// missing.
    pub(super) fn are_all(&self) -> bool {
        let sent = &self.sent.lowest_bits;
        !self.lack_components()
            && sent
                .iter()
                .all(|(_, bits)| bits.iter().all(|&bit| bit == 0))
    }
}

/// Whether an end marker is somewhere in what is no entropy-coded data.
fn next_end(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == [0xff, EOI])
}

// === impl Scan ===

impl Scan {
    /// The one whose data start at `start`, and the second byte of the marker that ends it.
    fn at(bytes: &[u8], start: usize) -> (Self, Option<u8>) {
        let mut has_restarts = false;
        let mut from = start;
        while let Some((offset, marker)) = next_marker(&bytes[from..]) {
            if is_restart(marker) {
                has_restarts = true;
                from += offset + 2;
                continue;
            }
            let end = from + offset;
            let scan = Self {
                start,
                end,
                has_restarts,
            };
            return (scan, Some(marker));
        }
        // Half a marker is none of the data.
        let data = &bytes[start..];
        let len = data
            .iter()
            .rposition(|&byte| byte != 0xff)
            .map_or(0, |last| last + 1);
        let end = start + len;
        (
            Self {
                start,
                end,
                has_restarts,
            },
            None,
        )
    }
}

// === impl Coverage ===

impl Coverage {
    /// Adds what a scan brings, by its header.
    fn add(&mut self, header: &[u8]) {
        let Some((&count, rest)) = header.split_first() else {
            return;
        };
        let (components, range) = rest.split_at(rest.len().min(2 * usize::from(count)));
        let (first, last, bit) = match range {
            // A sequential scan brings all, whatever it says of it.
            _ if !self.is_progressive => (0, 63, 0),
            &[first, last, bits, ..] => (first.into(), last.into(), bits & 0x0f),
            _ => return,
        };
        for [name, _] in components.as_chunks::<2>().0 {
            let mut known = self.lowest_bits.iter();
            // A sequential picture's names are not told apart by decoders either.
            let known = known.position(|(known, _)| known == name && self.is_progressive);
            let at = known.unwrap_or_else(|| {
                self.lowest_bits.push((*name, [NOTHING; 64]));
                self.lowest_bits.len() - 1
            });
            if let Some(sent) = self.lowest_bits[at].1.get_mut(first..=last) {
                sent.fill(bit);
            }
        }
    }
}
