package trafo

// #include "trafo.h"
import "C"

import (
	"time"
	"unsafe"
)

// Event is a report of a training run.
type Event struct {
	Kind EventKind  `json:"kind"`
	Stop StopReason `json:"stop,omitzero"` // EventFinished and EventStopped only

	Update        int64   `json:"update"`
	Epoch         int64   `json:"epoch"`          // the current one, from 1; EventEpoch: the completed one
	EpochFraction float64 `json:"epoch_fraction"` // of the current epoch, 0 to 1

	Loss         float64 `json:"loss"` // mean for each label since the last log event, smoothing included; of DPO for each pair
	NLL          float64 `json:"nll"`  // for each label since then, without smoothing; its exponential is the perplexity
	GradNorm     float64 `json:"grad_norm"`
	LearningRate float64 `json:"learning_rate"`

	TargetTokens          int64         `json:"target_tokens"` // of the run so far
	SourceTokens          int64         `json:"source_tokens"`
	TargetTokensPerSecond float64       `json:"target_tokens_per_second"` // since the last log event
	SourceTokensPerSecond float64       `json:"source_tokens_per_second"`
	Elapsed               time.Duration `json:"elapsed_ns"`   // training time of the run, earlier processes included
	ETA                   time.Duration `json:"eta_ns"`       // to the nearest limit; negative: unknown
	Memory                int64         `json:"memory_bytes"` // bytes in use
	PeakMemory            int64         `json:"peak_memory_bytes"`

	SkippedUpdates int64 `json:"skipped_updates"`
	Stalled        int64 `json:"stalled"` // validations in a row without improvement

	// ObjectiveMetrics are metrics of the objective by name: means for each unit of the objective since the last
	// log event; nil if it has none.
	ObjectiveMetrics map[string]float64 `json:"objective_metrics,omitempty"`

	Metrics    Metrics `json:"metrics,omitempty"` // EventValidated, EventAveraged: those that were asked for
	BestMetric float64 `json:"best_metric"`       // best value of the deciding metric so far, and its update
	BestUpdate int64   `json:"best_update,omitzero"`
	Improved   bool    `json:"improved,omitzero"` // the deciding metric improved

	// DecidingMetric: chrF or cross-entropy instead of a metric of words for scripts without spaces.
	DecidingMetric Metric `json:"deciding_metric,omitzero"`

	Message string `json:"message,omitzero"`
	Path    string `json:"path,omitzero"`
}

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
		ObjectiveMetrics: newObjectiveMetrics(unsafe.Slice(e.objective_metrics, e.objective_metric_count)),
		Metrics:          newMetrics(unsafe.Slice(e.metrics, e.metric_count)),
		BestMetric:       float64(e.best_metric), BestUpdate: int64(e.best_update), Improved: e.improved != 0,
		DecidingMetric: Metric(e.deciding_metric),
		Message:        viewed(e.message), Path: viewed(e.path),
	}
}
