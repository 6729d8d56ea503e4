// Package serving is shared by the servers among the examples: lines of concurrent requests that are
// translated together, and metrics in Prometheus' text format.
package serving

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Reasons why Submit has not accepted lines.
var (
	ErrQueueFull = errors.New("the queue is full, try again later")
	ErrClosing   = errors.New("the server is shutting down")
)

// Translator is the model, or its replacement in a test. It gives the result of every line, and how many
// lines were cut. How: the settings that lines must share to be translated together; Line: the result of a
// line.
type Translator[How comparable, Line any] func(ctx context.Context, lines []string, how How) (found []Line, truncated int, err error)

// job is the lines of one request.
type job[How comparable, Line any] struct {
	ctx     context.Context
	lines   []string
	how     How
	arrived time.Time
	done    chan struct{} // closed when result and err are there
	result  []Line
	err     error
}

// Batcher translates the lines of concurrent requests together: one sentence leaves most of a
// processor idle, many together cost little more. The first waiting request is translated when it
// has waited for `window`, or as soon as `most` lines wait; under load it has waited while the batch
// before it was translated, and the window costs nothing. A batch is the waiting requests that
// search like the first, in the order of their arrival; a request is never divided.
type Batcher[How comparable, Line any] struct {
	translate Translator[How, Line]
	window    time.Duration
	most      int // lines in a batch, but for a request that has more
	bound     int // lines that may wait
	metrics   *Metrics

	lock    sync.Mutex
	waiting []*job[How, Line]
	lines   int // of waiting
	closing bool
	changed chan struct{} // holds a token when waiting or closing has changed
	stopped chan struct{}
}

// NewBatcher starts the goroutine that calls translate. most: lines in a batch, but for a request that has
// more; bound: lines that may wait.
func NewBatcher[How comparable, Line any](translate Translator[How, Line], window time.Duration, most, bound int, m *Metrics) *Batcher[How, Line] {
	b := &Batcher[How, Line]{translate: translate, window: window, most: most, bound: bound, metrics: m,
		changed: make(chan struct{}, 1), stopped: make(chan struct{})}
	go b.run()
	return b
}

// Submit waits for the translations of lines; ErrQueueFull and ErrClosing say that they were not
// accepted. The request of a ctx that ends is left out of its batch if that has not begun.
func (b *Batcher[How, Line]) Submit(ctx context.Context, lines []string, how How) ([]Line, error) {
	j := &job[How, Line]{ctx: ctx, lines: lines, how: how, arrived: time.Now(), done: make(chan struct{})}
	b.lock.Lock()
	if b.closing {
		b.lock.Unlock()
		return nil, ErrClosing
	}
	if b.lines+len(lines) > b.bound {
		b.sweep()
	}
	if len(b.waiting) > 0 && b.lines+len(lines) > b.bound {
		b.lock.Unlock()
		return nil, ErrQueueFull
	}
	b.waiting = append(b.waiting, j)
	b.lines += len(lines)
	b.metrics.queue(b.lines)
	b.lock.Unlock()
	b.wake()
	select {
	case <-j.done:
		return j.result, j.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close translates what waits and then ends; nothing is accepted any more.
func (b *Batcher[How, Line]) Close() {
	b.lock.Lock()
	b.closing = true
	b.lock.Unlock()
	b.wake()
	<-b.stopped
}

func (b *Batcher[How, Line]) wake() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *Batcher[How, Line]) run() {
	defer close(b.stopped)
	// The C library keeps memory for each thread that has called the engine: this goroutine stays on one.
	runtime.LockOSThread()
	for {
		batch, wait := b.next()
		switch {
		case batch != nil:
			b.work(batch)
		case wait < 0:
			return
		case wait == 0:
			<-b.changed
		default:
			timer := time.NewTimer(wait)
			select {
			case <-b.changed:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// next takes a batch, or says how long to wait for one: 0 until something changes, negative for ever.
func (b *Batcher[How, Line]) next() (batch []*job[How, Line], wait time.Duration) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.sweep()
	defer func() { b.metrics.queue(b.lines) }()
	if len(b.waiting) == 0 {
		if b.closing {
			return nil, -1
		}
		return nil, 0
	}
	first := b.waiting[0]
	if left := b.window - time.Since(first.arrived); left > 0 && b.lines < b.most && !b.closing {
		return nil, left
	}
	kept := b.waiting[:0]
	taken := 0
	full := false
	for _, j := range b.waiting {
		if !full && j.how == first.how && (taken == 0 || taken+len(j.lines) <= b.most) {
			batch = append(batch, j)
			taken += len(j.lines)
		} else {
			full = full || j.how == first.how // what came later does not overtake
			kept = append(kept, j)
		}
	}
	clear(b.waiting[len(kept):])
	b.waiting = kept
	b.lines -= taken
	return batch, 0
}

// sweep forgets the requests whose clients have gone.
func (b *Batcher[How, Line]) sweep() {
	b.waiting = slices.DeleteFunc(b.waiting, func(j *job[How, Line]) bool { return j.ctx.Err() != nil })
	b.lines = 0
	for _, j := range b.waiting {
		b.lines += len(j.lines)
	}
}

// work translates a batch. It is given up when nobody waits for any of it any more.
func (b *Batcher[How, Line]) work(batch []*job[How, Line]) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var lines []string
	var lock sync.Mutex
	present := len(batch)
	for _, j := range batch {
		lines = append(lines, j.lines...)
		stop := context.AfterFunc(j.ctx, func() {
			lock.Lock()
			defer lock.Unlock()
			if present--; present == 0 {
				cancel()
			}
		})
		defer stop()
	}
	b.metrics.batch(len(lines))
	found, truncated, err := b.translate(ctx, lines, batch[0].how)
	if err != nil && len(batch) > 1 && ctx.Err() == nil {
		// One request's lines are refused: the others are not to suffer.
		for _, j := range batch {
			b.work([]*job[How, Line]{j})
		}
		return
	}
	for _, j := range batch {
		if err != nil {
			j.err = err
		} else {
			j.result, found = found[:len(j.lines)], found[len(j.lines):]
		}
		close(j.done)
	}
	if err == nil {
		b.metrics.translated(len(lines), truncated)
	}
}
