//! Connections: how many there may be, how long they may be idle, and an orderly end.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::framing::{Ambiguous, Heads};

/// Status and message.
pub type Refusal = (u16, String);

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// With `refusal`, the answer is this status and message, whatever the request is.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        refusal: Option<Refusal>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

struct Shared<H> {
    handler: Arc<H>,
    most: usize,
    open: AtomicUsize,
}

pub struct Server {
    address: SocketAddr,
    end: oneshot::Sender<Duration>,
    thread: JoinHandle<usize>,
}

/// For the head of a request, which is also how long a connection may be idle, and for its body.
pub const PATIENCE: Duration = Duration::from_secs(30);
const MOST_HEADERS: usize = 64;
const MOST_HEADER_BYTES: usize = 16 << 10;

impl Server {
    /// `most`: connections at a time; requests of those beyond it are refused with 503.
    pub fn start<H: Handler>(listener: TcpListener, most: usize, handler: H) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { handler: Arc::new(handler), most, open: AtomicUsize::new(0) });
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || serve(&runtime, listener, &shared, ended));
        Ok(Server { address, end, thread })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no new connections and answers every accepted request. Returns the number of connections that were left
    /// after `grace`: they are closed, and the futures of their requests are dropped.
    pub fn shutdown(self, grace: Duration) -> usize {
        // The thread waits for nothing else.
        let _ = self.end.send(grace);
        self.thread.join().expect("the server does not panic")
    }
}

/// Serves until `ended` says how long the connections may take to end. Returns how many were left.
fn serve<H: Handler>(
    runtime: &Runtime,
    listener: TcpListener,
    shared: &Arc<Shared<H>>,
    ended: oneshot::Receiver<Duration>,
) -> usize {
    runtime.block_on(async {
        let graceful = Arc::new(GracefulShutdown::new());
        let clone = listener.try_clone().and_then(tokio::net::TcpListener::from_std);
        let accepting = tokio::spawn(accept(clone, shared.clone(), graceful.clone()));
        let grace = ended.await.unwrap_or_default();
        accepting.abort();
        let _ = accepting.await; // cancelled, as asked
        while let Ok((stream, _)) = listener.accept() {
            // Accepted by the system before the end.
            take(stream, shared, &graceful);
        }
        drop(listener);
        let graceful = Arc::into_inner(graceful).expect("nobody accepts any more");
        let _ = tokio::time::timeout(grace, graceful.shutdown()).await; // the count says what is left
        shared.open.load(Ordering::Acquire)
    })
}

async fn accept<H: Handler>(
    listener: io::Result<tokio::net::TcpListener>,
    shared: Arc<Shared<H>>,
    graceful: Arc<GracefulShutdown>,
) {
    let listener = listener.expect("a listener that can be registered");
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => take(stream, &shared, &graceful),
            // Out of file descriptors, for instance.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Counts a connection while it lives.
struct Counted<H>(Arc<Shared<H>>);

impl<H> Drop for Counted<H> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a connection in a separate task.
fn take<H: Handler>(stream: TcpStream, shared: &Arc<Shared<H>>, graceful: &GracefulShutdown) {
    let before = shared.open.fetch_add(1, Ordering::AcqRel);
    let counted = Counted(shared.clone());
    let crowded = before >= shared.most;
    let opened = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
    let Ok(stream) = opened.and_then(|()| tokio::net::TcpStream::from_std(stream)) else { return };
    let handler = shared.handler.clone();
    let ambiguous = Ambiguous::default();
    let stream = Heads::new(stream, MOST_HEADER_BYTES, ambiguous.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let refusal = if crowded {
            Some((503, "too many connections, try again later".to_string()))
        } else if ambiguous.is_set() {
            Some((400, "the request names its length twice".to_string()))
        } else {
            None
        };
        answer(request, handler.clone(), refusal)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(MOST_HEADERS)
        .max_buf_size(MOST_HEADER_BYTES)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        let _counted = counted;
        // A client that has gone, or does not speak HTTP, has been answered as far as that goes.
        let _ = connection.await;
    });
}

async fn answer<H: Handler>(
    request: Request<Incoming>,
    handler: Arc<H>,
    refusal: Option<Refusal>,
) -> Result<Response<H::Body>, Infallible> {
    // `Heads` does not look for the end of a body in chunks.
    let last = refusal.is_some() || request.headers().contains_key(TRANSFER_ENCODING);
    let mut response = handler.answer(request, refusal).await;
    if last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
