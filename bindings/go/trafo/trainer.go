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

// Unit is what a Period counts.
type Unit int32

// The units.
const (
	Updates Unit = C.TRAFO_UNIT_UPDATES
	Tokens  Unit = C.TRAFO_UNIT_TOKENS // target tokens
	Epochs  Unit = C.TRAFO_UNIT_EPOCHS
)

// Period is how often something happens, as Every(500, Updates); Every(0, Updates) is never. In a literal
// of options, the zero Period is the default; in options from DefaultTrainerOptions, it is never.
type Period struct {
	Value int64
	Unit  Unit
	given bool // by Every
}

// Every makes a Period.
func Every(value int64, unit Unit) Period { return Period{value, unit, true} }

// Metric is a measure of validation, or several ones or-ed.
type Metric int32

// String is the metric's name in options and files, as "bleu"; empty: it is not one metric.
func (m Metric) String() string { return metricNames[m] }

// TrainerOptions say how a model is trained. In a literal, zero fields have their defaults; to turn off
// what is on by default, begin with DefaultTrainerOptions, whose fields are taken as they are.
type TrainerOptions struct {
	// RunDirectory holds checkpoints and logs; empty: nothing is written. If it holds a checkpoint,
	// training resumes from the newest whole one, bit for bit.
	RunDirectory string
	// Group is the rank that trains; nil: the model is trained alone. All ranks give the same options, and
	// the same run directory, which rank 0 alone reads and writes.
	Group *Group

	// options: begin TrainerOptions (scripts/generate_options.py)
	// The step. A run cannot be resumed with other values.

	// Peak of the learning rate. Default 0.002.
	LearningRate float64
	// How the learning rate goes after the warm-up. Default ScheduleInverseSqrt.
	Schedule Schedule
	// Updates in which the rate rises to its peak on a line. Default 1000.
	Warmup int64
	// The update at which cosine and linear schedules reach their end. It must be set for them. Default 0.
	ScheduleUpdates int64
	// Share of the target probability that is spread over the other tokens. Default 0.1.
	LabelSmoothing float64
	// Largest global norm of the mean gradient. 0: no clipping. Default 1.
	ClipNorm float64
	// Weight decay: decoupled in AdamW and Muon; SGD adds it, times the weight, to the gradient. Default 0.
	WeightDecay float64
	// Whether weight_decay acts on norms and biases too, and not only on matrices. Default true.
	DecayNormsAndBiases bool
	// How the weights follow their gradients. Default OptimizerAdamW.
	Optimizer OptimizerKind
	// Momentum of SGD and Muon; AdamW has none. 0: plain SGD, which keeps no state. Default 0.95.
	Momentum float64
	// Whether the momentum of SGD and Muon is Nesterov's: the update is along the momentum that follows. Default
	// true.
	Nesterov bool
	// Decay of the first moment of AdamW, also of the weights that follow it under Muon. Default 0.9.
	Beta1 float64
	// Decay of the second moment of AdamW, also of the weights that follow it under Muon. Default 0.98.
	Beta2 float64
	// AdamW's epsilon. Default 1e-9.
	Epsilon float64
	// Storage type of AdamW's two moments of every parameter. INVALID_ARGUMENT: 8 bits with another optimizer.
	// float64 models have float32. Default StatesFloat32.
	OptimizerStates OptimizerStates
	// Whether the GEMMs of a float32 model multiply in TF32 on CUDA: factors with 10 bits of mantissa, sums in
	// float32. Weights, activations and files stay float32. UNSUPPORTED on the CPU. Default false.
	Tf32 bool
	// Whether a bfloat16 model is trained with FP8 GEMMs on CUDA (compute capability 8.9 or newer): GEMMs of
	// linear layers with at least 3 x 2^20 weights (1024 x 3072), and of the output projection except for the
	// gradient of its weight. Scales are powers of two for each tensor, from its values at that moment. Weights,
	// activations and files stay as in bfloat16 training; validation and inference compute in bfloat16.
	// UNSUPPORTED on the CPU and on older cards. Default false.
	Fp8 bool
	// Quantization-aware training: the weights that the model computes with are rounded to codes of 8 bits, or
	// of 4 in groups of 32, and the inputs of linear layers to int8. Gradients pass the rounding unchanged
	// (straight-through), and the optimizer works on exact weights, which files hold. 8 or 4. Default 0: no
	// quantization.
	QuantizeBits int64
	// LayerDrop: the probability with which a batch of training skips a layer of the encoder or of the decoder
	// (Fan et al., arXiv 1909.11556). Each layer is drawn by itself, from the seed and the number of the batch.
	// Validation and decoding run all layers. Default 0: none is skipped.
	LayerDrop float64
	// Unstructured pruning: the share of the weights of each trainable linear layer that is zero after PruneEnd.
	// It rises from zero at PruneStart by a cubic schedule (Zhu & Gupta, arXiv 1710.01878). The weights of the
	// least magnitude of a matrix are pruned, and stay zero. Embeddings, the output projection, biases and norms
	// are not pruned. Default 0: no weight is pruned.
	PruneSparsity float64
	// The update, counted from 1, before which pruning to PruneSparsity begins. Default 1.
	PruneStart int64
	// The update before which PruneSparsity is reached. Default 0: PruneStart, all at once.
	PruneEnd int64
	// Updates from one pruning to the next, between PruneStart and PruneEnd. Default 100.
	PruneEvery int64
	// Whether weights of trainable linear layers that are exactly zero stay zero: of a pruned model that is
	// fine-tuned. A PruneSparsity above 0 does the same. Default false.
	KeepZeros bool
	// Share of the teacher in the loss of a model that has one: (1 - W) times the cross-entropy of the labels
	// plus W T^2 times the divergence from the teacher at TeacherTemperature T. 0 does not run the teacher.
	// Default 0.5.
	TeacherWeight float64
	// The temperature that the logits of the teacher and of the student are divided by for the divergence.
	// Default 1.
	TeacherTemperature float64
	// EMA of the weights: the share that every update's weights have in it (1e-4 is usual). The EMA is what is
	// validated and saved as model.safetensors. Training continues from the weights themselves, which the model
	// keeps and checkpoints hold as unsmoothed.safetensors. Default 0: no EMA.
	EmaAlpha float64
	// Batches whose gradients are accumulated for an update. The last update of an epoch may have fewer. Default
	// 1.
	GradientAccumulation int64
	// Number of parts of an update. Each part has GradientAccumulation batches. The ranks share the parts, at
	// least one each. The number decides every bit of a run, the number of ranks none. 1: one for each rank; a
	// run that resumes keeps its own. Default 1.
	Lanes int64
	// Type in which ranks send each other the gradient of a lane. With bfloat16 the gradient of every lane is
	// rounded, also on one rank, so that the number of ranks changes no bit. Sums of lanes are float32. Not for
	// float64 models. Default CommunicateFloat32.
	CommunicationDtype CommunicationDType
	// Seed of dropout and of the data order. Default 1.
	Seed uint64

	// Data, used where text becomes a corpus. Fixed as well.

	// Target tokens of a batch. Default 4096.
	BatchTokens int64
	// Tokens a side. Longer pairs are dropped and counted. Default 256.
	MaxLength int64
	// Batches that are filled from sentences sorted by length together. Default 0: 262144 sentences.
	MaxiBatch int64
	// Largest ratio of the tokens of both sides. Other pairs are dropped and counted. Default 0: any.
	MaxLengthRatio float64
	// Whether pairs with the same text on both sides are dropped and counted. Default false.
	DropIdentical bool
	// Sampled segmentations of the source text, anew in every epoch: of a unigram vocabulary by
	// probability^alpha, of a BPE vocabulary with every merge left out with probability alpha. Default 0: the
	// best segmentation.
	SourceAlpha float64
	// The same for the target text. Default 0: the best segmentation.
	TargetAlpha float64
	// Whether BatchTokens is chosen: the largest that the memory has room for. Default false.
	BatchFit bool
	// Activations that backward recomputes instead of keeping them: less memory for more time. It never changes
	// a bit. Default RecomputeNone.
	Recompute Recompute
	// Whether CUDA times the kernels of small GEMMs at the start of a run, at most 5 seconds in all, and keeps
	// those that are at least 5 % faster than the library's first proposal. Checkpoints hold the choices, so
	// that a resumed run computes the same bits. A cache file of the user holds them for later runs. Nothing on
	// the CPU and with several lanes. Default true.
	AutotuneGemm bool
	// Bytes that training may take. A run whose plan needs more is refused. Default 0: what the device has free.
	MemoryLimit int64

	// Phases.

	// Number of the phase. A run directory whose checkpoint is of the phase before begins this one: weights and
	// moments stay; data, learning rate, batches and teacher may be others; schedule, warm-up, epochs, best
	// scores and patience start anew. Limits count from there. A checkpoint of the same phase resumes it.
	// Default 1.
	Phase int64
	// Whether a resumed run may validate on other text, or with another beam, than before: best scores and
	// patience start anew then. Otherwise it is refused. Default false.
	RestartValidation bool

	// The end of a run: the first limit that is reached, counted from the start of the phase. All 0: until it is
	// stopped.

	// Training is done after this many updates. Default 0: never.
	AfterUpdates int64
	// Training is done after this many epochs. Default 0: never.
	AfterEpochs int64
	// Training is done after this many target tokens. Default 0: never.
	AfterTokens int64
	// Training is done after this many validations in a row without a better metric (see EarlyStoppingOn).
	// Default 0: never.
	EarlyStopping int64
	// The metrics that EarlyStopping looks at. Default StoppingFirst.
	EarlyStoppingOn StoppingMetrics
	// Updates in a row with a loss or gradient that is not finite, or a loss above 2 ln V + 20 a token, before
	// the error NON_FINITE. Default 10.
	MaxNonFiniteSteps int64

	// On the way.

	// How often it validates, besides at the end. Nothing is validated without validation data. Default 1000
	// updates.
	ValidFreq Period
	// How often it saves, besides at the end. Nothing is saved without a run directory. Default 1000 updates.
	SaveFreq Period
	// How often it logs (the event LOG). Default 20 updates.
	LogFreq Period
	// This many updates at the start are logged as well. Default 0.
	LogFirst int64
	// Metrics that validation measures. Default MetricBLEU | MetricChrF | MetricCE.
	ValidMetrics Metric
	// The one of ValidMetrics that decides which checkpoint is best. Default MetricBLEU.
	FirstMetric Metric
	// Beam of validation. 1 is greedy search. Default 1.
	ValidBeam int64
	// Length normalisation of that beam: score = log-probability / length^valid_normalize. Default 1.
	ValidNormalize float64
	// Whether the best checkpoint of every metric is kept as well. Default true.
	KeepBest bool
	// Newest checkpoints that are kept. Default 3.
	KeepLast int64
	// At the end the mean of this many of the newest checkpoints, which are kept for it, is written to
	// ckpt/averaged/model.safetensors and measured. It needs a run directory. Default 0: no average.
	AverageLast int64
	// options: end

	explicit bool // made by the library: fields that are zero are meant
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
// changes the model. valid and options may be nil; without valid nothing is validated.
func (m *Model) NewTrainer(tokenizer *Tokenizer, train, valid *Corpus, options *TrainerOptions) (*Trainer, error) {
	const origin = "Model.NewTrainer"
	o := DefaultTrainerOptions()
	if options != nil {
		o = *options
	}
	var t *Trainer
	err := m.within(context.Background(), origin, func() error {
		handle, err := tokenizer.hold(origin)
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
		var failure *C.trafo_error
		if o.Group == nil {
			failure = C.trafo_trainer_new(m.ptr, handle, training, validation, o.c(), directory, length, &out)
		} else {
			group, err := o.Group.hold(origin)
			if err != nil {
				return err
			}
			defer o.Group.shared.release()
			failure = C.trafo_trainer_new_in_group(group, m.ptr, handle, training, validation, o.c(), directory, length, &out)
		}
		if err := m.c.core.finish(failure); err != nil {
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

// Metrics are the values of a validation, of the metrics that were asked for.
type Metrics map[Metric]float64

func newMetrics(values []C.trafo_metric_value) Metrics {
	metrics := make(Metrics, len(values))
	for _, v := range values {
		metrics[Metric(v.metric)] = float64(v.value)
	}
	return metrics
}

// Validate measures now.
func (t *Trainer) Validate() (Metrics, error) {
	var values [C.TRAFO_METRIC_COUNT]C.trafo_metric_value
	var count C.int64_t
	err := t.in("Trainer.Validate", func() *C.trafo_error {
		return C.trafo_trainer_validate(t.ptr, &values[0], C.TRAFO_METRIC_COUNT, &count)
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
