package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

var (
	errQueueFull = errors.New("the queue is full, try again later")
	errClosing   = errors.New("the server is shutting down")
)

// search is what lines must have in common to be translated together.
type search struct{ beam, nBest int }

// translator is the model, or what a test puts in its place.
type translator func(ctx context.Context, lines []string, how search) (*trafo.Translations, error)

// job is the lines of one request.
type job struct {
	ctx     context.Context
	lines   []string
	how     search
	arrived time.Time
	done    chan struct{} // closed when result and err are there
	result  [][]trafo.Hypothesis
	err     error
}

// batcher translates the lines of concurrent requests together: one sentence leaves most of a
// processor idle, many together cost little more. The first waiting request is translated when it
// has waited for `window`, or as soon as `most` lines wait; under load it has waited while the batch
// before it was translated, and the window costs nothing. A batch is the waiting requests that
// search like the first, in the order of their arrival; a request is never divided.
type batcher struct {
	translate translator
	window    time.Duration
	most      int // lines in a batch, but for a request that has more
	bound     int // lines that may wait
	metrics   *metrics

	lock    sync.Mutex
	waiting []*job
	lines   int // of waiting
	closing bool
	changed chan struct{} // holds a token when waiting or closing has changed
	stopped chan struct{}
}

func newBatcher(translate translator, window time.Duration, most, bound int, m *metrics) *batcher {
	b := &batcher{translate: translate, window: window, most: most, bound: bound, metrics: m,
		changed: make(chan struct{}, 1), stopped: make(chan struct{})}
	go b.run()
	return b
}

// submit waits for the translations of lines; errQueueFull and errClosing say that they were not
// accepted. The request of a ctx that ends is left out of its batch if that has not begun.
func (b *batcher) submit(ctx context.Context, lines []string, how search) ([][]trafo.Hypothesis, error) {
	j := &job{ctx: ctx, lines: lines, how: how, arrived: time.Now(), done: make(chan struct{})}
	b.lock.Lock()
	if b.closing {
		b.lock.Unlock()
		return nil, errClosing
	}
	if b.lines+len(lines) > b.bound {
		b.sweep()
	}
	if len(b.waiting) > 0 && b.lines+len(lines) > b.bound {
		b.lock.Unlock()
		return nil, errQueueFull
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

// close translates what waits and then ends; nothing is accepted any more.
func (b *batcher) close() {
	b.lock.Lock()
	b.closing = true
	b.lock.Unlock()
	b.wake()
	<-b.stopped
}

func (b *batcher) wake() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *batcher) run() {
	defer close(b.stopped)
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
func (b *batcher) next() (batch []*job, wait time.Duration) {
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
func (b *batcher) sweep() {
	b.waiting = slices.DeleteFunc(b.waiting, func(j *job) bool { return j.ctx.Err() != nil })
	b.lines = 0
	for _, j := range b.waiting {
		b.lines += len(j.lines)
	}
}

// work translates a batch. It is given up when nobody waits for any of it any more.
func (b *batcher) work(batch []*job) {
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
	result, err := b.translate(ctx, lines, batch[0].how)
	if err != nil && len(batch) > 1 && ctx.Err() == nil {
		// One request's lines are refused: the others are not to suffer.
		for _, j := range batch {
			b.work([]*job{j})
		}
		return
	}
	for _, j := range batch {
		if err != nil {
			j.err = err
		} else {
			j.result = result.Lines[:len(j.lines)]
			result.Lines = result.Lines[len(j.lines):]
		}
		close(j.done)
	}
	if err == nil {
		b.metrics.translated(len(lines), result.Truncated)
	}
}
