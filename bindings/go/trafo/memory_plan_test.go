package trafo

import (
	"errors"
	"testing"
)

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
	float32s, err := PlanTraining(config, options, 128, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	options.OptimizerStates = States8Bit
	bytes, err := PlanTraining(config, options, 128, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if share := float64(bytes.Optimizer) / float64(float32s.Optimizer); share < 0.25 || share > 0.255 {
		t.Errorf("moments in 8 bits take %v of those in float32", share)
	}
	// Blocks of memory are rounded up.
	if float32s.Total-bytes.Total < (float32s.Optimizer-bytes.Optimizer)/2 {
		t.Errorf("moments of %d bytes instead of %d save %d", bytes.Optimizer, float32s.Optimizer, float32s.Total-bytes.Total)
	}
	options.OptimizerStates = 2
	if _, err := PlanTraining(config, options, 128, 4096, 4096); err == nil {
		t.Error("optimizer states that there are not were planned")
	}
	options.OptimizerStates = StatesFloat32
	options.BatchFit, options.MemoryLimit = true, last+last/2
	fit, err := PlanTraining(config, options, 128, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if fit.BatchTokens <= 4096 || fit.Total > options.MemoryLimit || fit.Limit != options.MemoryLimit {
		t.Errorf("%d tokens take %d of %d bytes", fit.BatchTokens, fit.Total, options.MemoryLimit)
	}
	options.MemoryLimit = 1000
	if _, err := PlanTraining(config, options, 128, 4096, 4096); !errors.Is(err, ErrOutOfDeviceMemory) {
		t.Errorf("a batch for a thousand bytes: %v", err)
	}
	options.BatchFit = false
	if _, err := PlanTraining(config, options, 0, 1, 1); err == nil {
		t.Error("a batch without sentences was planned")
	}
}

func TestSwitchesOfTrainerOptionsReachTheEngine(t *testing.T) {
	options := DefaultTrainerOptions()
	if options.AutotuneGemm || options.c().autotune_gemm != 0 {
		t.Error("GEMMs are tuned by default")
	}
	options.AutotuneGemm = true
	if c := options.c(); c.autotune_gemm != 1 || c.batch_fit != 0 {
		t.Errorf("%+v", *c)
	}
}
