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
	"slices"
)

// Schedule is how the learning rate goes after the warm-up.
type Schedule int32

// The schedules.
const (
	ScheduleConstant    Schedule = C.TRAFO_SCHEDULE_CONSTANT
	ScheduleLinear      Schedule = C.TRAFO_SCHEDULE_LINEAR
	ScheduleCosine      Schedule = C.TRAFO_SCHEDULE_COSINE
	ScheduleInverseSqrt Schedule = C.TRAFO_SCHEDULE_INVERSE_SQRT
	ScheduleNoam        Schedule = C.TRAFO_SCHEDULE_NOAM
)

// Unit is what a Period counts.
type Unit int32

// The units.
const (
	Updates Unit = C.TRAFO_UNIT_UPDATES
	Tokens  Unit = C.TRAFO_UNIT_TOKENS // target tokens
	Epochs  Unit = C.TRAFO_UNIT_EPOCHS
)

// Period is how often something happens, as Every(500, Updates); the zero value is never.
type Period struct {
	Value int64
	Unit  Unit
}

// Every makes a Period.
func Every(value int64, unit Unit) Period { return Period{value, unit} }

// Metric is a measure of validation, or several ones or-ed.
type Metric int32

// The metrics.
const (
	MetricCE   Metric = C.TRAFO_METRIC_CE // cross-entropy for each label
	MetricBLEU Metric = C.TRAFO_METRIC_BLEU
	MetricChrF Metric = C.TRAFO_METRIC_CHRF
)

// TrainerOptions say how a model is trained; begin with DefaultTrainerOptions.
type TrainerOptions struct {
	// RunDirectory holds checkpoints and logs; empty: nothing is written. If it holds a checkpoint,
	// training goes on from the newest whole one, bit for bit.
	RunDirectory string

	Seed                 uint64   // of dropout and data order; default 1
	LearningRate         float64  // peak; default 2e-3
	Warmup               int64    // updates; default 1000
	Schedule             Schedule // default ScheduleInverseSqrt
	ScheduleUpdates      int64    // cosine and linear: the update at which the rate reaches its end
	GradientAccumulation int      // batches accumulated in an update; default 1
	LabelSmoothing       float64  // default 0.1
	ClipNorm             float64  // global gradient norm; default 1; 0: off
	WeightDecay          float64  // default 0
	Beta1                float64  // default 0.9
	Beta2                float64  // default 0.98
	Epsilon              float64  // default 1e-9
	BatchTokens          int64    // target tokens a batch; default 4096
	MaxLength            int64    // longer pairs are dropped and counted; default 256 tokens a side

	// Training is done at the first of these that is reached; default 0: never by itself.
	AfterUpdates int64
	AfterEpochs  int64
	AfterTokens  int64 // target tokens

	ValidFreq         Period    // default 1000 updates; validation happens at the end as well
	SaveFreq          Period    // default 1000 updates; likewise
	LogFreq           Period    // default 100 updates
	LogFirst          int64     // the first so many updates are displayed as well; default 0
	EarlyStopping     int       // validations in a row without improvement of FirstMetric; default 0: never
	ValidMetrics      Metric    // default all
	FirstMetric       Metric    // the one of ValidMetrics that decides; default MetricBLEU
	ValidBeam         int       // default 1: greedy
	ValidNormalize    float64   // of that beam: score = log-probability / length^ValidNormalize; default 1
	KeepLast          int       // checkpoints kept; default 3
	KeepBest          bool      // the best checkpoint of every metric is kept as well; default true
	MaxNonFiniteSteps int       // updates in a row with NaN or Inf before ErrNonFinite; default 10
	Recompute         Recompute // what backward computes a second time instead of keeping it; default RecomputeNone
	MemoryLimit       int64     // bytes that training may take; default 0: what the device has free
	BatchFit          bool      // BatchTokens is the largest that the memory has room for; default false

	OptimizerStates OptimizerStates // what the optimizer keeps its moments in; default StatesFloat32

	// On CUDA the kernels of a new batch shape's matrix products are measured before they first run and
	// the fastest kept; the run directory holds the choices, so that a continued run computes the same
	// bits. Changes nothing on the CPU. Default false.
	AutotuneGemm bool

	// Share of every update's weights in their running mean (1e-4 is usual), which is what validations
	// measure and checkpoints hold to be used; the model keeps the weights that training goes on with.
	// Default 0: none is kept.
	EmaAlpha float64

	EarlyStoppingOn StoppingMetrics // the metrics that EarlyStopping counts; default StoppingFirst

	// At the end the mean of so many of the newest checkpoints, which are kept for it, is written to
	// ckpt/averaged/model.safetensors and measured, see EventAveraged; needs RunDirectory. Default 0: not.
	AverageLast int

	// Filters; what they drop is counted, and told by EventStarted or EventEpoch.
	MaxLengthRatio float64 // pairs with a side of more than so many times the other's tokens; default 0: none
	DropIdentical  bool    // pairs with the same text on both sides; default false

	MaxiBatch int // batches filled from sentences sorted by length together; default 0: 262144 sentences

	// Segmentations of the training text are sampled anew in every epoch: of a unigram vocabulary by
	// probability^alpha, of a BPE vocabulary with every merge left out with probability alpha. Default 0:
	// the best segmentation.
	SourceAlpha, TargetAlpha float64
}

// StoppingMetrics are the metrics that early stopping counts validations without a better one of.
type StoppingMetrics int32

const (
	StoppingFirst StoppingMetrics = C.TRAFO_STOPPING_FIRST // FirstMetric
	StoppingAny   StoppingMetrics = C.TRAFO_STOPPING_ANY   // one of them is enough to stop
	StoppingAll   StoppingMetrics = C.TRAFO_STOPPING_ALL   // none may have become better
)

// OptimizerStates is what the optimizer keeps its two moments of every parameter in. A run continues
// with those it has begun with.
type OptimizerStates int32

const (
	StatesFloat32 OptimizerStates = C.TRAFO_OPTIMIZER_STATES_FLOAT32
	States8Bit    OptimizerStates = C.TRAFO_OPTIMIZER_STATES_8BIT // blocks of codes: 2.03 bytes a parameter instead of 8
)

// Recompute trades time for memory; results are the same bits under each.
type Recompute int32

const (
	RecomputeNone      Recompute = C.TRAFO_RECOMPUTE_NONE
	RecomputeSelective Recompute = C.TRAFO_RECOMPUTE_SELECTIVE // outputs of norms and of activations: large and cheap
	RecomputeFull      Recompute = C.TRAFO_RECOMPUTE_FULL      // everything inside a layer
)

// DefaultTrainerOptions gives the defaults.
func DefaultTrainerOptions() TrainerOptions {
	var o C.trafo_trainer_options
	mustInit(C.trafo_trainer_options_init(&o, C.sizeof_trafo_trainer_options))
	period := func(p C.trafo_period) Period { return Period{int64(p.value), Unit(p.unit)} }
	return TrainerOptions{
		Seed: uint64(o.seed), LearningRate: float64(o.learning_rate), Warmup: int64(o.warmup),
		Schedule: Schedule(o.schedule), ScheduleUpdates: int64(o.schedule_updates),
		GradientAccumulation: int(o.gradient_accumulation), LabelSmoothing: float64(o.label_smoothing),
		ClipNorm: float64(o.clip_norm), WeightDecay: float64(o.weight_decay),
		Beta1: float64(o.beta1), Beta2: float64(o.beta2), Epsilon: float64(o.epsilon),
		BatchTokens: int64(o.batch_tokens), MaxLength: int64(o.max_length),
		AfterUpdates: int64(o.after_updates), AfterEpochs: int64(o.after_epochs), AfterTokens: int64(o.after_tokens),
		ValidFreq: period(o.valid_freq), SaveFreq: period(o.save_freq), LogFreq: period(o.log_freq),
		LogFirst: int64(o.log_first), EarlyStopping: int(o.early_stopping),
		ValidMetrics: Metric(o.valid_metrics), FirstMetric: Metric(o.first_metric), ValidBeam: int(o.valid_beam),
		ValidNormalize: float64(o.valid_normalize),
		KeepLast:       int(o.keep_last), KeepBest: o.keep_best != 0, MaxNonFiniteSteps: int(o.max_non_finite_steps),
		Recompute: Recompute(o.recompute), OptimizerStates: OptimizerStates(o.optimizer_states),
		MemoryLimit: int64(o.memory_limit), BatchFit: o.batch_fit != 0,
		AutotuneGemm: o.autotune_gemm != 0, EmaAlpha: float64(o.ema_alpha),
		EarlyStoppingOn: StoppingMetrics(o.early_stopping_on), AverageLast: int(o.average_last),
		MaxLengthRatio: float64(o.max_length_ratio), DropIdentical: o.drop_identical != 0, MaxiBatch: int(o.maxi_batch),
		SourceAlpha: float64(o.source_alpha), TargetAlpha: float64(o.target_alpha),
	}
}

func (o *TrainerOptions) c() *C.trafo_trainer_options {
	period := func(p Period) C.trafo_period {
		return C.trafo_period{value: C.int64_t(p.Value), unit: C.int32_t(p.Unit)}
	}
	c := new(C.trafo_trainer_options)
	mustInit(C.trafo_trainer_options_init(c, C.sizeof_trafo_trainer_options))
	c.seed = C.uint64_t(o.Seed)
	c.learning_rate = C.double(o.LearningRate)
	c.warmup = C.int64_t(o.Warmup)
	c.schedule = C.int32_t(o.Schedule)
	c.schedule_updates = C.int64_t(o.ScheduleUpdates)
	c.gradient_accumulation = cInt(o.GradientAccumulation)
	c.label_smoothing = C.double(o.LabelSmoothing)
	c.clip_norm = C.double(o.ClipNorm)
	c.weight_decay = C.double(o.WeightDecay)
	c.beta1 = C.double(o.Beta1)
	c.beta2 = C.double(o.Beta2)
	c.epsilon = C.double(o.Epsilon)
	c.batch_tokens = C.int64_t(o.BatchTokens)
	c.max_length = C.int64_t(o.MaxLength)
	c.after_updates = C.int64_t(o.AfterUpdates)
	c.after_epochs = C.int64_t(o.AfterEpochs)
	c.after_tokens = C.int64_t(o.AfterTokens)
	c.valid_freq = period(o.ValidFreq)
	c.save_freq = period(o.SaveFreq)
	c.log_freq = period(o.LogFreq)
	c.log_first = C.int64_t(o.LogFirst)
	c.early_stopping = cInt(o.EarlyStopping)
	c.valid_metrics = C.int32_t(o.ValidMetrics)
	c.first_metric = C.int32_t(o.FirstMetric)
	c.valid_beam = cInt(o.ValidBeam)
	c.valid_normalize = C.double(o.ValidNormalize)
	c.keep_last = cInt(o.KeepLast)
	c.keep_best = cBool(o.KeepBest)
	c.max_non_finite_steps = cInt(o.MaxNonFiniteSteps)
	c.recompute = C.int32_t(o.Recompute)
	c.memory_limit = C.int64_t(o.MemoryLimit)
	c.batch_fit = cBool(o.BatchFit)
	c.optimizer_states = C.int32_t(o.OptimizerStates)
	c.autotune_gemm = cBool(o.AutotuneGemm)
	c.ema_alpha = C.double(o.EmaAlpha)
	c.early_stopping_on = C.int32_t(o.EarlyStoppingOn)
	c.average_last = cInt(o.AverageLast)
	c.max_length_ratio = C.double(o.MaxLengthRatio)
	c.drop_identical = cBool(o.DropIdentical)
	c.maxi_batch = cInt(o.MaxiBatch)
	c.source_alpha = C.double(o.SourceAlpha)
	c.target_alpha = C.double(o.TargetAlpha)
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
// changes the model. valid and options may be nil; without valid nothing is validated.
func (m *Model) NewTrainer(tokenizer *Tokenizer, train, valid *Corpus, options *TrainerOptions) (*Trainer, error) {
	const origin = "Model.NewTrainer"
	o := DefaultTrainerOptions()
	if options != nil {
		o = *options
	}
	var t *Trainer
	err := m.within(context.Background(), origin, func() error {
		pieces, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		training, err := train.hold(origin)
		if err != nil {
			return err
		}
		defer train.shared.release()
		var validation *C.trafo_corpus
		if valid != nil {
			if validation, err = valid.hold(origin); err != nil {
				return err
			}
			defer valid.shared.release()
		}
		directory, length := chars(o.RunDirectory)
		var out *C.trafo_trainer
		sources := train.sources
		if valid != nil {
			sources = append(slices.Clone(sources), valid.sources...)
		}
		if err := m.c.core.finish(C.trafo_trainer_new(m.ptr, pieces, training, validation, o.c(), directory, length, &out)); err != nil {
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
// limit), the end of ctx, an error of onEvent, or an error; call it again to go on. What is reached
// is saved if there is a run directory, also when the run is stopped by ctx or onEvent.
//
// onEvent, which may be nil, is called on this goroutine and may use the context, as to translate;
// it must not call runtime.Goexit. The error of a run that ctx ended is ErrCancelled and the error of
// ctx; that of a run that onEvent ended is ErrCancelled and the error of onEvent.
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
	failure, err := cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_go_trainer_run(t.ptr, C.int64_t(maxUpdates), cancel, C.uintptr_t(handle), &stop)
	})
	if err != nil {
		return StopNone, err
	}
	err = told(t.sources, withContext(ctx, t.c.core.finish(failure), body.failed))
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
	nested, err := t.enter(context.Background(), origin)
	if err != nil {
		return err
	}
	defer t.c.core.leave(nested)
	if err := t.usable(origin); err != nil {
		return err
	}
	defer runtime.KeepAlive(t)
	return told(t.sources, t.c.core.finish(f()))
}

// StepResult is what one update did.
type StepResult struct {
	Update       int64
	Loss         float64 // mean for each label, smoothing included
	NLL          float64
	GradNorm     float64
	LearningRate float64
	Labels       int64
	Skipped      bool // NaN or Inf: nothing was changed
}

// Step does one update; it validates and saves like Run.
func (t *Trainer) Step() (StepResult, error) {
	var r C.trafo_step_result
	err := t.in("Trainer.Step", func() *C.trafo_error { return C.trafo_trainer_step(t.ptr, &r) })
	return StepResult{int64(r.update), float64(r.loss), float64(r.nll), float64(r.grad_norm),
		float64(r.learning_rate), int64(r.labels), r.skipped != 0}, err
}

// Validation is a measurement on the validation corpus; metrics not asked for are NaN.
type Validation struct{ CE, BLEU, ChrF float64 }

// Validate measures now.
func (t *Trainer) Validate() (Validation, error) {
	var ce, bleu, chrf C.double
	err := t.in("Trainer.Validate", func() *C.trafo_error {
		return C.trafo_trainer_validate(t.ptr, &ce, &bleu, &chrf)
	})
	return Validation{float64(ce), float64(bleu), float64(chrf)}, err
}

// Save writes a checkpoint into the run directory now.
func (t *Trainer) Save() error {
	return t.in("Trainer.Save", func() *C.trafo_error { return C.trafo_trainer_save(t.ptr) })
}

// Close frees the trainer; it may be called more than once. It waits for a Run of another goroutine:
// end that one's context first. It fails only in the trainer's own callback.
func (t *Trainer) Close() error {
	if t == nil || t.c == nil {
		return nil
	}
	nested := t.c.core.enter()
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
