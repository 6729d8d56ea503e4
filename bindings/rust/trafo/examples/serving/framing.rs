//! Requests that name their length twice.
//!
//! hyper accepts a `Content-Length` that is repeated with the same value, and passes on one of the two. A proxy that
//! reads them in another way would see another end of the body, so they are refused here, before hyper reads them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether a request of a connection had an ambiguous length. It never becomes false again: nobody can tell where the
/// next request begins.
#[derive(Clone, Default)]
pub struct Ambiguous(Arc<AtomicBool>);

impl Ambiguous {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The part of a head that has been read.
#[derive(Default)]
struct Head {
    line: Vec<u8>,
    begun: bool,
    length: Option<u64>,
    lengths: usize,
    chunked: bool,
}

/// The part that the next byte belongs to.
enum Part {
    Head(Head),
    Body(u64),
    /// Of a request after which the connection ends.
    Rest,
}

/// Reads the heads of the requests that pass through it. A read of the client never goes beyond the end of a head, so
/// that hyper gives the request to its service before the next head is read.
pub struct Heads<T> {
    inner: T,
    held: VecDeque<u8>,
    part: Part,
    most: usize,
    ambiguous: Ambiguous,
}

impl<T> Heads<T> {
    /// `most`: bytes of a line that can matter; hyper refuses a longer one.
    pub fn new(inner: T, most: usize, ambiguous: Ambiguous) -> Self {
        Heads { inner, held: VecDeque::new(), part: Part::Head(Head::default()), most, ambiguous }
    }

    /// How many of the held bytes, at most `room`, may be passed on now.
    fn advance(&mut self, room: usize) -> usize {
        let have = self.held.len().min(room);
        match &mut self.part {
            Part::Rest => have,
            Part::Body(left) => {
                let count = have.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                if *left == 0 {
                    self.part = Part::Head(Head::default());
                }
                count
            }
            Part::Head(head) => {
                for (i, &byte) in self.held.iter().take(have).enumerate() {
                    if byte != b'\n' {
                        if head.line.len() < self.most {
                            head.line.push(byte);
                        }
                    } else if head.end_line() {
                        self.part = head.next(&self.ambiguous);
                        return i + 1;
                    }
                }
                have
            }
        }
    }
}

impl Head {
    /// Whether the head ends with this line.
    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii();
        if line.is_empty() {
            return self.begun; // empty lines before a request are skipped
        }
        let request_line = !std::mem::replace(&mut self.begun, true);
        let Some(colon) = line.iter().position(|&byte| byte == b':').filter(|_| !request_line)
        else {
            return false;
        };
        let (name, value) = (line[..colon].trim_ascii(), &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths += 1;
            self.length = std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.chunked = true;
        }
        false
    }

    /// The part that comes after the head.
    fn next(&self, ambiguous: &Ambiguous) -> Part {
        if self.lengths + usize::from(self.chunked) > 1 {
            ambiguous.0.store(true, Ordering::Release);
            return Part::Rest;
        }
        match self.length {
            _ if self.chunked => Part::Rest,
            Some(0) | None => Part::Head(Head::default()), // hyper refuses a length that is no number
            Some(length) => Part::Body(length),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Heads<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.held.is_empty() {
            let mut bytes = [0; 8 << 10];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut read))?;
            this.held.extend(read.filled());
        }
        let count = this.advance(buffer.remaining());
        let passed: Vec<u8> = this.held.drain(..count).collect();
        buffer.put_slice(&passed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heads<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
