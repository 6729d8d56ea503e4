//! Translates over HTTP with a model that `translate-train`, or a program of yours, has trained.
//!
//!     cargo run --release --example translate_server -- RUN [ADDRESS [DEVICE]]
//!     curl -d '{"text": ["Ein Hund schläft.", "Guten Tag."], "beam": 5, "n_best": 1}' localhost:8080/translate
//!
//! RUN: a run directory; its best checkpoint by BLEU is taken, else the latest. ADDRESS: default localhost:8080. DEVICE:
//! auto (the default: CUDA where there is one), cpu, cuda or cuda:N.
//!
//! `POST /translate` takes a text or a list of texts and gives `{"translations": [{"text", "score"}]}`, with
//! "alternatives" if n_best is above 1. Lines of concurrent requests are translated together (`serving/batcher.rs` says how). A
//! client that goes away takes its lines out of the queue, and out of the engine if nobody else waits for the batch.
//! 503 says that the queue is full. `GET /healthz` answers while the server does; `GET /metrics` is for Prometheus.
//!
//! SIGTERM and SIGINT: no new connections, every accepted request is answered, then it ends.

mod model;
mod service;
#[path = "../serving/mod.rs"]
mod serving;

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use service::{Config, Service};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let run = arguments.next().ok_or("usage: translate_server RUN [ADDRESS [DEVICE]]")?;
    let address = arguments.next().unwrap_or("localhost:8080".into());
    let device = arguments.next().as_deref().unwrap_or("auto").parse()?;

    let translator = model::open(Path::new(&run), device)?;
    // Before the first request: none may be lost by a signal that nobody handles.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let service = Service::start(TcpListener::bind(&address)?, translator, Config::default())?;
    eprintln!("translating on http://{}", service.address());
    signals.forever().next();
    eprintln!("shutting down: answering what was accepted");
    match service.shutdown(Duration::from_secs(30)) {
        0 => Ok(()),
        left => Err(format!("{left} connections were left unanswered after 30 s").into()),
    }
}
