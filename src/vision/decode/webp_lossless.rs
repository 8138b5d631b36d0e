//! What a lossless WebP's code tables will take, told before they are built.
//!
//! A picture may be coded in up to 65,536 groups of five prefix codes, however few its pixels are, and a
//! code of a few bytes unfolds to a table of 80 kB: a file of two megabytes that shows 16 pixels takes
//! gigabytes. The decoder builds whatever is asked of it. So what stands in front of the pixels is walked
//! here first, without building anything, and the tables are added up.

use super::DecodeError;

/// What the tables may take. The common encoder writes 2,600 groups at most, whose tables take some 20 kB each.
pub(super) const MAX_TABLE_BYTES: usize = 64 << 20;

/// Length codes of the copies, before the places of the colour cache in the first alphabet.
const LENGTH_CODES: usize = 24;

/// The other alphabets: red, blue, alpha, distances.
const ALPHABETS: [usize; 4] = [256, 256, 256, 40];

/// Bits of a code that the decoder looks up at once; what is longer hangs on trees.
const LOOKUP_BITS: usize = 10;

/// A place in the lookup table, and a place in a tree. Each long code takes two.
const LOOKUP_BYTES: usize = 4;
const NODE_BYTES: usize = 16;

/// What a code takes that unfolds to nothing, allocations included.
const CODE_BYTES: usize = 96;

/// The longest code.
const MAX_LENGTH: usize = 15;

/// Walks the payload of a VP8L chunk up to its pixels.
///
/// # Errors
/// [`DecodeError::Corrupt`] when the tables would take more than [`MAX_TABLE_BYTES`], or the way to the
/// pixels is broken.
pub(super) fn check(payload: &[u8]) -> Result<(), DecodeError> {
    match walk(payload) {
        Some(bytes) if bytes <= MAX_TABLE_BYTES => Ok(()),
        Some(_) => Err(DecodeError::corrupt(
            "the code tables of the WebP are far larger than its picture can need",
        )),
        None => Err(DecodeError::corrupt(
            "the code tables of the WebP are broken",
        )),
    }
}

/// Adds up the tables; `None` when the bits end or make no sense.
fn walk(payload: &[u8]) -> Option<usize> {
    let mut bits = Bits::of(payload);
    bits.read(8)?;
    let mut width = bits.read(14)? + 1;
    let height = bits.read(14)? + 1;
    bits.read(4)?;

    // Each of the four kinds of transform comes once at most.
    let mut transforms = 0;
    while bits.read(1)? == 1 {
        let kind = bits.read(2)?;
        if transforms & 1 << kind != 0 {
            return None;
        }
        transforms |= 1 << kind;
        match kind {
            0 | 1 => {
                let block = bits.read(3)? + 2;
                largest_group(&mut bits, tiles(width, block) * tiles(height, block))?;
            }
            2 => {}
            _ => {
                let colors = bits.read(8)? + 1;
                largest_group(&mut bits, colors as usize)?;
                let packed = match colors {
                    ..=2 => 3,
                    3..=4 => 2,
                    5..=16 => 1,
                    _ => 0,
                };
                width = tiles(width, packed) as u32;
            }
        }
    }

    let cache = color_cache(&mut bits)?;
    let mut groups = 1;
    if bits.read(1)? == 1 {
        let block = bits.read(3)? + 2;
        groups += largest_group(&mut bits, tiles(width, block) * tiles(height, block))?;
    }
    let mut bytes = 0;
    for _ in 0..groups {
        for code in codes(&mut bits, cache)? {
            bytes += code.bytes;
        }
        // What is above the limit is refused, however much above.
        if bytes > MAX_TABLE_BYTES {
            break;
        }
    }
    Some(bytes)
}

/// Walks an image without groups of its own, and returns the largest number in its red and green.
///
/// Neither what is copied nor what comes out of the colour cache can be larger than what was written
/// out before, so the pixels themselves need not be kept.
fn largest_group(bits: &mut Bits<'_>, pixels: usize) -> Option<usize> {
    let cache = color_cache(bits)?;
    let [green, red, blue, alpha, distance] = codes(bits, cache)?;
    let (mut largest, mut done) = (0, 0);
    while done < pixels {
        let symbol = green.read(bits)?;
        if symbol < 256 {
            largest = largest.max(red.read(bits)? << 8 | symbol);
            blue.read(bits)?;
            alpha.read(bits)?;
            done += 1;
        } else if symbol < 256 + LENGTH_CODES {
            done += extended(bits, symbol - 256)?;
            let symbol = distance.read(bits)?;
            extended(bits, symbol)?;
        } else {
            done += 1;
        }
    }
    Some(largest)
}

/// The number of a length or distance code: small ones as they are, others followed by more bits.
fn extended(bits: &mut Bits<'_>, symbol: usize) -> Option<usize> {
    if symbol < 4 {
        return Some(symbol + 1);
    }
    let extra = (symbol - 2) >> 1;
    let offset = (2 + (symbol & 1)) << extra;
    Some(offset + bits.read(extra as u32)? as usize + 1)
}

/// Places in the colour cache.
fn color_cache(bits: &mut Bits<'_>) -> Option<usize> {
    if bits.read(1)? == 0 {
        return Some(0);
    }
    let size = bits.read(4)?;
    (1..=11).contains(&size).then(|| 1 << size)
}

fn tiles(side: u32, block_bits: u32) -> usize {
    side.div_ceil(1 << block_bits) as usize
}

/// The five codes of a group: green with lengths and cache, red, blue, alpha, distances.
fn codes(bits: &mut Bits<'_>, cache: usize) -> Option<[Code; 5]> {
    let green = Code::of(bits, 256 + LENGTH_CODES + cache)?;
    let [red, blue, alpha, distance] = ALPHABETS;
    Some([
        green,
        Code::of(bits, red)?,
        Code::of(bits, blue)?,
        Code::of(bits, alpha)?,
        Code::of(bits, distance)?,
    ])
}

/// A prefix code.
struct Code {
    /// How many symbols have a code of each length; none where there is one symbol only, which takes no bits.
    counts: [u16; MAX_LENGTH + 1],
    /// The symbols by their codes.
    symbols: Vec<u16>,
    /// What the decoder's form of it takes.
    bytes: usize,
}

// === impl Code ===

impl Code {
    /// Reads a code over an alphabet.
    fn of(bits: &mut Bits<'_>, alphabet: usize) -> Option<Self> {
        const ORDER: [usize; 19] = [
            17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        ];
        if bits.read(1)? == 1 {
            let two = bits.read(1)? == 1;
            let width = if bits.read(1)? == 1 { 8 } else { 1 };
            let first = bits.read(width)? as u16;
            let second = if two {
                Some(bits.read(8)? as u16)
            } else {
                None
            };
            return Self::simple(first, second, alphabet);
        }
        let mut lengths = [0; 19];
        let given = 4 + bits.read(4)? as usize;
        for place in ORDER.iter().take(given) {
            lengths[*place] = bits.read(3)? as u8;
        }
        Self::of_lengths(&read_lengths(bits, &Self::of_lengths(&lengths)?, alphabet)?)
    }

    fn simple(first: u16, second: Option<u16>, alphabet: usize) -> Option<Self> {
        let symbols: Vec<u16> = [Some(first), second].into_iter().flatten().collect();
        if symbols
            .iter()
            .any(|symbol| usize::from(*symbol) >= alphabet)
        {
            return None;
        }
        let mut counts = [0; MAX_LENGTH + 1];
        if second.is_some() {
            counts[1] = 2;
        }
        Some(Self {
            counts,
            symbols,
            bytes: CODE_BYTES,
        })
    }

    /// Makes the code of its symbols' lengths, zero for those that do not occur.
    fn of_lengths(lengths: &[u8]) -> Option<Self> {
        let mut counts = [0u16; MAX_LENGTH + 1];
        for length in lengths {
            counts[usize::from(*length)] += 1;
        }
        counts[0] = 0;
        let mut symbols: Vec<u16> = (0..lengths.len() as u16)
            .filter(|symbol| lengths[usize::from(*symbol)] != 0)
            .collect();
        symbols.sort_by_key(|symbol| lengths[usize::from(*symbol)]);
        match symbols.len() {
            0 => return None,
            1 => counts = [0; MAX_LENGTH + 1],
            // Every way through the bits leads to a symbol.
            _ if kraft(&counts) != 1 << MAX_LENGTH => return None,
            _ => {}
        }
        let longest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let long: usize = counts[LOOKUP_BITS + 1..]
            .iter()
            .map(|count| usize::from(*count))
            .sum();
        let bytes = CODE_BYTES + (LOOKUP_BYTES << longest.min(LOOKUP_BITS)) + 2 * NODE_BYTES * long;
        Some(Self {
            counts,
            symbols,
            bytes,
        })
    }

    /// Reads one symbol.
    fn read(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let [only] = self.symbols[..] else {
            return self.read_coded(bits);
        };
        Some(usize::from(only))
    }

    fn read_coded(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            let count = usize::from(*count);
            code = code << 1 | bits.read(1)? as usize;
            if code < first + count {
                return self
                    .symbols
                    .get(index + code - first)
                    .copied()
                    .map(usize::from);
            }
            index += count;
            first = (first + count) << 1;
        }
        None
    }
}

/// The share of all ways through the bits that codes of these lengths take, in parts of `1 << MAX_LENGTH`.
fn kraft(counts: &[u16; MAX_LENGTH + 1]) -> u32 {
    let shares = counts.iter().enumerate();
    shares
        .map(|(length, count)| u32::from(*count) << (MAX_LENGTH - length))
        .sum()
}

/// Reads the lengths of an alphabet's codes, themselves coded.
fn read_lengths(bits: &mut Bits<'_>, code: &Code, alphabet: usize) -> Option<Vec<u8>> {
    let mut lengths = vec![0; alphabet];
    let mut left = alphabet;
    if bits.read(1)? == 1 {
        let width = 2 + 2 * bits.read(3)?;
        left = 2 + bits.read(width)? as usize;
        if left > alphabet {
            return None;
        }
    }
    let (mut at, mut previous) = (0, 8);
    while at < alphabet && left > 0 {
        left -= 1;
        let (length, times) = match code.read(bits)? {
            length @ 0..=15 => (length as u8, 1),
            16 => (previous, 3 + bits.read(2)? as usize),
            17 => (0, 3 + bits.read(3)? as usize),
            _ => (0, 11 + bits.read(7)? as usize),
        };
        if length != 0 {
            previous = length;
        }
        lengths.get_mut(at..at + times)?.fill(length);
        at += times;
    }
    Some(lengths)
}

/// Bits, the least significant of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

// === impl Bits ===

impl<'a> Bits<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads a number of up to 24 bits; `None` past the end.
    fn read(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for place in 0..count {
            let byte = *self.bytes.get(self.at / 8)?;
            value |= u32::from(byte >> (self.at % 8) & 1) << place;
            self.at += 1;
        }
        Some(value)
    }
}
