package trafo

import "testing"

func TestPlansKnowWhatRecomputingSaves(t *testing.T) {
	config, err := Preset("tiny")
	if err != nil {
		t.Fatal(err)
	}
	config.Vocabulary, config.Precision = 8000, BFloat16
	options := DefaultTrainerOptions()
	last := int64(1) << 60
	for _, options.Recompute = range []Recompute{RecomputeNone, RecomputeSelective, RecomputeFull} {
		plan, err := PlanTraining(config, options, 128, 4096, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if parts := plan.Weights + plan.Gradients + plan.Optimizer + plan.Activations; plan.Total < parts {
			t.Errorf("the total %d is less than its parts, %d", plan.Total, parts)
		}
		if plan.Total >= last {
			t.Errorf("recompute %d takes %d bytes, less of it %d", options.Recompute, plan.Total, last)
		}
		last = plan.Total
	}
	if _, err := PlanTraining(config, options, 0, 1, 1); err == nil {
		t.Error("a batch without sentences was planned")
	}
}
