package trafo

// #include <stdint.h>
// #include "trafo.h"
//
// // Exported from callbacks.go; cgo knows no const.
// extern int32_t trafoGoEvent(uintptr_t, trafo_event *);
//
// static int32_t trafo_go_event(void *user_data, const trafo_event *event) {
//   return trafoGoEvent((uintptr_t)user_data, (trafo_event *)event);
// }
// static trafo_error *trafo_go_trainer_run(trafo_trainer *trainer, int64_t max_updates, const trafo_cancel *cancel,
//                                          uintptr_t handle, int32_t *out_stop) {
//   return trafo_trainer_run(trainer, max_updates, cancel, handle ? trafo_go_event : NULL, (void *)handle, out_stop);
// }
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"strconv"
	"strings"
	"time"
)

// Period is how often something happens, as Every(500, Updates); Every(0, Updates) is never. In options, the
// zero Period is the default. Its text is that of the command line: "500u", "20000t" or "2e", and "0u" for never.
type Period struct {
	Value int64
	Unit  Unit
}

// Every makes a Period.
func Every(value int64, unit Unit) Period { return Period{value, unit} }

var wordsOfPeriodUnit = words[Unit]{{Updates, []string{"u", ""}}, {Tokens, []string{"t"}}, {Epochs, []string{"e"}}}

// MarshalText gives the number and the first letter of the unit; nothing for the zero Period.
func (p Period) MarshalText() ([]byte, error) {
	if p == (Period{}) {
		return nil, nil
	}
	unit, err := wordsOfPeriodUnit.marshal(p.Unit)
	return append(strconv.AppendInt(nil, p.Value, 10), unit...), err
}

// UnmarshalText reads such a text. A number alone counts updates.
func (p *Period) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = Period{}
		return nil
	}
	digits := strings.TrimRight(string(text), "ute")
	value, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return refuse("Period.UnmarshalText", "%q is no period such as 500u, 20000t or 2e", text)
	}
	p.Value = value
	return wordsOfPeriodUnit.unmarshal(&p.Unit, text[len(digits):])
}

// Metric is a measure of validation, or several ones or-ed.
type Metric int32

// all gives the metrics of m, in the order of the constants.
func (m Metric) all() (metrics []Metric) {
	for _, each := range wordsOfMetric {
		if m&each.value != 0 {
			metrics = append(metrics, each.value)
		}
	}
	return metrics
}

// first gives the metric of m that decides where the options name none.
func (m Metric) first() Metric {
	if metrics := m.all(); len(metrics) > 0 {
		return metrics[0]
	}
	return 0
}

// String gives the metric's name in options and files, as "bleu"; of several, the names with commas between them.
func (m Metric) String() string {
	var names []string
	for _, each := range m.all() {
		names = append(names, wordsOfMetric.name(each))
	}
	return strings.Join(names, ",")
}

// MarshalText gives the text of String.
func (m Metric) MarshalText() ([]byte, error) {
	var known Metric
	for _, each := range m.all() {
		known |= each
	}
	if known != m {
		return nil, refuse("Metric.MarshalText", "%d has bits that are no metric", int32(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads such a text.
func (m *Metric) UnmarshalText(text []byte) error {
	var read Metric
	if len(text) > 0 {
		for name := range strings.SplitSeq(string(text), ",") {
			var each Metric
			if err := wordsOfMetric.unmarshal(&each, []byte(name)); err != nil {
				return err
			}
			read |= each
		}
	}
	*m = read
	return nil
}

// DefaultTrainerOptions gives the defaults.
func DefaultTrainerOptions() TrainerOptions {
	var c C.trafo_trainer_options
	mustInit(C.trafo_trainer_options_init(&c, C.sizeof_trafo_trainer_options))
	var o TrainerOptions
	o.fromC(&c)
	return o
}

// TrainerPreset gives how the model of Preset(name) is trained. The error of another name lists the names.
func TrainerPreset(name string) (TrainerOptions, error) {
	var c C.trafo_trainer_options
	mustInit(C.trafo_trainer_options_init(&c, C.sizeof_trafo_trainer_options))
	data, length := chars(name)
	var o TrainerOptions
	if err := check(C.trafo_trainer_options_preset(&c, data, length)); err != nil {
		return o, err
	}
	o.fromC(&c)
	return o, nil
}

// ScheduledRate is the learning rate that the schedule gives an update, counted from 1, for optimizers of own networks.
// width is the model's, which ScheduleNoam needs; at least 1. ErrInvalidArgument: an option.
func (o *TrainerOptions) ScheduledRate(width, update int64) (float64, error) {
	var rate C.double
	err := check(C.trafo_scheduled_rate(o.c(), C.int64_t(width), C.int64_t(update), &rate))
	return float64(rate), err
}

func (o *TrainerOptions) c() *C.trafo_trainer_options {
	c := new(C.trafo_trainer_options)
	mustInit(C.trafo_trainer_options_init(c, C.sizeof_trafo_trainer_options))
	o.toC(c)
	return c
}

// Trainer trains a model on a corpus.
type Trainer struct {
	c       *Context
	ptr     *C.trafo_trainer
	running bool // a callback of Run is being called; guarded by the context's core
	sources []*pairBody
	cleanup runtime.Cleanup
}

// NewTrainer prepares the data and continues from the run directory if that holds a checkpoint. It
// changes the model. valid and options may be nil; without valid nothing is validated. tokenizer may be nil
// where the corpora have token ids (NewCorpusOfIDs): the special tokens are then those that the model knows
// (SetSpecialTokens). train may be nil: the program gives batches (SetBatches) before the trainer trains, and the
// memory is planned for batches of BatchTokens in rows of MaxLength. When ctx ends while corpora are tokenised, or while
// another goroutine is in the engine, the error is ErrCancelled and the error of ctx.
func (m *Model) NewTrainer(ctx context.Context, tokenizer *Tokenizer, train, valid *Corpus, options *TrainerOptions) (*Trainer, error) {
	const origin = "Model.NewTrainer"
	o := DefaultTrainerOptions()
	if options != nil {
		o = *options
	}
	var t *Trainer
	err := m.within(ctx, origin, func() error {
		handle, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		var corpora [2]*C.trafo_corpus
		var sources []*pairBody
		for i, corpus := range []*Corpus{train, valid} {
			if corpus == nil {
				continue
			}
			if corpora[i], err = corpus.hold(origin); err != nil {
				return err
			}
			defer corpus.shared.release()
			sources = append(sources, corpus.sources...)
		}
		training, validation := corpora[0], corpora[1]
		directory, length := chars(o.RunDirectory)
		var out *C.trafo_trainer
		var group *C.trafo_group
		if o.Group != nil {
			if group, err = o.Group.hold(origin); err != nil {
				return err
			}
			defer o.Group.shared.release()
		}
		failure, err := cancellable(ctx, m.c.core, func(cancel *C.trafo_cancel) *C.trafo_error {
			if group == nil {
				return C.trafo_trainer_new(m.ptr, handle, training, validation, o.c(), directory, length, cancel, &out)
			}
			return C.trafo_trainer_new_in_group(group, m.ptr, handle, training, validation, o.c(), directory, length, cancel, &out)
		})
		if err == nil {
			err = withContext(ctx, m.c.core.finish(failure), false)
		}
		if err != nil {
			return told(sources, err)
		}
		t = &Trainer{c: m.c, ptr: out, sources: sources}
		t.cleanup = runtime.AddCleanup(t, abandoned.run, abandoned{m.c.core, func() { C.trafo_trainer_free(out) }})
		return nil
	})
	return t, err
}

// eventBody is an onEvent on its way through C.
type eventBody struct {
	c       *Context
	onEvent func(Event) error
	failed  bool
}

func (b *eventBody) run(event *C.trafo_event) C.int32_t {
	if b.failed { // the run is ending; the caller has had enough
		return 1
	}
	result := b.c.core.runCallback(func() error { return b.onEvent(newEvent(event)) })
	b.failed = result != 0
	return result
}

// Run trains until a limit of the options, early stopping, maxUpdates more updates (0: no such
// limit), the end of ctx, an error of onEvent, or an error; call it again to go on. The progress is
// saved if there is a run directory, also when the run is stopped by ctx or onEvent.
//
// onEvent, which may be nil, is called on this goroutine and may use the context, as to translate; it
// must not call runtime.Goexit. The error of a run that ctx ended is ErrCancelled and the error of
// ctx; the error of a run that onEvent ended is ErrCancelled and the error of onEvent.
func (t *Trainer) Run(ctx context.Context, maxUpdates int64, onEvent func(Event) error) (StopReason, error) {
	const origin = "Trainer.Run"
	nested, err := t.enter(ctx, origin)
	if err != nil {
		return stopped(err), err
	}
	defer t.c.core.leave(nested)
	if err := t.usable(origin); err != nil {
		return StopNone, err
	}
	t.running = true
	defer func() { t.running = false }()
	defer runtime.KeepAlive(t)

	var handle cgo.Handle
	body := &eventBody{c: t.c, onEvent: onEvent}
	if onEvent != nil {
		handle = cgo.NewHandle(body)
		defer handle.Delete()
	}
	var stop C.int32_t
	failure, err := cancellable(ctx, t.c.core, func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_go_trainer_run(t.ptr, C.int64_t(maxUpdates), cancel, C.uintptr_t(handle), &stop)
	})
	if err == nil {
		err = withContext(ctx, t.c.core.finish(failure), body.failed)
	}
	err = told(t.sources, err)
	if err == nil {
		return StopReason(stop), nil
	}
	if body.failed {
		return StopCallback, err
	}
	return stopped(err), err
}

func (t *Trainer) enter(ctx context.Context, origin string) (nested bool, err error) {
	if t == nil || t.c == nil {
		return false, closed(origin, "the trainer")
	}
	return t.c.core.enterWith(ctx, origin)
}

func (t *Trainer) usable(origin string) error {
	if t.ptr == nil {
		return closed(origin, "the trainer")
	}
	if t.running {
		return refuse(origin, "the trainer is running: onEvent cannot run, change or close its own trainer")
	}
	return nil
}

func (t *Trainer) in(origin string, f func() *C.trafo_error) error {
	return t.inWith(context.Background(), origin, func(*C.trafo_cancel) *C.trafo_error { return f() })
}

// inWith is in, given up when ctx ends.
func (t *Trainer) inWith(ctx context.Context, origin string, f func(cancel *C.trafo_cancel) *C.trafo_error) error {
	nested, err := t.enter(ctx, origin)
	if err != nil {
		return err
	}
	defer t.c.core.leave(nested)
	if err := t.usable(origin); err != nil {
		return err
	}
	defer runtime.KeepAlive(t)
	failure, err := cancellable(ctx, t.c.core, f)
	if err == nil {
		err = withContext(ctx, t.c.core.finish(failure), false)
	}
	return told(t.sources, err)
}

// Step does one update; it validates and saves like Run. When ctx ends before the update begins, the error is
// ErrCancelled and the error of ctx; a validation that it interrupts is repeated by the next call.
func (t *Trainer) Step(ctx context.Context) (StepResult, error) {
	var r C.trafo_step_result
	err := t.inWith(ctx, "Trainer.Step", func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_trainer_step(t.ptr, cancel, &r)
	})
	return newStepResult(&r), err
}

// Metrics are the values of a validation, of the metrics that were asked for.
type Metrics map[Metric]float64

func seconds(s C.double) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

func newObjectiveMetrics(values []C.trafo_objective_metric) map[string]float64 {
	if len(values) == 0 {
		return nil
	}
	metrics := make(map[string]float64, len(values))
	for i := range values {
		metrics[viewed(values[i].name)] = float64(values[i].value)
	}
	return metrics
}

func newMetrics(values []C.trafo_metric_value) Metrics {
	metrics := make(Metrics, len(values))
	for _, v := range values {
		metrics[Metric(v.metric)] = float64(v.value)
	}
	return metrics
}

// Validate measures now. When ctx ends the error is ErrCancelled and the error of ctx. Of several
// ranks, one whose ctx has ended before the call does not take part, and none looks at it later.
func (t *Trainer) Validate(ctx context.Context) (Metrics, error) {
	var values [C.TRAFO_METRIC_COUNT]C.trafo_metric_value
	var count C.int64_t
	err := t.inWith(ctx, "Trainer.Validate", func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_trainer_validate(t.ptr, cancel, &values[0], C.TRAFO_METRIC_COUNT, &count)
	})
	return newMetrics(values[:count]), err
}

// Save writes a checkpoint into the run directory now.
func (t *Trainer) Save() error {
	return t.in("Trainer.Save", func() *C.trafo_error { return C.trafo_trainer_save(t.ptr) })
}

// BestModel makes a model of the best checkpoint in the run directory, by the first metric of
// validation. The trainer and its model do not change. ErrInvalidArgument: there is no run directory.
// ErrNotFound: nothing was validated yet, or the best checkpoint is not kept (KeepBest).
func (t *Trainer) BestModel() (m *Model, err error) {
	err = t.in("Trainer.BestModel", func() *C.trafo_error {
		var out *C.trafo_model
		if e := C.trafo_trainer_load_best(t.ptr, &out); e != nil {
			return e
		}
		m = t.c.adoptModel(out)
		return nil
	})
	return m, err
}

// Close frees the trainer; it may be called more than once. It waits for a Run of another goroutine:
// end that one's context first. It fails only in the trainer's own callback.
func (t *Trainer) Close() error {
	if t == nil || t.c == nil {
		return nil
	}
	nested, err := t.c.core.enter("Trainer.Close")
	if err != nil {
		return err
	}
	defer t.c.core.leave(nested)
	if t.ptr == nil {
		return nil
	}
	if err := t.usable("Trainer.Close"); err != nil {
		return err
	}
	t.cleanup.Stop()
	C.trafo_trainer_free(t.ptr)
	t.ptr = nil
	return nil
}
