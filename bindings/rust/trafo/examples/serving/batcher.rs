//! Lines of concurrent requests, translated together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot::{self, Receiver, Sender};
use trafo::{CancelToken, Result};

use super::metrics::Metrics;

/// The result of every line, and how many lines were cut.
pub type Found<R> = (Vec<R>, usize);

/// The model, or its replacement in a test. It is called by one thread only. `K`: the settings that lines must share to be
/// translated together; `R`: the result of a line.
pub type Translator<K, R> = Box<dyn FnMut(&[String], K, &CancelToken) -> Result<Found<R>> + Send>;

#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    QueueFull,
    Closing,
}

/// The lines of one request.
struct Job<K, R> {
    lines: Vec<String>,
    how: K,
    arrived: Instant,
    client: Arc<Client>,
    answer: Sender<Result<Vec<R>>>,
}

/// The side of a job that the client's thread keeps.
struct Client(Mutex<Presence>);

enum Presence {
    Waiting,
    Translated(Arc<Flight>),
    Gone,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, Presence> {
        self.0.lock().expect("no thread panics with the lock")
    }
    fn is_gone(&self) -> bool {
        matches!(*self.lock(), Presence::Gone)
    }
}

/// A batch in translation. It is given up when nobody waits for any of it any more.
struct Flight {
    present: AtomicUsize,
    cancel: CancelToken,
}

impl Flight {
    fn leave(&self) {
        if self.present.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.cancel.cancel();
        }
    }
}

/// A request that was accepted.
pub struct Ticket<R> {
    client: Arc<Client>,
    answer: Receiver<Result<Vec<R>>>,
}

impl<R> Ticket<R> {
    /// The results of every line; none if the thread of the model has ended. To be awaited once.
    pub async fn answer(&mut self) -> Option<Result<Vec<R>>> {
        (&mut self.answer).await.ok()
    }
}

impl<R> Drop for Ticket<R> {
    /// Who drops it before the answer is there takes the lines out of the queue, or out of the engine if nobody else
    /// waits for the batch. Afterwards it changes nothing.
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.client.lock(), Presence::Gone);
        if let Presence::Translated(flight) = before {
            flight.leave();
        }
    }
}

struct Queue<K, R> {
    waiting: VecDeque<Job<K, R>>,
    closing: bool,
}

impl<K, R> Queue<K, R> {
    fn lines(&self) -> usize {
        self.waiting.iter().map(|job| job.lines.len()).sum()
    }
    fn forget_the_gone(&mut self) {
        self.waiting.retain(|job| !job.client.is_gone());
    }
}

struct Shared<K, R> {
    queue: Mutex<Queue<K, R>>,
    changed: Condvar,
    metrics: Arc<Metrics>,
}

impl<K, R> Shared<K, R> {
    fn lock(&self) -> MutexGuard<'_, Queue<K, R>> {
        self.queue.lock().expect("no thread panics with the lock")
    }
}

/// With the thread of the model, also if it panics, ends what would wait for it.
struct Ended<K, R>(Arc<Shared<K, R>>);

impl<K, R> Drop for Ended<K, R> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closing = true;
        queue.waiting.clear(); // whoever waits for an answer finds its sender gone
        self.0.metrics.queue(0);
    }
}

/// One sentence leaves most of a processor idle, many together cost little more. The first waiting request is translated
/// when it has waited for `window`, or as soon as `most` lines wait; under load it has waited while the batch before it
/// was translated, and the window costs nothing. A batch is the waiting requests that search like the first, in the
/// order of their arrival; a request is never divided.
pub struct Batcher<K, R> {
    shared: Arc<Shared<K, R>>,
    bound: usize,
    worker: Option<JoinHandle<()>>,
}

impl<K: Copy + PartialEq + Send + 'static, R: Send + 'static> Batcher<K, R> {
    /// `most`: lines in a batch, but for a request that has more; `bound`: lines that may wait.
    pub fn new(
        translator: Translator<K, R>,
        window: Duration,
        most: usize,
        bound: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), closing: false });
        let shared = Arc::new(Shared { queue, changed: Condvar::new(), metrics });
        let theirs = shared.clone();
        // A model moves between threads but is not shared: this thread owns it.
        let worker = std::thread::spawn(move || {
            let ended = Ended(theirs);
            let theirs = &ended.0;
            let mut translator = translator;
            while let Some(batch) = next(theirs, window, most) {
                work(&mut translator, batch, &theirs.metrics);
            }
        });
        Batcher { shared, bound, worker: Some(worker) }
    }

    pub fn submit(&self, lines: Vec<String>, how: K) -> std::result::Result<Ticket<R>, Refused> {
        let client = Arc::new(Client(Mutex::new(Presence::Waiting)));
        let (answer, receiver) = oneshot::channel();
        let job = Job { lines, how, arrived: Instant::now(), client: client.clone(), answer };
        let mut queue = self.shared.lock();
        if queue.closing {
            return Err(Refused::Closing);
        }
        if queue.lines() + job.lines.len() > self.bound {
            queue.forget_the_gone();
        }
        if !queue.waiting.is_empty() && queue.lines() + job.lines.len() > self.bound {
            return Err(Refused::QueueFull);
        }
        queue.waiting.push_back(job);
        self.shared.metrics.queue(queue.lines());
        self.shared.changed.notify_one();
        Ok(Ticket { client, answer: receiver })
    }
}

impl<K, R> Drop for Batcher<K, R> {
    /// Translates what waits and then ends.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_one();
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has said so, and its clients have been told.
            let _ = worker.join();
        }
    }
}

/// Waits for a batch; none when the queue is closed and empty.
fn next<K: Copy + PartialEq, R>(
    shared: &Shared<K, R>,
    window: Duration,
    most: usize,
) -> Option<Vec<Job<K, R>>> {
    let mut queue = shared.lock();
    let (first, mut budget) = loop {
        queue.forget_the_gone();
        shared.metrics.queue(queue.lines());
        let Some(first) = queue.waiting.front() else {
            if queue.closing {
                return None;
            }
            queue = shared.changed.wait(queue).expect("no thread panics with the lock");
            continue;
        };
        let left = window.saturating_sub(first.arrived.elapsed());
        if left.is_zero() || queue.lines() >= most || queue.closing {
            break (first.how, most.max(first.lines.len()));
        }
        let waited = shared.changed.wait_timeout(queue, left);
        queue = waited.expect("no thread panics with the lock").0;
    };
    let mut batch = Vec::new();
    let mut kept = VecDeque::new();
    for job in queue.waiting.drain(..) {
        if job.how == first && job.lines.len() <= budget {
            budget -= job.lines.len();
            batch.push(job);
        } else {
            if job.how == first {
                budget = 0; // what came later does not overtake
            }
            kept.push_back(job);
        }
    }
    queue.waiting = kept;
    shared.metrics.queue(queue.lines());
    Some(batch)
}

fn work<K: Copy, R>(translator: &mut Translator<K, R>, batch: Vec<Job<K, R>>, metrics: &Metrics) {
    let flight =
        Arc::new(Flight { present: AtomicUsize::new(batch.len()), cancel: CancelToken::new() });
    for job in &batch {
        let mut presence = job.client.lock();
        if matches!(*presence, Presence::Gone) {
            flight.leave();
        } else {
            *presence = Presence::Translated(flight.clone());
        }
    }
    let lines: Vec<String> = batch.iter().flat_map(|job| job.lines.iter().cloned()).collect();
    metrics.batch(lines.len());
    let result = translator(&lines, batch[0].how, &flight.cancel);
    match result {
        Ok((found, truncated)) => {
            metrics.translated(lines.len(), truncated);
            let mut found = found.into_iter();
            for job in batch {
                // Nobody listens if the client has gone.
                let _ = job.answer.send(Ok(found.by_ref().take(job.lines.len()).collect()));
            }
        }
        // One request's lines are refused: the others are not to suffer.
        Err(_) if batch.len() > 1 && !flight.cancel.is_cancelled() => {
            for job in batch {
                work(translator, vec![job], metrics);
            }
        }
        Err(error) => {
            for job in batch {
                let _ = job.answer.send(Err(error.clone()));
            }
        }
    }
}
