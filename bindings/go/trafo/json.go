//go:build cgo

package trafo

import (
	"encoding/json"
	"math"
)

// finite is the number for JSON, which has neither NaN nor infinity: nil, and so a member that is missing.
func finite(number float64) *float64 {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return nil
	}
	return &number
}

// finiteOf leaves out values that are not finite.
func finiteOf[K comparable](values map[K]float64) map[K]float64 {
	result := make(map[K]float64, len(values))
	for key, value := range values {
		if finite(value) != nil {
			result[key] = value
		}
	}
	return result
}

// MarshalJSON leaves out what is not known or not finite, as the loss of a skipped update.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	return json.Marshal(struct {
		plain
		Loss       *float64 `json:"loss,omitempty"`
		NLL        *float64 `json:"nll,omitempty"`
		GradNorm   *float64 `json:"grad_norm,omitempty"`
		BestMetric *float64 `json:"best_metric,omitempty"`

		ObjectiveMetrics map[string]float64 `json:"objective_metrics,omitempty"`
	}{plain(e), finite(e.Loss), finite(e.NLL), finite(e.GradNorm), finite(e.BestMetric), finiteOf(e.ObjectiveMetrics)})
}

// MarshalJSON leaves out what is not finite, as the loss of a skipped update.
func (r StepResult) MarshalJSON() ([]byte, error) {
	type plain StepResult
	return json.Marshal(struct {
		plain
		Loss     *float64 `json:"loss,omitempty"`
		NLL      *float64 `json:"nll,omitempty"`
		GradNorm *float64 `json:"grad_norm,omitempty"`
	}{plain(r), finite(r.Loss), finite(r.NLL), finite(r.GradNorm)})
}

// MarshalJSON leaves out values that are not finite.
func (m Metrics) MarshalJSON() ([]byte, error) {
	return json.Marshal(finiteOf(m))
}

// MarshalJSON leaves out what was not measured.
func (s ResampledScore) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Score     *float64 `json:"score,omitempty"`
		Mean      *float64 `json:"mean,omitempty"`
		HalfWidth *float64 `json:"half_width,omitempty"`
		PValue    *float64 `json:"p_value,omitempty"`
	}{finite(s.Score), finite(s.Mean), finite(s.HalfWidth), finite(s.PValue)})
}

// IsZero says that nothing was measured: JSON leaves out the score of a baseline that is not there.
func (s ResampledScore) IsZero() bool { return math.IsNaN(s.Score) }

// MarshalJSON leaves out a signal-to-noise ratio that is not known.
func (p ParameterInfo) MarshalJSON() ([]byte, error) {
	type plain ParameterInfo
	return json.Marshal(struct {
		plain
		SignalToNoise *float64 `json:"signal_to_noise,omitempty"`
	}{plain(p), finite(p.SignalToNoise)})
}
