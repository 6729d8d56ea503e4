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

func TestFrozenParametersArePlannedAsFrozen(t *testing.T) {
	config := ModelConfig{Vocabulary: 100, Precision: BFloat16}
	plan := func(frozen ...string) MemoryPlan {
		p, err := PlanTraining(config, TrainerOptions{}, 2, 8, 8, frozen...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all, encoder, more := plan(), plan("encoder.*"), plan("encoder.*", "decoder.0.*")
	if encoder.Gradients >= all.Gradients || more.Gradients >= encoder.Gradients || encoder.Optimizer >= all.Optimizer {
		t.Errorf("%+v, %+v, %+v", all, encoder, more)
	}
	if _, err := PlanTraining(config, TrainerOptions{}, 2, 8, 8, "no.such"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestTheTeacherIsPlanned(t *testing.T) {
	config, teacher := ModelConfig{Vocabulary: 100}, ModelConfig{Vocabulary: 100, Width: 1024}
	alone, err := PlanTraining(config, TrainerOptions{}, 2, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	taught, err := PlanDistillation(config, teacher, TrainerOptions{}, 0, 1, 1, 2, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	if alone.Teacher != 0 || taught.Teacher <= 0 || taught.Total < alone.Total+taught.Teacher || taught.Weights != alone.Weights {
		t.Errorf("%+v, %+v", alone, taught)
	}
	teacher.Vocabulary = 101
	if _, err := PlanDistillation(config, teacher, TrainerOptions{}, 0, 1, 1, 2, 8, 8); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}

// C gets the same values from a literal without fields as from the defaults.
func TestZeroOptionsAreTheDefaults(t *testing.T) {
	var trainer, trainerDefaults = TrainerOptions{}, DefaultTrainerOptions()
	if *trainer.c() != *trainerDefaults.c() {
		t.Errorf("%+v\n%+v", *trainer.c(), *trainerDefaults.c())
	}
	var config, configDefaults = ModelConfig{}, DefaultModelConfig()
	if *config.c() != *configDefaults.c() {
		t.Errorf("%+v\n%+v", *config.c(), *configDefaults.c())
	}
	var search, searchDefaults, sampling = TranslateOptions{}, DefaultTranslateOptions(), DefaultSampling()
	if *search.c() != *searchDefaults.c() {
		t.Errorf("%+v\n%+v", *search.c(), *searchDefaults.c())
	}
	search.Sampling, searchDefaults.Sampling = &Sampling{}, &sampling
	if *search.c() != *searchDefaults.c() {
		t.Errorf("%+v\n%+v", *search.c(), *searchDefaults.c())
	}
	var evaluation, tokenizer, tokenizerDefaults = evaluationDefaults(), TokenizerOptions{}, DefaultTokenizerOptions()
	(&EvaluationOptions{}).toC(evaluation)
	tokenizerC, _ := tokenizer.c() // without symbols there is nothing to free
	tokenizerDefaultsC, _ := tokenizerDefaults.c()
	if *evaluation != *evaluationDefaults() || *tokenizerC != *tokenizerDefaultsC {
		t.Errorf("%+v\n%+v", *evaluation, *tokenizerC)
	}
	adamwDefaults := DefaultAdamWOptions()
	if none, zero, all := *(*AdamWOptions)(nil).c(), *(&AdamWOptions{}).c(), *adamwDefaults.c(); none != zero || none != all {
		t.Errorf("%+v\n%+v\n%+v", none, zero, all)
	}
	if loss := (&CrossEntropyOptions{}).filled(); loss.IgnoreLabel != Some(-100) || loss.Reduction != ReduceMean {
		t.Errorf("%+v", loss)
	}
}

// A literal changes what it names, zeros included.
func TestOptionsAreTakenAsTheyAreMeant(t *testing.T) {
	given := TrainerOptions{Schedule: ScheduleConstant, LogFreq: Every(0, Updates), LabelSmoothing: Some(0.3)}
	defaults := DefaultTrainerOptions()
	if c, d := given.c(), defaults.c(); c.schedule != 0 || c.log_freq.value != 0 || c.label_smoothing != 0.3 ||
		c.valid_freq != d.valid_freq || c.keep_best != 1 || d.schedule == 0 {
		t.Errorf("%+v", *c)
	}
	defaults.KeepBest, defaults.LogFreq = Some(false), Every(0, Epochs)
	if c := defaults.c(); c.keep_best != 0 || c.log_freq.value != 0 {
		t.Errorf("%+v", *c)
	}
	search := DefaultTranslateOptions()
	search.LengthPenalty, search.Truncate = Some(0.0), Some(false)
	if c := search.c(); c.length_penalty != 0 || c.truncate != 0 || c.beam != 5 {
		t.Errorf("%+v", *c)
	}
	if c := (&TranslateOptions{Beam: 2, Sampling: &Sampling{TopK: 7}}).c(); c.beam != 2 || c.length_penalty != 1 ||
		c.sampling != 1 || c.top_k != 7 || c.temperature != 1 {
		t.Errorf("%+v", *c)
	}
	loss := CrossEntropyOptions{IgnoreLabel: Some(0)}
	adamw := (&AdamWOptions{Beta1: Some(0.0)}).c()
	if loss.filled().IgnoreLabel != Some(0) || adamw.beta1 != 0 || adamw.beta2 != 0.98 {
		t.Errorf("%+v %+v", loss.filled(), adamw)
	}
}

func TestSwitchesOfTrainerOptionsReachTheEngine(t *testing.T) {
	options := DefaultTrainerOptions()
	if options.AutotuneGEMM != Some(true) || options.c().autotune_gemm != 1 {
		t.Error("GEMMs are not tuned by default")
	}
	options.AutotuneGEMM = Some(false)
	if c := options.c(); c.autotune_gemm != 0 || c.batch_fit != 0 {
		t.Errorf("%+v", *c)
	}
}

func TestPlansOfRanksShareTheMoments(t *testing.T) {
	config, err := Preset("tiny")
	if err != nil {
		t.Fatal(err)
	}
	config.Vocabulary = 8000
	alone, err := PlanTraining(config, DefaultTrainerOptions(), 2, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 4 {
		plan, err := PlanTrainingOfRank(config, DefaultTrainerOptions(), rank, 4, 1, 2, 8, 8)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Weights != alone.Weights || plan.Optimizer >= alone.Optimizer/3 {
			t.Errorf("rank %d plans %+v, one rank %+v", rank, plan, alone)
		}
	}
	near, err := PlanTrainingOfRank(config, DefaultTrainerOptions(), 0, 4, 1, 128, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	far, err := PlanTrainingOfRank(config, DefaultTrainerOptions(), 0, 4, 4, 128, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if far.Total <= near.Total {
		t.Errorf("four hosts plan %d bytes, one host %d", far.Total, near.Total)
	}
	if _, err := PlanTrainingOfRank(config, DefaultTrainerOptions(), 0, 4, 3, 2, 8, 8); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("four ranks on three hosts: %v", err)
	}
	if _, err := PlanTrainingOfRank(config, DefaultTrainerOptions(), 4, 4, 1, 2, 8, 8); err == nil {
		t.Error("rank 4 of 4 was planned")
	}
}

func TestAnAdapterIsPlanned(t *testing.T) {
	config := ModelConfig{Vocabulary: 8000, Precision: BFloat16}
	plan := func(base BasePrecision) MemoryPlan {
		config.BasePrecision = base
		p, err := PlanAdapter(config, AdapterOptions{Rank: 8, Targets: []string{"query", "down"}}, TrainerOptions{}, 0, 1, 1, 2, 8, 8)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole, coded := plan(BasePrecisionNone), plan(BasePrecisionNF4)
	if coded.Weights >= whole.Weights || coded.Gradients != whole.Gradients {
		t.Error(whole, coded)
	}
	_, err := PlanAdapter(config, AdapterOptions{Rank: 8, Targets: []string{"head"}}, TrainerOptions{}, 0, 1, 1, 2, 8, 8)
	if !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}
