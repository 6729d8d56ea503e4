package trafo_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func lossOf(t *testing.T, l *lesson, source, target []string) *trafo.Tensor {
	t.Helper()
	logits, labels, err := l.model.Logits(l.tokenizer, source, target)
	ok(t, err)
	loss, _, err := l.context.CrossEntropy(logits, labels, &trafo.CrossEntropyOptions{Reduction: trafo.ReduceSum})
	ok(t, err)
	return loss
}

// The loss is the one that Score gives, and the gradients of the parameters are its slopes.
func TestGradientsOfLogitsAreSlopesOfTheLoss(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	source, target = source[:3], target[:3]
	wanted := 0.0
	for _, score := range must[[]trafo.Score](t)(l.model.Score(t.Context(), l.tokenizer, source, target)) {
		wanted -= score.LogProbability
	}
	loss := lossOf(t, l, source, target)
	if got := must[float64](t)(loss.Item()); math.Abs(got-wanted) > 1e-4*wanted {
		t.Fatalf("the loss is %v, not %v", got, wanted)
	}
	ok(t, loss.Backward())
	checked := 0
	for _, p := range must[[]trafo.Parameter](t)(l.model.Parameters()) {
		slopes := must[[]float32](t)(must[*trafo.Tensor](t)(p.Tensor.Grad()).Float32s())
		steepest := 0
		for i, slope := range slopes {
			if math.Abs(float64(slope)) > math.Abs(float64(slopes[steepest])) {
				steepest = i
			}
		}
		given := float64(slopes[steepest])
		if math.Abs(given) < 0.05 {
			continue // the slope would be lost in the rounding of the loss
		}
		values := must[[]float32](t)(p.Tensor.Float32s())
		at := func(change float32) float64 {
			moved := slices.Clone(values)
			moved[steepest] += change
			ok(t, trafo.Write(p.Tensor, moved))
			return must[float64](t)(lossOf(t, l, source, target).Item())
		}
		const step = 0.01
		slope := (at(step) - at(-step)) / (2 * step)
		ok(t, trafo.Write(p.Tensor, values))
		if math.Abs(slope-given) > 0.05*math.Abs(given)+0.02 {
			t.Errorf("%s: slope %v, gradient %v", p.Name, slope, given)
		}
		checked++
	}
	if checked < 10 {
		t.Errorf("%d parameters have a gradient worth comparing", checked)
	}
}

// An encoder is trained through a layer of an own network.
func TestAModelIsTrainedThroughItsHiddenStates(t *testing.T) {
	l := newLesson(t)
	source, _ := sentences()
	source = source[:3]
	var trained []*trafo.Tensor
	for _, p := range must[[]trafo.Parameter](t)(l.model.Parameters()) {
		if strings.HasPrefix(p.Name, "encoder.") {
			trained = append(trained, p.Tensor)
		}
	}
	before := must[[]float32](t)(trained[0].Float32s())
	weight := must[*trafo.Tensor](t)(l.context.Zeros(trafo.Float32, 3, 32))
	ok(t, weight.SetRequiresGrad(true))
	classes := tensor(t, l.context, []int32{0, 1, 2}, 3)
	optimizer := must[*trafo.AdamW](t)(l.context.NewAdamW(nil, append(trained, weight)...))
	var losses []float64
	for range 30 {
		states, bounds, err := l.model.HiddenStates(l.tokenizer, source)
		ok(t, err)
		means := must[*trafo.Tensor](t)(l.context.SegmentMean(states, bounds))
		loss, _, err := l.context.CrossEntropy(must[*trafo.Tensor](t)(l.context.Linear(means, weight, nil)), classes, nil)
		ok(t, err)
		losses = append(losses, must[float64](t)(loss.Item()))
		ok(t, loss.Backward())
		must[float64](t)(optimizer.Step(0.01))
	}
	if math.Abs(losses[0]-math.Log(3)) > 1e-5 || losses[29] > 0.1 {
		t.Error(losses)
	}
	if slices.Equal(before, must[[]float32](t)(trained[0].Float32s())) {
		t.Error("the encoder has not changed")
	}
}
