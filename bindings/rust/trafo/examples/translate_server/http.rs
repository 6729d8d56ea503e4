//! As much of HTTP/1.1 as the service needs, on blocking sockets: requests with a length, persistent connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const MOST_HEADERS: usize = 64;
const MOST_HEADER_BYTES: usize = 16 << 10;
/// How often a connection that waits looks whether the server is to end, or the client has gone.
pub const TICK: Duration = Duration::from_millis(20);

pub struct Request {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    pub keep_alive: bool,
}

/// Why there is no request.
pub enum Failure {
    /// The client has gone, is too slow, or the server ends.
    Closed,
    /// To be told to the client, and then the connection is of no use.
    Refused(u16, String),
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Failure::Closed
    }
}

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>, // received, not yet used
}

struct Head {
    method: String,
    path: String,
    keep_alive: bool,
    length: usize,
    expects_continue: bool,
    bytes: usize,
}

impl Connection {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    /// The next request. Waits `idle` for its first byte, then `patience` for the whole; `ending` closes a connection
    /// on which nothing has arrived.
    pub fn read(
        &mut self,
        most_body: usize,
        idle: Duration,
        patience: Duration,
        ending: &dyn Fn() -> bool,
    ) -> Result<Request, Failure> {
        let mut deadline = Instant::now() + idle;
        while self.buffer.is_empty() {
            self.receive()?;
            if self.buffer.is_empty() && (ending() || Instant::now() > deadline) {
                return Err(Failure::Closed);
            }
        }
        deadline = Instant::now() + patience;
        let head = loop {
            if let Some(head) = parse(&self.buffer)? {
                break head;
            }
            if self.buffer.len() > MOST_HEADER_BYTES {
                return Err(Failure::Refused(431, "the header is too long".into()));
            }
            self.receive_before(deadline)?;
        };
        if head.length > most_body {
            let message = format!("a request has at most {most_body} bytes");
            return Err(Failure::Refused(413, message));
        }
        if head.expects_continue {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        while self.buffer.len() < head.bytes + head.length {
            self.receive_before(deadline)?;
        }
        let body = self.buffer[head.bytes..head.bytes + head.length].to_vec();
        self.buffer.drain(..head.bytes + head.length);
        Ok(Request { method: head.method, path: head.path, body, keep_alive: head.keep_alive })
    }

    fn receive_before(&mut self, deadline: Instant) -> Result<(), Failure> {
        if Instant::now() > deadline {
            return Err(Failure::Refused(408, "the request did not arrive in time".into()));
        }
        self.receive()
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Failure::Closed),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if is_timeout(&error) => Ok(()),
            Err(_) => Err(Failure::Closed),
        }
    }

    /// Takes what a refused client still sends, for a while: closing at once could take the answer away from it.
    pub fn drain(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let _ = self.stream.shutdown(Shutdown::Write);
        while Instant::now() < deadline && self.receive().is_ok() {
            self.buffer.clear();
        }
    }

    /// Whether the client has closed the connection.
    pub fn is_closed(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let closed = match self.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => !is_timeout(&error),
        };
        self.stream.set_nonblocking(false).is_err() || closed
    }

    pub fn write(
        &mut self,
        status: u16,
        content_type: &str,
        body: &str,
        keep_alive: bool,
    ) -> io::Result<()> {
        let retry = if status == 503 { "Retry-After: 1\r\n" } else { "" };
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{retry}Connection: {connection}\r\n\r\n",
            reason(status),
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// None: the head is not complete.
fn parse(buffer: &[u8]) -> Result<Option<Head>, Failure> {
    let refused = |status, message: &str| Failure::Refused(status, message.into());
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let bytes = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(refused(400, &format!("not HTTP: {error}"))),
    };
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.map(|h| String::from_utf8_lossy(h.value).trim().to_ascii_lowercase())
    };
    if header("transfer-encoding").is_some() {
        return Err(refused(411, "give the body's length: Content-Length"));
    }
    let length = match header("content-length").map(|length| length.parse()) {
        None => 0,
        Some(Ok(length)) => length,
        Some(Err(_)) => return Err(refused(400, "Content-Length is no number")),
    };
    let connection = header("connection").unwrap_or_default();
    Ok(Some(Head {
        method: parsed.method.unwrap_or_default().into(),
        path: parsed.path.unwrap_or_default().into(),
        keep_alive: parsed.version == Some(1) && connection != "close",
        length,
        expects_continue: header("expect").is_some_and(|value| value == "100-continue"),
        bytes,
    }))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
