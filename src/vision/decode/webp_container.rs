//! What a WebP's container says: the canvas, the first frame's bitstream, the metadata.
//!
//! A WebP is a list of chunks, and sizes stand in up to three places: the canvas, an animation's frame,
//! the bitstream itself. Each may lie. All of them are read and compared here, before a decoder asks for
//! memory by any of them.

use super::super::image_size::ImageSize;
use super::{DecodeError, DecodeLimits};

/// A WebP, as far as it is wanted.
#[derive(Debug)]
pub(super) struct Container<'a> {
    /// The picture's size before orientation.
    pub(super) canvas: ImageSize,
    /// The first frame; of a still picture, the picture. It lies inside the canvas.
    pub(super) frame: Frame<'a>,
    /// The EXIF block.
    pub(super) exif: Option<&'a [u8]>,
}

/// A frame's place on the canvas.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) left: u32,
    pub(super) top: u32,
    pub(super) bitstream: Bitstream<'a>,
}

/// Colours, coded.
#[derive(Debug)]
pub(super) struct Bitstream<'a> {
    pub(super) kind: Kind,
    /// As the bitstream itself says.
    pub(super) size: ImageSize,
    /// The chunk's content.
    pub(super) payload: &'a [u8],
}

/// How colours are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// VP8: chroma at half the resolution.
    Lossy,
    /// VP8L.
    Lossless,
}

/// The widest that the lossless decoder reads: it takes one more for none.
const MAX_LOSSLESS_SIDE: u32 = 16_383;

/// A chunk: its name, and its content as far as there are bytes.
struct Chunk<'a> {
    name: [u8; 4],
    payload: &'a [u8],
    /// Whether all of the content is there.
    whole: bool,
}

/// Walks chunks that lie side by side.
struct Chunks<'a> {
    rest: &'a [u8],
}

// === impl Container ===

impl<'a> Container<'a> {
    /// Reads a container whose first bytes are those of a WebP.
    pub(super) fn read(bytes: &'a [u8], limits: &DecodeLimits) -> Result<Self, DecodeError> {
        // Of the whole file behind `RIFF` and this number itself. The last padding byte is often missing.
        let said = number(bytes, 4, 4).ok_or(DecodeError::Truncated)? as usize;
        let cut = bytes.len() + 1 < said.saturating_add(8);
        let end = bytes.len().min(said.saturating_add(8));
        let mut chunks = Chunks::of(bytes.get(12..end).unwrap_or_default());

        let first = chunks.next().ok_or_else(|| missing(cut))?;
        let container = match Kind::of(first.name) {
            Some(kind) => {
                let bitstream = Bitstream::read(kind, &first, limits)?;
                Self {
                    canvas: bitstream.size,
                    frame: Frame {
                        left: 0,
                        top: 0,
                        bitstream,
                    },
                    exif: None,
                }
            }
            None if first.name == *b"VP8X" => Self::read_extended(&first, chunks, cut, limits)?,
            None => return Err(DecodeError::corrupt("the WebP starts with no picture")),
        };
        // Also where all pixels are there: what is cut off may be the orientation.
        if cut {
            return Err(DecodeError::Truncated);
        }
        Ok(container)
    }

    fn read_extended(
        header: &Chunk<'a>,
        chunks: Chunks<'a>,
        cut: bool,
        limits: &DecodeLimits,
    ) -> Result<Self, DecodeError> {
        let side = |at| Some(number(header.payload, at, 3)? + 1);
        let (Some(width), Some(height)) = (side(4), side(7)) else {
            return Err(missing(cut));
        };
        let canvas = ImageSize::new(width, height);
        limits.check(canvas)?;

        let (mut frame, mut exif) = (None, None);
        for chunk in chunks {
            match (&chunk.name, Kind::of(chunk.name)) {
                (_, Some(kind)) if frame.is_none() => {
                    let bitstream = Bitstream::read(kind, &chunk, limits)?;
                    frame = Some(Frame {
                        left: 0,
                        top: 0,
                        bitstream,
                    });
                }
                (b"ANMF", _) if frame.is_none() => frame = Some(Frame::read(&chunk, cut, limits)?),
                (b"EXIF", _) if exif.is_none() && chunk.whole => exif = Some(chunk.payload),
                _ => {}
            }
        }
        let frame = frame.ok_or_else(|| missing(cut))?;
        let size = frame.bitstream.size;
        let fits = |start: u32, len: u32, canvas: u32| {
            u64::from(start) + u64::from(len) <= u64::from(canvas)
        };
        if !fits(frame.left, size.width, width) || !fits(frame.top, size.height, height) {
            return Err(DecodeError::corrupt("a frame reaches over the WebP's edge"));
        }
        Ok(Self {
            canvas,
            frame,
            exif,
        })
    }
}

impl<'a> Frame<'a> {
    /// Reads a frame of an animation.
    fn read(chunk: &Chunk<'a>, cut: bool, limits: &DecodeLimits) -> Result<Self, DecodeError> {
        let field = |at| number(chunk.payload, at, 3);
        let (Some(x), Some(y), Some(width), Some(height)) =
            (field(0), field(3), field(6), field(9))
        else {
            return Err(missing(cut));
        };
        let inner = Chunks::of(chunk.payload.get(16..).unwrap_or_default());
        for chunk in inner {
            let Some(kind) = Kind::of(chunk.name) else {
                continue;
            };
            let bitstream = Bitstream::read(kind, &chunk, limits)?;
            if bitstream.size != ImageSize::new(width + 1, height + 1) {
                return Err(DecodeError::corrupt("the sizes of a frame disagree"));
            }
            return Ok(Self {
                left: x * 2,
                top: y * 2,
                bitstream,
            });
        }
        Err(missing(cut))
    }
}

impl<'a> Bitstream<'a> {
    fn read(kind: Kind, chunk: &Chunk<'a>, limits: &DecodeLimits) -> Result<Self, DecodeError> {
        let payload = chunk.payload;
        let size = kind.size(payload).unwrap_or(if chunk.whole {
            Err(DecodeError::corrupt("the WebP's picture is empty"))
        } else {
            Err(DecodeError::Truncated)
        })?;
        limits.check(size)?;
        if !chunk.whole {
            return Err(DecodeError::Truncated);
        }
        if kind == Kind::Lossless && size.width.max(size.height) > MAX_LOSSLESS_SIDE {
            return Err(DecodeError::UnsupportedFormat {
                hint: "lossless WebP of 16384 pixels a side; send a smaller one, JPEG or PNG",
            });
        }
        Ok(Self {
            kind,
            size,
            payload,
        })
    }
}

// === impl Kind ===

impl Kind {
    fn of(name: [u8; 4]) -> Option<Self> {
        [Self::Lossy, Self::Lossless]
            .into_iter()
            .find(|kind| *kind.fourcc() == name)
    }

    /// The name of its chunks.
    pub(super) fn fourcc(self) -> &'static [u8; 4] {
        match self {
            Self::Lossy => b"VP8 ",
            Self::Lossless => b"VP8L",
        }
    }

    /// The size in a bitstream's header; `None` when the header is not all there.
    fn size(self, payload: &[u8]) -> Option<Result<ImageSize, DecodeError>> {
        let corrupt = |what| Some(Err(DecodeError::corrupt(what)));
        match self {
            Self::Lossy => {
                let header = payload.get(..10)?;
                if header[0] & 1 != 0 || header[3..6] != [0x9d, 0x01, 0x2a] {
                    return corrupt("the WebP's picture is no key frame of VP8");
                }
                // The upper two bits are a wish for upscaling.
                let side = |at| number(header, at, 2).map(|side| side & 0x3fff);
                Some(Ok(ImageSize::new(side(6)?, side(8)?)))
            }
            Self::Lossless => {
                let header = payload.get(..5)?;
                let bits = number(header, 1, 4)?;
                if header[0] != 0x2f || bits >> 29 != 0 {
                    return corrupt("the WebP's picture has no header of VP8L");
                }
                Some(Ok(ImageSize::new(
                    (bits & 0x3fff) + 1,
                    (bits >> 14 & 0x3fff) + 1,
                )))
            }
        }
    }
}

// === impl Chunks ===

impl<'a> Chunks<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let (&name, rest) = self.rest.split_first_chunk::<4>()?;
        let len = number(rest, 0, 4)? as usize;
        let content = &rest[4..];
        let whole = len <= content.len();
        let payload = &content[..len.min(content.len())];
        let padded = len.saturating_add(len % 2).min(content.len());
        self.rest = &content[padded..];
        Some(Chunk {
            name,
            payload,
            whole,
        })
    }
}

/// The number in `len` bytes, the least significant first.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + len)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte)),
    )
}

/// There is no picture: because it was cut off, or because it never was.
fn missing(cut: bool) -> DecodeError {
    if cut {
        DecodeError::Truncated
    } else {
        DecodeError::corrupt("there is no picture in the WebP")
    }
}
