use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use trafo_sys as sys;

use crate::error::{Result, check};
use crate::handle::{RawGroup, defaults};
use crate::model::Model;
use crate::results::always_filled;

const ID_BYTES: usize = sys::TRAFO_GROUP_ID_BYTES as usize;

/// The name of a [`Group`], which the program gives to all its ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId {
    bytes: [u8; ID_BYTES],
    transport: i32,
}

impl GroupId {
    /// A new group of threads of this process, which train on the CPU or each on a separate GPU.
    pub fn local() -> Result<Self> {
        Self::of(sys::TRAFO_TRANSPORT_LOCAL)
    }
    /// The group of all processes of the MPI job (`mpirun`, `srun`) that this process is in, which train on the CPU.
    /// Every process makes the same id by itself.
    pub fn mpi() -> Result<Self> {
        Self::of(sys::TRAFO_TRANSPORT_MPI)
    }
    /// A new group of threads of this process, each on a separate GPU, between which NCCL moves the bytes.
    ///
    /// The first call loads NCCL: the file that `TRAFO_NCCL_LIBRARY` in the environment names, or `libnccl.so.2` beside
    /// `libtrafo_cuda.so` or on the loader's path. It sets `NCCL_NVLS_ENABLE=0` in the environment unless it is set, so
    /// no other thread may change the environment meanwhile. [`Unsupported`](crate::ErrorCode::Unsupported): there is
    /// none.
    pub fn nccl() -> Result<Self> {
        Self::of(sys::TRAFO_TRANSPORT_NCCL)
    }
    /// The group of the processes that meet at `master`, `"HOST:PORT"` or `"[IPv6]:PORT"`, where rank 0 listens. They
    /// train on the CPU, or with [`over_nccl`](GroupId::over_nccl) on GPUs.
    ///
    /// Either every process makes the id from the same master and token, or one makes it and gives its
    /// [`bytes`](GroupId::bytes) to the others. The token is a secret of 32 to 4096 bytes of a
    /// generator of random numbers, without which nobody can join;
    /// `None` is a new random one. Port 0, only with `None`: this process takes a free one, and rank 0 must join in it.
    /// Traffic between ranks is not encrypted. A host other than `localhost`, `127.*` and `::1` lets all ranks listen at
    /// all addresses of their hosts. Needs `libtrafo_tcp.so`.
    pub fn tcp(master: &str, token: Option<&[u8]>) -> Result<Self> {
        let mut bytes = [0; ID_BYTES];
        let secret = token.unwrap_or_default();
        let start = token.map_or(std::ptr::null(), <[u8]>::as_ptr);
        // SAFETY: texts and bytes are valid for their lengths.
        check(unsafe {
            sys::trafo_group_id_of_master(
                master.as_ptr().cast(),
                master.len(),
                start,
                secret.len(),
                bytes.as_mut_ptr(),
                ID_BYTES,
            )
        })?;
        Ok(GroupId { bytes, transport: sys::TRAFO_TRANSPORT_TCP })
    }
    /// The id as bytes, with which another process joins. They contain the token, so they are a
    /// secret.
    #[must_use]
    pub fn bytes(&self) -> [u8; ID_BYTES] {
        self.bytes
    }
    /// The id of [`GroupId::tcp`] that another process has made. Bytes of anything else are refused when a rank joins.
    #[must_use]
    pub fn tcp_from_bytes(bytes: [u8; ID_BYTES]) -> Self {
        GroupId { bytes, transport: sys::TRAFO_TRANSPORT_TCP }
    }
    /// The same processes, each on a separate GPU: NCCL moves the data between the GPUs. For ids of [`GroupId::tcp`]
    /// and [`GroupId::mpi`].
    #[must_use]
    pub fn over_nccl(self) -> Self {
        GroupId { transport: sys::TRAFO_TRANSPORT_NCCL, ..self }
    }
    fn of(transport: i32) -> Result<Self> {
        let mut bytes = [0; ID_BYTES];
        // SAFETY: the bytes are valid for their length.
        check(unsafe { sys::trafo_group_id_new(transport, bytes.as_mut_ptr(), ID_BYTES) })?;
        Ok(GroupId { bytes, transport })
    }
}

impl fmt::Debug for GroupId {
    // Without the bytes: they may have a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupId").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// One rank of a group of models that are trained as one.
///
/// Each rank has a model, a group and a trainer, on a separate thread, and does the same with them as the other ranks.
/// The bits of a run depend on the number of lanes ([`TrainerOptions::lanes`](crate::TrainerOptions::lanes)) and not
/// on the number of ranks. Clones are the same rank.
///
/// ```
/// use std::ops::ControlFlow;
/// use trafo::{Corpus, Group, GroupId, Model, ModelConfig, TokenizerOptions, Trainer, TrainerOptions};
/// # fn main() -> trafo::Result<()> {
/// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
/// let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(40).soft_limit(true))?;
/// let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
/// let id = GroupId::local()?;
/// std::thread::scope(|scope| {
///     let ranks: Vec<_> = (0..2)
///         .map(|rank| {
///             let (corpus, tokenizer, config, id) = (&corpus, &tokenizer, &config, &id);
///             scope.spawn(move || {
///                 let model = Model::new(config, 1)?;
///                 let group = Group::join(&model, id, rank, 2)?;
///                 let options = TrainerOptions::new().after_updates(3).batch_tokens(64);
///                 let mut trainer =
///                     Trainer::builder(model, tokenizer, corpus).options(options).group(&group).build()?;
///                 trainer.run(|_| ControlFlow::Continue(()))
///             })
///         })
///         .collect();
///     ranks.into_iter().try_for_each(|rank| rank.join().unwrap().map(drop))
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Group(Arc<RawGroup>);

// SAFETY: trafo.h: handles may move between threads, trafo_group_abort may be called from any of them, and nothing else
// that takes a group changes it. It is freed once, by the last clone.
unsafe impl Send for RawGroup {}
// SAFETY: see above.
unsafe impl Sync for RawGroup {}

impl Group {
    /// Joins as `rank` of `size` and waits for the other ranks, five minutes at most. In later calls ranks wait ten
    /// minutes for the slowest. [`PeerLost`](crate::ErrorCode::PeerLost): they have not come.
    pub fn join(model: &Model, id: &GroupId, rank: i32, size: i32) -> Result<Self> {
        Self::join_within(model, id, rank, size, Duration::from_secs(300), Duration::from_secs(600))
    }
    /// Joins the group of the MPI job as the rank that this process has in it. Needs `libtrafo_mpi.so`, and initialises MPI
    /// unless the program has. A process is in one such group at a time.
    /// [`PeerLost`](crate::ErrorCode::PeerLost): the other processes have not come, or a group of the job has failed; then
    /// all processes must be started again.
    pub fn join_mpi(model: &Model) -> Result<Self> {
        Self::join(model, &GroupId::mpi()?, -1, 0)
    }
    /// Joins the group of the processes that meet at `master` as `rank` of `size`: see [`GroupId::tcp`]. All give the same
    /// token.
    pub fn join_tcp(
        model: &Model,
        master: &str,
        token: &[u8],
        rank: i32,
        size: i32,
    ) -> Result<Self> {
        Self::join(model, &GroupId::tcp(master, Some(token))?, rank, size)
    }
    /// [`join`](Group::join) with other limits: until all ranks have joined, and for the slowest rank in a later call.
    pub fn join_within(
        model: &Model,
        id: &GroupId,
        rank: i32,
        size: i32,
        start: Duration,
        wait: Duration,
    ) -> Result<Self> {
        let mut options = defaults(sys::trafo_group_options_init);
        options.rank = rank;
        options.size = size;
        options.transport = id.transport;
        options.start_timeout_s = start.as_secs_f64();
        options.timeout_s = wait.as_secs_f64();
        // SAFETY: the context is live, options and id are valid during the call.
        let raw = RawGroup::make(|out| unsafe {
            sys::trafo_group_new(model.context_ptr(), &options, id.bytes.as_ptr(), ID_BYTES, out)
        })?;
        Ok(Group(Arc::new(raw)))
    }
    /// The number of this rank, counted from 0.
    #[must_use]
    pub fn rank(&self) -> i32 {
        self.info().rank
    }
    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> i32 {
        self.info().size
    }
    /// Leaves the group, from any thread: calls that wait in it, on all ranks, fail with
    /// [`PeerLost`](crate::ErrorCode::PeerLost) and the reason.
    pub fn abort(&self, reason: &str) -> Result<()> {
        // SAFETY: the handle is live, the text is valid during the call.
        check(unsafe {
            sys::trafo_group_abort(self.as_ptr(), reason.as_ptr().cast(), reason.len())
        })
    }
    fn info(&self) -> sys::trafo_group_info {
        // SAFETY: the handle is live; the struct has the size that is told.
        always_filled(|info, size| unsafe { sys::trafo_group_get_info(self.as_ptr(), info, size) })
    }
    pub(crate) fn as_ptr(&self) -> *mut sys::trafo_group {
        self.0.as_ptr()
    }
}

/// Ends MPI, if a [`Group`] has initialised it, and waits for the other processes to do the same. A process that returns from
/// `main` or calls [`std::process::exit`] does this by itself.
pub fn finalize_mpi() -> Result<()> {
    // SAFETY: it has no arguments.
    check(unsafe { sys::trafo_mpi_finalize() })
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}
