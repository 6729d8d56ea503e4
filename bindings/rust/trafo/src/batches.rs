//! Training on batches that the program puts together itself.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trafo_sys as sys;

use crate::embed::{Failure, FirstFailure, free_box};
use crate::error::{Result, check};
use crate::options::{from_i64, to_i64};
use crate::trainer::Trainer;

/// Pairs of token ids that are trained on together. Nothing is added to them: where texts end with `</s>`, each side ends
/// with its id, [`EOS`](Batch::EOS), and a side that is a piece of a longer text has none. The empty source of a decoder-only
/// model is `</s>`: the target is plain text.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: [Vec<Vec<i32>>; 2],
}

impl Batch {
    /// The last token of a text, in vocabularies that are trained here. [`Tokenizer::special`](crate::Tokenizer::special)
    /// has the one of any vocabulary.
    pub const EOS: i32 = sys::TRAFO_TOKEN_EOS;

    /// Without a pair yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// One pair more: what the encoder reads (a decoder-lm: what comes first and is not to be learnt) and what is to be
    /// predicted.
    #[must_use]
    pub fn pair(mut self, source: impl Into<Vec<i32>>, target: impl Into<Vec<i32>>) -> Self {
        self.push(source, target);
        self
    }
    /// The same for a batch that grows in a loop.
    pub fn push(&mut self, source: impl Into<Vec<i32>>, target: impl Into<Vec<i32>>) {
        self.rows[0].push(source.into());
        self.rows[1].push(target.into());
    }
    /// How many pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows[0].len()
    }
    /// Whether there is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows[0].is_empty()
    }
}

/// Gives a run its batches; closures `FnMut(usize) -> Option<Batch>` do.
pub trait BatchSource: Send {
    /// Micro-batch `index` of the run, counted from 0. The same index must give the same batch for a run to continue
    /// bitwise. `None` ends the call that trains with `Io`; it may be made again.
    fn batch(&mut self, index: usize) -> Option<Batch>;
}

impl<F: FnMut(usize) -> Option<Batch> + Send> BatchSource for F {
    fn batch(&mut self, index: usize) -> Option<Batch> {
        self(index)
    }
}

/// One side as the library wants it.
#[derive(Default)]
struct Matrix {
    ids: Vec<i32>,
    lengths: Vec<i32>,
    width: usize,
}

impl Matrix {
    fn fill(&mut self, rows: &[Vec<i32>]) {
        self.width = rows.iter().map(Vec::len).max().unwrap_or(0);
        self.ids.clear();
        self.lengths.clear();
        for row in rows {
            self.ids.extend_from_slice(row);
            self.ids.resize(self.ids.len() + self.width - row.len(), 0);
            self.lengths.push(i32::try_from(row.len()).unwrap_or(i32::MAX));
        }
    }
}

struct Feed<S> {
    source: S,
    sides: [Matrix; 2],
    failure: FirstFailure,
}

unsafe extern "C" fn give_batch<S: BatchSource>(
    user_data: *mut c_void,
    index: i64,
    out: *mut sys::trafo_batch,
) -> i32 {
    // SAFETY: the box that `set_batches` gave, used by one thread at a time.
    let feed = unsafe { &mut *user_data.cast::<Feed<S>>() };
    let batch = match catch_unwind(AssertUnwindSafe(|| feed.source.batch(from_i64(index)))) {
        Ok(Some(batch)) => batch,
        Ok(None) => return 1,
        Err(payload) => {
            feed.failure.note(Failure::Panic(payload));
            return 1;
        }
    };
    for (side, rows) in feed.sides.iter_mut().zip(&batch.rows) {
        side.fill(rows);
    }
    let [source, target] = &feed.sides;
    // SAFETY: an output of the call; the matrices live until the next one.
    let out = unsafe { &mut *out };
    out.sentences = to_i64(batch.len());
    out.source = source.ids.as_ptr();
    out.source_width = to_i64(source.width);
    out.source_lengths = source.lengths.as_ptr();
    out.target = target.ids.as_ptr();
    out.target_width = to_i64(target.width);
    out.target_lengths = target.lengths.as_ptr();
    0
}

impl Trainer {
    /// Trains on batches of `source` instead of the corpus's from the next call on, on the thread that trains; there are no
    /// epochs then. Not part of checkpoints. An invalid batch is `InvalidArgument` from the call that trains, a panic goes
    /// on there; the next call asks for it again.
    pub fn set_batches<S: BatchSource + 'static>(&mut self, source: S) -> Result<()> {
        let feed = Box::new(Feed {
            source,
            sides: Default::default(),
            failure: self.rate_failure.clone(),
        });
        // SAFETY: the handle is live; the box is the library's from here on.
        check(unsafe {
            sys::trafo_trainer_set_batches(
                self.as_ptr(),
                Some(give_batch::<S>),
                Box::into_raw(feed).cast(),
                Some(free_box::<Feed<S>>),
            )
        })
    }
    /// Trains on the corpus again, from where it was.
    pub fn use_corpus(&mut self) -> Result<()> {
        // SAFETY: the handle is live, no function is given.
        check(unsafe {
            sys::trafo_trainer_set_batches(self.as_ptr(), None, std::ptr::null_mut(), None)
        })
    }
}
