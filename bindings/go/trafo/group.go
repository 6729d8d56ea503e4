package trafo

// #include "trafo.h"
import "C"

import (
	"runtime"
	"time"
	"unsafe"
)

// GroupID is the name of a group, which the program gives to all its ranks.
type GroupID [C.TRAFO_GROUP_ID_BYTES]byte

// NewLocalGroup names a new group of goroutines of this process, which train on the CPU or each on a
// GPU of its own.
func NewLocalGroup() (GroupID, error) {
	return newGroup(TransportLocal)
}

// NewNCCLGroup names a new group of goroutines of this process, each on a separate GPU, between which
// NCCL moves the bytes: they join with TransportNCCL. The first call loads NCCL: the file that
// TRAFO_NCCL_LIBRARY in the environment names, or libnccl.so.2 beside libtrafo_cuda.so or on the
// loader's path. It sets NCCL_NVLS_ENABLE=0 in the environment of C unless it is set. ErrUnsupported:
// there is none.
func NewNCCLGroup() (GroupID, error) {
	return newGroup(TransportNCCL)
}

func newGroup(transport Transport) (GroupID, error) {
	var id GroupID
	err := check(C.trafo_group_id_new(C.int32_t(transport), (*C.uint8_t)(&id[0]), C.size_t(len(id))))
	return id, err
}

// NewMPIGroup names the group of all processes of the MPI job (mpirun, srun) that this process is in,
// which train on the CPU. Every process makes the same id by itself.
func NewMPIGroup() (GroupID, error) {
	var id GroupID
	err := check(C.trafo_group_id_new(C.TRAFO_TRANSPORT_MPI, (*C.uint8_t)(&id[0]), C.size_t(len(id))))
	return id, err
}

// NewTCPGroup names the group of the processes that meet at master, "HOST:PORT" or "[IPv6]:PORT", where
// rank 0 listens. They train on the CPU, or with TransportNCCL on GPUs. Either every process makes the
// id from the same master and token, or one makes it and gives its bytes to the others: they are a
// secret. The token has 32 to 4096 bytes from a generator of random numbers, and nobody can join without
// it; nil is a new random one. Port 0, only with nil: this process takes a free one, and rank 0 must join
// in it. Traffic between ranks is not encrypted. A host other than localhost, 127.* and ::1 lets all ranks
// listen at all addresses of their hosts. It needs libtrafo_tcp.so.
func NewTCPGroup(master string, token []byte) (GroupID, error) {
	var id GroupID
	data, length := chars(master)
	var secret *C.uint8_t
	if token != nil {
		secret = (*C.uint8_t)(unsafe.SliceData(token))
	}
	err := check(C.trafo_group_id_of_master(data, length, secret, C.size_t(len(token)), (*C.uint8_t)(&id[0]), C.size_t(len(id))))
	runtime.KeepAlive(token)
	return id, err
}

// GroupOptions says which rank joins, and how long it waits.
type GroupOptions struct {
	// 0 to Size - 1.
	Rank int
	// Number of ranks. With TransportMPI, Rank and Size 0 mean the job's.
	Size int
	// That of the id.
	Transport Transport
	// Until all ranks have joined. Default 0: five minutes.
	StartTimeout time.Duration
	// For the slowest rank in a later call, saving included. Default 0: ten minutes.
	Timeout time.Duration
}

// Group is one rank of a group of models that are trained as one. Each rank has a context, a model, a
// group and a trainer, and does the same with them as the other ranks, on a separate goroutine. The
// bits of a run depend on TrainerOptions.Lanes and not on the number of ranks.
type Group struct {
	shared shared[*C.trafo_group]
}

// JoinGroup waits for the other ranks, which join with the same id. c is the context of the rank's
// model. ErrPeerLost: they have not come in time.
func JoinGroup(c *Context, id GroupID, options GroupOptions) (*Group, error) {
	var o C.trafo_group_options
	mustInit(C.trafo_group_options_init(&o, C.sizeof_trafo_group_options))
	o.rank, o.size = cInt(options.Rank), cInt(options.Size)
	o.transport = cInt(int(options.Transport))
	if options.Transport == TransportMPI && options.Rank == 0 && options.Size == 0 {
		o.rank = -1
	}
	if options.StartTimeout != 0 {
		o.start_timeout_s = C.double(options.StartTimeout.Seconds())
	}
	if options.Timeout != 0 {
		o.timeout_s = C.double(options.Timeout.Seconds())
	}
	var out *C.trafo_group
	err := c.call("JoinGroup", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_group_new(ptr, &o, (*C.uint8_t)(&id[0]), C.size_t(len(id)), &out)
	})
	if err != nil {
		return nil, err
	}
	g := &Group{}
	g.shared.ptr = out
	g.shared.cleanup = runtime.AddCleanup(g, func(ptr *C.trafo_group) { C.trafo_group_free(ptr) }, out)
	return g, nil
}

// Rank is the number of this rank, counted from 0, and Size the number of all ranks.
func (g *Group) Rank() (rank, size int, err error) {
	ptr, err := g.hold("Group.Rank")
	if err != nil {
		return 0, 0, err
	}
	defer g.shared.release()
	var info C.trafo_group_info
	err = check(C.trafo_group_get_info(ptr, &info, C.sizeof_trafo_group_info))
	return int(info.rank), int(info.size), err
}

// Abort leaves the group, from any goroutine: calls that wait in it, on all ranks, fail with
// ErrPeerLost and the reason.
func (g *Group) Abort(reason string) error {
	ptr, err := g.hold("Group.Abort")
	if err != nil {
		return err
	}
	defer g.shared.release()
	data, length := chars(reason)
	return check(C.trafo_group_abort(ptr, data, length))
}

// Close frees it; closing twice is fine. A trainer of the group still works.
func (g *Group) Close() error {
	if g != nil {
		g.shared.close(func(ptr *C.trafo_group) { C.trafo_group_free(ptr) })
	}
	return nil
}

// FinalizeMPI ends MPI, if a Group has initialised it, and waits for the other processes to do the
// same. A program that was started by mpirun calls it before it ends: neither a return from main nor
// os.Exit does it. ErrPeerLost: another process has failed or did not come.
func FinalizeMPI() error {
	return check(C.trafo_mpi_finalize())
}

func (g *Group) hold(origin string) (*C.trafo_group, error) {
	if g == nil {
		return nil, closed(origin, "the group")
	}
	return g.shared.hold(origin, "the group")
}
