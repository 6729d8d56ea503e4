package trafo

// #include "trafo.h"
import "C"

import (
	"time"
	"unsafe"
)

// EventKind says what happened.
type EventKind int32

// The events of a training run.
const (
	EventStarted           EventKind = C.TRAFO_EVENT_STARTED            // Message: what was dropped from the corpora, if anything
	EventResumed           EventKind = C.TRAFO_EVENT_RESUMED            // Path: the checkpoint
	EventCheckpointRefused EventKind = C.TRAFO_EVENT_CHECKPOINT_REFUSED // a newer checkpoint is damaged and was passed over; Message: why
	EventLog               EventKind = C.TRAFO_EVENT_LOG
	EventSkipped           EventKind = C.TRAFO_EVENT_SKIPPED // an update with NaN or Inf was left out; Message: its loss and gradient norm
	EventEpoch             EventKind = C.TRAFO_EVENT_EPOCH   // an epoch is complete; Message: what was dropped from it, if anything
	// Path: the translations, if any were written. Message: not empty for the validation of the model that a
	// run or a phase starts from, which is no candidate for the best.
	EventValidated  EventKind = C.TRAFO_EVENT_VALIDATED
	EventSaved      EventKind = C.TRAFO_EVENT_SAVED // Path: the checkpoint. On a GPU, events of later updates may precede it
	EventFinished   EventKind = C.TRAFO_EVENT_FINISHED
	EventStopped    EventKind = C.TRAFO_EVENT_STOPPED    // training can go on
	EventValidating EventKind = C.TRAFO_EVENT_VALIDATING // a validation begins, which may take long
	EventAveraged   EventKind = C.TRAFO_EVENT_AVERAGED   // AverageLast: Path of the mean, Message: its updates, and its metrics

	// AutotuneGemm; Message: how many GEMMs were timed, how long that took, where the other kernels come from
	EventGemmAutotuned EventKind = C.TRAFO_EVENT_GEMM_AUTOTUNED
	EventWarning       EventKind = C.TRAFO_EVENT_WARNING // something cannot be used, and the run continues without it; Message: what and why
)

var eventNames = map[EventKind]string{
	EventStarted: "started", EventResumed: "resumed", EventCheckpointRefused: "checkpoint refused",
	EventLog: "log", EventSkipped: "skipped", EventEpoch: "epoch", EventValidated: "validated",
	EventSaved: "saved", EventFinished: "finished", EventStopped: "stopped",
	EventValidating: "validating", EventAveraged: "averaged",
	EventGemmAutotuned: "GEMM autotuned", EventWarning: "warning",
}

// String is the kind's name, as "validated".
func (k EventKind) String() string {
	if name, ok := eventNames[k]; ok {
		return name
	}
	return "unknown"
}

// StopReason says why a run ended.
type StopReason int32

// The reasons.
const (
	StopNone      StopReason = C.TRAFO_STOP_NONE
	StopLimit     StopReason = C.TRAFO_STOP_LIMIT     // AfterUpdates, AfterEpochs or AfterTokens
	StopEarly     StopReason = C.TRAFO_STOP_EARLY     // EarlyStopping
	StopCallback  StopReason = C.TRAFO_STOP_CALLBACK  // onEvent returned an error
	StopCancelled StopReason = C.TRAFO_STOP_CANCELLED // the context ended
	StopPaused    StopReason = C.TRAFO_STOP_PAUSED    // maxUpdates are done
)

var stopNames = map[StopReason]string{
	StopNone: "none", StopLimit: "limit", StopEarly: "early stopping", StopCallback: "callback",
	StopCancelled: "cancelled", StopPaused: "paused",
}

// String is the reason's name, as "early stopping".
func (r StopReason) String() string {
	if name, ok := stopNames[r]; ok {
		return name
	}
	return "unknown"
}

// Event is a report of a training run.
type Event struct {
	Kind EventKind
	Stop StopReason // EventFinished and EventStopped only

	Update        int64
	Epoch         int64   // the current one, from 1; EventEpoch: the completed one
	EpochFraction float64 // of the current epoch, 0 to 1

	Loss         float64 // mean for each label since the last log event, smoothing included
	NLL          float64 // the same without smoothing; its exponential is the perplexity
	GradNorm     float64
	LearningRate float64

	TargetTokens          int64 // of the run so far
	SourceTokens          int64
	TargetTokensPerSecond float64 // since the last log event
	SourceTokensPerSecond float64
	Elapsed               time.Duration // training time of the run, earlier processes included
	ETA                   time.Duration // to the nearest limit; negative: unknown
	Memory                int64         // bytes in use
	PeakMemory            int64

	SkippedUpdates int64
	Stalled        int64 // validations in a row without improvement

	Metrics    Metrics // EventValidated, EventAveraged: those that were asked for
	BestMetric float64 // best value of the deciding metric so far, and its update
	BestUpdate int64
	Improved   bool // the deciding metric improved

	// DecidingMetric: chrF or cross-entropy instead of a metric of words for scripts without spaces.
	DecidingMetric Metric

	Message string
	Path    string
}

func seconds(s C.double) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

func newEvent(e *C.trafo_event) Event {
	return Event{
		Kind: EventKind(e.kind), Stop: StopReason(e.stop),
		Update: int64(e.update), Epoch: int64(e.epoch), EpochFraction: float64(e.epoch_fraction),
		Loss: float64(e.loss), NLL: float64(e.nll), GradNorm: float64(e.grad_norm),
		LearningRate: float64(e.learning_rate),
		TargetTokens: int64(e.target_tokens), SourceTokens: int64(e.source_tokens),
		TargetTokensPerSecond: float64(e.target_tokens_per_second),
		SourceTokensPerSecond: float64(e.source_tokens_per_second),
		Elapsed:               seconds(e.elapsed_seconds), ETA: seconds(e.eta_seconds),
		Memory: int64(e.memory_bytes), PeakMemory: int64(e.peak_memory_bytes),
		SkippedUpdates: int64(e.skipped_updates), Stalled: int64(e.stalled),
		Metrics:    newMetrics(unsafe.Slice(e.metrics, e.metric_count)),
		BestMetric: float64(e.best_metric), BestUpdate: int64(e.best_update), Improved: e.improved != 0,
		DecidingMetric: Metric(e.deciding_metric),
		Message:        viewed(e.message), Path: viewed(e.path),
	}
}
