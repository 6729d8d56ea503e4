package trafo

// #include <stdint.h>
// #include "trafo.h"
// #ifdef _WIN32
// __declspec(dllimport) unsigned long __stdcall GetCurrentThreadId(void);
// static uintptr_t trafo_go_thread(void) { return GetCurrentThreadId(); }
// #else
// #include <pthread.h>
// static uintptr_t trafo_go_thread(void) { return (uintptr_t)pthread_self(); }
// #endif
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// Context is a device with its memory, its threads and the tape of recorded ops. Everything made
// from it may be used by any goroutine; calls are carried out one at a time.
type Context struct {
	core   *core
	scopes [][]*Tensor // guarded by core; what the open scopes will close
}

// core is the part of a Context that cleanups may reach without keeping the Context alive.
type core struct {
	// One token: whoever holds it is in the engine. A channel, because waiting for it must be able
	// to end with a context.
	token chan struct{}
	// The thread that holds the token and is in a callback from C: calls from it are nested. The
	// runtime keeps a goroutine on its thread while a callback runs, so a thread names a goroutine.
	callback atomic.Uintptr
	// The thread that holds the token and is in a function that gives C something or is told of progress: calls from
	// it would wait for their own end.
	supplier atomic.Uintptr
	// When a function of the program that holds the token began, or last left the engine; 0: none is running.
	outside atomic.Int64

	ptr     *C.trafo_context // nil once closed
	pending pending          // error of a callback for the call that it interrupted
	tensors tensors          // guarded by the token

	abandonedLock sync.Mutex
	abandoned     []func() // frees of unreachable objects, to be run by who holds the token
}

type pending struct {
	err      error
	panicked bool
	value    any // of the panic
}

type settings struct {
	c               C.trafo_context_options
	memoryDirectory string
}

// Option changes how NewContext makes a Context.
type Option func(*settings)

// WithDevice chooses the device; the default is the CPU. The index is 0 but for CUDA.
func WithDevice(device Device, index int) Option {
	return func(s *settings) {
		s.c.device, s.c.device_index = C.int32_t(device), cInt(index)
	}
}

// WithThreads sets how many host threads compute, 1 to 256; the default is GOMAXPROCS. Results do
// not depend on it.
func WithThreads(threads int) Option {
	return func(s *settings) { s.c.threads = cInt(threads) }
}

// WithFusedKernels(false) runs every op as its composition of simpler ones, for comparison.
func WithFusedKernels(fused bool) Option {
	return func(s *settings) { s.c.fused_kernels = cBool(fused) }
}

// WithGraphs(false) issues training steps on CUDA kernel by kernel instead of replaying recorded
// graphs, for profiling. It never changes results.
func WithGraphs(graphs bool) Option {
	return func(s *settings) { s.c.graphs = cBool(graphs) }
}

// WithMatmulPrecision(BFloat16) has GEMMs of float32 tensors multiply in bfloat16 on the CPU, forward and
// backward: both operands are rounded to it, and everything else stays float32. GEMMs with few rows and
// translating stay float32. ErrUnsupported: on CUDA, where models compute in bfloat16, and on a processor
// without AVX512-BF16. The default is Float32.
func WithMatmulPrecision(precision DType) Option {
	return func(s *settings) { s.c.matmul_precision = C.int32_t(precision) }
}

// WithBackgroundShare puts the context into the background if the share is below 1: while other contexts
// of the process, whose share is 1, are at work, it computes only this share of the time, 0.001 to 1. It
// gives way within about a millisecond. For training in a process that serves, on the CPU. Results do not
// depend on it.
func WithBackgroundShare(share float64) Option {
	return func(s *settings) { s.c.background_share = C.double(share) }
}

// WithMemoryDirectory has tensors of at least 16 MiB lie in files without names in this directory, which the
// system pages in and out: for import, export and quantization of models that are larger than the machine's
// memory. All parameters are frozen at first. On the CPU only. Results do not depend on it.
func WithMemoryDirectory(directory string) Option {
	return func(s *settings) { s.memoryDirectory = directory }
}

const mostThreads = 256

// NewContext opens a device.
func NewContext(options ...Option) (*Context, error) {
	if version := C.trafo_abi_version(); version != C.TRAFO_ABI_VERSION {
		return nil, &Error{Code: ErrVersion, Origin: "NewContext", Message: fmt.Sprintf(
			"this program was built for version %d of the C ABI, the library has %d", C.TRAFO_ABI_VERSION, version)}
	}
	var s settings
	if err := check(C.trafo_context_options_init(&s.c, C.sizeof_trafo_context_options)); err != nil {
		return nil, err
	}
	s.c.threads = C.int32_t(min(runtime.GOMAXPROCS(0), mostThreads))
	for _, option := range options {
		option(&s)
	}
	directory, free := views([]string{s.memoryDirectory})
	defer free()
	s.c.memory_directory = viewAt(directory, 0)
	var ptr *C.trafo_context
	if err := check(C.trafo_context_new(&s.c, &ptr)); err != nil {
		return nil, err
	}
	c := &Context{core: &core{ptr: ptr, token: make(chan struct{}, 1), tensors: tensors{open: map[*C.trafo_tensor]weak.Pointer[Tensor]{}}}}
	runtime.AddCleanup(c, (*core).close, c.core)
	return c, nil
}

// Close ends the context and closes its tensors: what is called on them gives ErrClosed. Models, trainers and
// optimizers made from it go on to work, and the rest of its memory is free when they are closed too. It may be
// called more than once; not from a callback.
func (c *Context) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	if c.core.inCallback() {
		return refuse("Context.Close", "a callback cannot close the context that is calling it")
	}
	nested, err := c.core.enter("Context.Close")
	if err != nil {
		return err
	}
	defer c.core.leave(nested)
	c.core.tensors.closeAll()
	c.core.free()
	return nil
}

// close is what a context that was forgotten needs; its tensors are forgotten as well.
func (k *core) close() { k.abandon(k.free) }

func (k *core) free() {
	C.trafo_context_free(k.ptr)
	k.ptr = nil
}

// enter waits for the engine; nested is for leave. A call that would wait for ever is refused.
func (k *core) enter(origin string) (nested bool, err error) {
	return k.enterWith(context.Background(), origin)
}

// patience is how long a call waits while a function of the program, which the engine has called, does something
// else than to use the engine: it may be waiting for the goroutine of that call.
var patience = 10 * time.Second

// enterWith is enter, given up when the context ends.
func (k *core) enterWith(ctx context.Context, origin string) (nested bool, err error) {
	if ctx.Err() != nil {
		return false, cancelled(ctx, origin)
	}
	if k.inCallback() {
		k.outside.Store(0)
		k.drain()
		return true, nil
	}
	select {
	case k.token <- struct{}{}:
		k.drain()
		return false, nil
	default:
	}
	if k.supplier.Load() == thread() {
		return false, refuse(origin, "a function that gives the engine batches, rates or bytes, or is told of progress, cannot use the context that waits for it")
	}
	look := time.NewTicker(patience / 4)
	defer look.Stop()
	for {
		select {
		case k.token <- struct{}{}:
			k.drain()
			return false, nil
		case <-ctx.Done():
			return false, cancelled(ctx, origin)
		case <-look.C:
			if since := k.outside.Load(); since != 0 && time.Since(time.Unix(0, since)) > patience {
				return false, refuse(origin, "the context is in a call of another goroutine, whose callback has not returned for %v: "+
					"a callback cannot wait for a goroutine that uses the same context", patience)
			}
		}
	}
}

// wait is enter for what cannot fail.
func (k *core) wait() (nested bool) {
	if nested = k.inCallback() || k.supplier.Load() == thread(); nested {
		k.outside.Store(0)
	} else {
		k.token <- struct{}{}
	}
	k.drain()
	return nested
}

func (k *core) leave(nested bool) {
	if nested {
		k.outside.Store(time.Now().UnixNano())
	} else {
		<-k.token
	}
}

// leaveFor notes that the holder of the token runs the program's own code until back is called.
func (k *core) leaveFor() (back func()) {
	before := k.outside.Swap(time.Now().UnixNano())
	return func() { k.outside.Store(before) }
}

func thread() uintptr { return uintptr(C.trafo_go_thread()) }

func (k *core) inCallback() bool {
	holder := k.callback.Load()
	return holder != 0 && holder == thread()
}

// abandon frees an object whose owner is gone, at once or when the engine is next free: cleanups of
// a whole program share one goroutine, which must not wait for a training run.
func (k *core) abandon(free func()) {
	k.abandonedLock.Lock()
	k.abandoned = append(k.abandoned, free)
	k.abandonedLock.Unlock()
	select {
	case k.token <- struct{}{}:
		k.drain()
		k.leave(false)
	default:
	}
}

func (k *core) drain() {
	k.abandonedLock.Lock()
	frees := k.abandoned
	k.abandoned = nil
	k.abandonedLock.Unlock()
	for _, free := range frees {
		free()
	}
}

// runCallback runs Go code that C called, on the thread that holds the token. Errors and panics
// must not cross C: they wait in pending.
func (k *core) runCallback(f func() error) (result C.int32_t) {
	result = 1
	previous, back := k.callback.Swap(thread()), k.leaveFor()
	defer func() {
		back()
		k.callback.Store(previous)
		if value := recover(); value != nil {
			k.pending = pending{panicked: true, value: value}
		}
	}()
	if err := f(); err != nil {
		k.pending = pending{err: err}
		return 1
	}
	return 0
}

// finish turns the outcome of a call into an error, and continues the panic of a callback.
func (k *core) finish(failure *C.trafo_error) error {
	left := k.pending
	k.pending = pending{}
	e := takeError(failure)
	if left.panicked {
		panic(left.value)
	}
	if e == nil {
		return nil
	}
	if left.err != nil {
		e.Message += ": " + left.err.Error()
		e.causes = append(e.causes, left.err)
	}
	return e
}

// call runs f in the engine with the open context.
func (c *Context) call(origin string, f func(ptr *C.trafo_context) *C.trafo_error) error {
	return c.within(context.Background(), origin, func(ptr *C.trafo_context) error { return c.core.finish(f(ptr)) })
}

// within is call for more than one call of C. The wait for the engine is given up when ctx ends.
func (c *Context) within(ctx context.Context, origin string, f func(ptr *C.trafo_context) error) error {
	if c == nil || c.core == nil {
		return closed(origin, "the context")
	}
	nested, err := c.core.enterWith(ctx, origin)
	if err != nil {
		return err
	}
	defer c.core.leave(nested)
	if c.core.ptr == nil {
		return closed(origin, "the context")
	}
	defer runtime.KeepAlive(c)
	return f(c.core.ptr)
}

// SetThreads sets how many host threads compute, 1 to 256. Results do not depend on it.
func (c *Context) SetThreads(threads int) error {
	return c.call("Context.SetThreads", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_set_threads(ptr, cInt(threads))
	})
}

// SetBackgroundShare sets the share of WithBackgroundShare from the next call on.
func (c *Context) SetBackgroundShare(share float64) error {
	return c.call("Context.SetBackgroundShare", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_set_background_share(ptr, C.double(share))
	})
}

// MemoryStats reads the counters of the context's allocator.
func (c *Context) MemoryStats() (MemoryStats, error) {
	var s C.trafo_memory_stats
	err := c.call("Context.MemoryStats", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_memory_stats(ptr, &s)
	})
	return newMemoryStats(&s), err
}

// TrimMemory gives kept blocks back to the system and starts a new peak.
func (c *Context) TrimMemory() error {
	return c.call("Context.TrimMemory", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_trim_memory(ptr)
	})
}

// StartProfile begins a profile: times of every op, forward and backward, and of the phases of training
// steps. Unless keepGraphs, training steps on CUDA are issued kernel by kernel meanwhile, so that their
// ops are seen. It never changes a bit. A profile that was being recorded is dropped.
func (c *Context) StartProfile(keepGraphs bool) error {
	return c.call("Context.StartProfile", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_profile_start(ptr, cBool(keepGraphs))
	})
}

// WriteProfile ends the profile, writes it as a Chrome trace, whole or not at all, and returns a table of
// the ops by time. An empty path writes nothing. The profile is kept until the next one is started: it
// may be written again.
func (c *Context) WriteProfile(path string) (table string, err error) {
	var text *C.char
	err = c.call("Context.WriteProfile", func(ptr *C.trafo_context) *C.trafo_error {
		data, size := chars(path)
		return C.trafo_context_profile_write(ptr, data, size, &text)
	})
	return takeCString(text), err
}

// NoGrad runs f without recording ops; what is recorded is kept until the next Backward. It is the
// context's setting: goroutines that share the context share it.
func (c *Context) NoGrad(f func() error) error {
	previous, err := c.setRecording(0)
	if err != nil {
		return err
	}
	defer c.setRecording(previous)
	return f()
}

func (c *Context) setRecording(recording C.int32_t) (previous C.int32_t, err error) {
	err = c.call("Context.NoGrad", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_set_recording(ptr, recording, &previous)
	})
	return previous, err
}

// Scope runs f and closes every tensor that was made on the context meanwhile, but those given to
// Keep. Scopes nest. A loop that trains wants one scope an update: the engine's memory is invisible
// to the garbage collector, which does not hurry for it. Goroutines that share the context share
// the scope.
func (c *Context) Scope(f func() error) error {
	if c == nil || c.core == nil {
		return closed("Context.Scope", "the context")
	}
	if err := c.openScope(); err != nil {
		return err
	}
	defer c.closeScope()
	return f()
}

// Keep takes tensors out of the open scopes: they live until they are closed.
func (c *Context) Keep(tensors ...*Tensor) {
	if c == nil || c.core == nil {
		return
	}
	defer c.core.leave(c.core.wait())
	for _, tensor := range tensors {
		for i := range c.scopes {
			for j, scoped := range c.scopes[i] {
				if scoped == tensor {
					c.scopes[i] = append(c.scopes[i][:j], c.scopes[i][j+1:]...)
					break
				}
			}
		}
	}
}

func (c *Context) openScope() error {
	nested, err := c.core.enter("Context.Scope")
	if err != nil {
		return err
	}
	defer c.core.leave(nested)
	c.scopes = append(c.scopes, nil)
	return nil
}

func (c *Context) closeScope() {
	defer c.core.leave(c.core.wait())
	last := len(c.scopes) - 1
	tensors := c.scopes[last]
	c.scopes[last] = nil
	c.scopes = c.scopes[:last]
	for _, tensor := range tensors {
		tensor.release()
	}
}

// cInt keeps what does not fit out of range, for the engine to refuse.
func cInt(n int) C.int32_t { return C.int32_t(max(math.MinInt32, min(n, math.MaxInt32))) }

func cBool(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
