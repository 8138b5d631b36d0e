//! What a JPEG says of itself before its first scan.
//!
//! The decoder reads headers too, but refuses what it does not know with words of its own; here the
//! kinds are told apart, so that a sender learns *what* is not supported. The walk forgives what
//! decoders forgive (fill bytes, garbage between segments) and takes no memory.

use super::super::image_size::ImageSize;

/// The frame header (SOF segment) of a JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// The marker's second byte: which coding process.
    process: u8,
    precision: u8,
    components: u8,
    /// Whether the components are sampled in a way that decoders know.
    usual_sampling: bool,
    /// As coded, before orientation.
    pub(super) size: ImageSize,
}

/// Finds the frame header; `None` when there is none before the first scan.
pub(super) fn frame_header(bytes: &[u8]) -> Option<FrameHeader> {
    Segments::of(bytes).find_map(|segment| match segment.marker {
        // C4, C8 and CC are tables and a reserved code in the midst of the frame markers; F7 is JPEG-LS.
        0xc4 | 0xc8 | 0xcc => None,
        0xc0..=0xcf | 0xf7 => FrameHeader::read(segment.marker, segment.body),
        _ => None,
    })
}

/// Whether there is a scan.
pub(super) fn has_scan(bytes: &[u8]) -> bool {
    Segments::of(bytes).any(|segment| segment.marker == SOS)
}

pub(super) const EOI: u8 = 0xd9;
pub(super) const SOS: u8 = 0xda;

/// One marker segment.
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    /// What follows the length; shorter than that says when the bytes end.
    pub(super) body: &'a [u8],
    /// The offset behind it in all the bytes.
    pub(super) body_end: usize,
}

/// Walks the segments up to the next scan's header, inclusive, or to the end marker.
pub(super) struct Segments<'a> {
    bytes: &'a [u8],
    /// Where to look for the next marker; past the end when the walk is over.
    at: usize,
}

// === impl FrameHeader ===

impl FrameHeader {
    fn read(process: u8, body: &[u8]) -> Option<Self> {
        let &[precision, h1, h0, w1, w0, components, ref rest @ ..] = body else {
            return None;
        };
        // An id, the horizontal and vertical factor in a byte, and a table for each.
        let factors = rest.chunks_exact(3).take(components.into());
        let factors: Vec<(u8, u8)> = factors
            .map(|component| (component[1] >> 4, component[1] & 0xf))
            .collect();
        Some(Self {
            process,
            precision,
            components,
            usual_sampling: usual_sampling(&factors),
            size: ImageSize {
                width: u16::from_be_bytes([w1, w0]).into(),
                height: u16::from_be_bytes([h1, h0]).into(),
            },
        })
    }

    /// Whether the coefficients come in several scans, bit by bit.
    pub(super) fn is_progressive(&self) -> bool {
        self.process == 0xc2
    }

    /// How many components there are.
    pub(super) fn components(&self) -> usize {
        self.components.into()
    }

    /// The name of this kind of JPEG when it is one that is not decoded here.
    pub(super) fn unsupported(&self) -> Option<&'static str> {
        match self.process {
            0xc0..=0xc2 if self.precision == 12 => Some("12-bit JPEG; send 8-bit JPEG"),
            0xc0..=0xc2 if self.precision != 8 => Some("JPEG of other than 8 bits"),
            0xc0..=0xc2 if !matches!(self.components, 1 | 3 | 4) => {
                Some("JPEG of other than 1, 3 or 4 components")
            }
            0xc0..=0xc2 if !self.usual_sampling => {
                Some("JPEG of unusual subsampling; send 4:4:4, 4:2:2 or 4:2:0")
            }
            0xc0..=0xc2 => None,
            0xc3 => Some("lossless JPEG; send baseline or progressive JPEG"),
            0xc5..=0xc7 | 0xcd..=0xcf => {
                Some("hierarchical JPEG; send baseline or progressive JPEG")
            }
            0xc9 | 0xca => {
                Some("arithmetic-coded JPEG; send Huffman-coded baseline or progressive JPEG")
            }
            0xcb => Some("lossless arithmetic-coded JPEG; send baseline or progressive JPEG"),
            _ => Some("JPEG-LS; send baseline or progressive JPEG"),
        }
    }
}

/// Whether the first of several components is sampled most finely and the others at a whole fraction of it. The standard
/// allows more; no camera makes it, and decoders that meet it panic or guess.
fn usual_sampling(factors: &[(u8, u8)]) -> bool {
    let Some((&(h, v), others)) = factors.split_first() else {
        return true;
    };
    let whole = |most: u8, factor: u8| factor > 0 && factor <= most && most.is_multiple_of(factor);
    others
        .iter()
        .all(|(other_h, other_v)| whole(h, *other_h) && whole(v, *other_v))
}

// === impl Segments ===

impl<'a> Segments<'a> {
    /// Those of a file, from its start.
    fn of(bytes: &'a [u8]) -> Self {
        Self::from(bytes, 2)
    }

    /// Those from an offset on.
    pub(super) fn from(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        loop {
            let rest = self.bytes.get(self.at..)?;
            let prefix = rest.iter().position(|&byte| byte == 0xff)?;
            let fill = rest[prefix..].iter().position(|&byte| byte != 0xff)?;
            let marker = rest[prefix + fill];
            let body_start = self.at + prefix + fill + 1;
            match marker {
                // Not a marker, or one without a body.
                0x00 | 0x01 | 0xd0..=0xd8 => {
                    self.at = body_start;
                    continue;
                }
                EOI => {
                    self.at = usize::MAX;
                    return None;
                }
                _ => {}
            }
            let &[l1, l0, ..] = self.bytes.get(body_start..)? else {
                return None;
            };
            let len = usize::from(u16::from_be_bytes([l1, l0])).max(2);
            let body_end = (body_start + len).min(self.bytes.len());
            self.at = if marker == SOS { usize::MAX } else { body_end };
            return Some(Segment {
                marker,
                body: &self.bytes[(body_start + 2).min(body_end)..body_end],
                body_end,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOF: &[u8] = &[0, 11, 8, 0x01, 0x02, 0x03, 0x04, 1, 1, 0x11, 0];

    fn jpeg(process: u8) -> Vec<u8> {
        // a comment that holds what looks like a frame header
        let comment = [&[0xff, 0xfe, 0, 15, 0xff, 0xc0][..], SOF].concat();
        [&[0xff, 0xd8][..], &comment, &[0xff, process], SOF].concat()
    }

    #[test]
    fn the_frame_header_is_found_behind_other_segments() {
        let header = frame_header(&jpeg(0xc0)).unwrap();
        assert_eq!(header.size, ImageSize::new(0x0304, 0x0102));
        assert_eq!(header.unsupported(), None);
    }

    #[test]
    fn garbage_and_fill_bytes_between_segments_are_passed_over() {
        let odd = [
            &[0xff, 0xd8, 1, 2, 3, 4, 5, 0xff, 0xff, 0xff, 0xc2][..],
            SOF,
        ]
        .concat();
        assert!(frame_header(&odd).is_some());
    }

    #[test]
    fn unsupported_kinds_are_named() {
        for (process, name) in [
            (0xc3, "lossless"),
            (0xc5, "hierarchical"),
            (0xc9, "arithmetic"),
            (0xca, "arithmetic"),
            (0xf7, "JPEG-LS"),
        ] {
            let header = frame_header(&jpeg(process)).unwrap();
            assert!(header.unsupported().unwrap().starts_with(name));
        }
        let mut deep = jpeg(0xc1);
        let precision = deep.len() - SOF.len() + 2;
        deep[precision] = 12;
        let header = frame_header(&deep).unwrap();
        assert!(header.unsupported().unwrap().starts_with("12-bit"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(bytes in prop::collection::vec(
            prop_oneof![Just(0xff), Just(SOS), Just(0u8), any::<u8>()], 0..200)) {
            let _ = frame_header(&bytes);
        }
    }
}
