//! The bytes of a JPEG as its decoder reads them: where a scan's data end, more bits follow on demand.
//!
//! The decoder itself goes on with zeros when a scan's data end too early, and says nothing. Here it reads
//! ones instead, as many as it wants. Ones alone are no code of any Huffman table, so that it stops at the
//! first block that is not there; where a scan holds plain bits it does not stop, and they are counted.
//! A whole scan is read as ever: the decoder looks a few bytes ahead, and drops them at the marker.

use std::cell::Cell;

use zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom};

use super::jpeg_header::EOI;
use super::jpeg_scans::{Scans, is_restart, next_marker};

/// What is read behind a scan's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filling {
    /// Bits that no code begins with.
    Ones,
    /// Other bits than those: what a picture shares with both does not depend on them.
    Zeros,
}

/// How far a decoder read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Whether the end of the last scan's data was reached.
    reached_end: Cell<bool>,
    /// Whether more was read behind some data than a look ahead takes.
    ran_out: Cell<bool>,
}

/// Reads a JPEG for the decoder.
#[derive(Debug)]
pub(super) struct Source<'a> {
    bytes: &'a [u8],
    scans: &'a Scans,
    filling: Filling,
    reading: &'a Reading,
    /// Where the next byte lies.
    at: usize,
    /// The bytes up to where a filling comes next, or all.
    run: &'a [u8],
    /// The scan that a filling comes in or behind; past the last when none comes any more.
    scan: usize,
    /// Bytes read of the filling here.
    filled: usize,
    /// Bytes of an end marker that is missing which have been read.
    end_read: usize,
}

/// The most that the decoder looks ahead: its buffer of 64 bits.
const LOOK_AHEAD: usize = 8;

// === impl Reading ===

impl Reading {
    /// Whether the decoder came to the end of the last scan's data; not far from it, when it failed.
    pub(super) fn reached_end(&self) -> bool {
        self.reached_end.get()
    }

    /// Whether it wanted bits that are not there.
    pub(super) fn ran_out(&self) -> bool {
        self.ran_out.get()
    }
}

// === impl Source ===

impl<'a> Source<'a> {
    /// Reads `bytes`, whose scans are known, from the start.
    pub(super) fn new(
        bytes: &'a [u8],
        scans: &'a Scans,
        filling: Filling,
        reading: &'a Reading,
    ) -> Self {
        let mut source = Self {
            bytes,
            scans,
            filling,
            reading,
            at: 0,
            run: bytes,
            scan: 0,
            filled: 0,
            end_read: 0,
        };
        source.run_on(0);
        source
    }

    /// Finds where the next filling comes at or behind `from`.
    fn run_on(&mut self, from: usize) {
        self.filled = 0;
        self.run = self.bytes;
        while let Some(scan) = self.scans.list.get(self.scan) {
            let from = from.max(scan.start);
            if from <= scan.end {
                if scan.has_restarts
                    && let Some(restart) = self.next_restart(from, scan.end)
                {
                    self.run = &self.bytes[..restart];
                    return;
                }
                let is_last = self.scan + 1 == self.scans.list.len();
                // The decoder wants the marker behind the first of several scans in what it has looked ahead:
                // that one must not be far.
                if is_last || self.scan > 0 {
                    self.run = &self.bytes[..scan.end];
                    return;
                }
            }
            self.scan += 1;
        }
    }

    fn next_restart(&self, from: usize, end: usize) -> Option<usize> {
        let (offset, marker) = next_marker(self.bytes.get(from..end)?)?;
        is_restart(marker).then_some(from + offset)
    }

    /// Whether a filling comes here.
    fn is_at_filling(&self) -> bool {
        self.at == self.run.len() && self.scan < self.scans.list.len()
    }

    /// A byte where the run is over: of the filling, for a decoder that wants bits.
    #[cold]
    fn fill(&mut self) -> u8 {
        if !self.is_at_filling() {
            self.at += 1;
            return 0;
        }
        if self.scan + 1 == self.scans.list.len() && self.at == self.scans.list[self.scan].end {
            self.reading.reached_end.set(true);
        }
        self.filled += 1;
        match self.filling {
            // Each is followed by a zero, as in any data.
            Filling::Ones => {
                self.note(self.filled.div_ceil(2));
                if self.filled % 2 == 1 { 0xff } else { 0x00 }
            }
            Filling::Zeros => {
                self.note(self.filled);
                0
            }
        }
    }

    fn note(&self, bytes: usize) {
        if bytes > LOOK_AHEAD {
            self.reading.ran_out.set(true);
        }
    }

    /// A byte where the run is over: of the marker behind it, for a decoder that looks for one.
    #[cold]
    fn pass(&mut self) -> Option<u8> {
        let last = self.scans.list.last();
        if !self.scans.has_end && last.is_some_and(|scan| self.at >= scan.end) {
            let byte = [0xff, EOI].get(self.end_read).copied();
            self.end_read += 1;
            return byte;
        }
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        self.run_on(self.at);
        Some(byte)
    }
}

impl ZByteReaderTrait for Source<'_> {
    #[inline(always)]
    fn read_byte_no_error(&mut self) -> u8 {
        match self.run.get(self.at) {
            Some(&byte) => {
                self.at += 1;
                byte
            }
            None => self.fill(),
        }
    }

    #[inline(always)]
    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        if let Some(bytes) = self.run.get(self.at..self.at + buf.len()) {
            buf.copy_from_slice(bytes);
            self.at += buf.len();
            return Ok(());
        }
        // One byte alone is asked for in looking for a marker; the bits of a block are asked for by fours.
        if let [only] = buf
            && let Some(byte) = self.pass()
        {
            *only = byte;
            return Ok(());
        }
        Err(ZByteIoError::NotEnoughBytes(
            self.run.len().saturating_sub(self.at),
            buf.len(),
        ))
    }

    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        let len = self.peek_bytes(buf)?;
        self.at += len;
        Ok(len)
    }

    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        let rest = self.run.get(self.at..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        let len = self.peek_bytes(buf)?;
        if len < buf.len() {
            return Err(ZByteIoError::NotEnoughBytes(len, buf.len()));
        }
        Ok(())
    }

    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        let (base, offset) = match from {
            ZSeekFrom::Start(offset) => (0, i64::try_from(offset).unwrap_or(i64::MAX)),
            ZSeekFrom::End(offset) => (self.bytes.len(), offset),
            ZSeekFrom::Current(offset) => (self.at, offset),
        };
        let to = isize::try_from(offset)
            .ok()
            .and_then(|offset| base.checked_add_signed(offset))
            .ok_or(ZByteIoError::SeekError("beyond any offset"))?;
        // A step back goes over bytes of this run that were just read.
        if to > self.run.len() {
            self.run_on(to);
        }
        self.at = to;
        Ok(to as u64)
    }

    #[inline(always)]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        Ok(self.at >= self.run.len() && self.end_read >= 2
            || self.at >= self.bytes.len() && !self.is_at_filling())
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok(self.at as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        sink.extend_from_slice(rest);
        self.at = self.bytes.len();
        Ok(rest.len())
    }
}
