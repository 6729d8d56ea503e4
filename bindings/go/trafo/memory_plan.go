package trafo

// #include "trafo.h"
import "C"

import "strings"

// PlanTraining plans for batches of this many sentences and tokens a side; a decoder-only model has
// no source tokens. With BatchFit and a MemoryLimit the batch is the largest of such sentences that
// the limit has room for. Parameters whose names match a pattern of frozen are planned as Model.Freeze
// leaves them.
func PlanTraining(config ModelConfig, options TrainerOptions, sentences, sourceTokens, targetTokens int64, frozen ...string) (MemoryPlan, error) {
	patterns, free := views(frozen)
	defer free()
	var p C.trafo_memory_plan
	err := check(C.trafo_plan_training(config.c(), options.c(), patterns, C.size_t(len(frozen)), C.int64_t(sentences),
		C.int64_t(sourceTokens), C.int64_t(targetTokens), &p, C.sizeof_trafo_memory_plan))
	if err != nil {
		return MemoryPlan{}, err
	}
	return newMemoryPlan(&p), nil
}

// PlanTrainingOfRank is PlanTraining for one rank of a group of size ranks: with its shard of the
// optimizer's states, the sums of lanes that it keeps and those that it receives. The ranks are on
// hosts hosts, equally many on each, host by host; several exchange in other ways. Lanes 1 is
// planned as one for each rank. With BatchFit the batch fits this rank; a group takes the smallest
// batch of all its ranks.
func PlanTrainingOfRank(config ModelConfig, options TrainerOptions, rank, size, hosts int, sentences, sourceTokens, targetTokens int64, frozen ...string) (MemoryPlan, error) {
	patterns, free := views(frozen)
	defer free()
	var p C.trafo_memory_plan
	err := check(C.trafo_plan_training_of_rank(config.c(), options.c(), patterns, C.size_t(len(frozen)), cInt(rank), cInt(size), cInt(hosts),
		C.int64_t(sentences), C.int64_t(sourceTokens), C.int64_t(targetTokens), &p, C.sizeof_trafo_memory_plan))
	if err != nil {
		return MemoryPlan{}, err
	}
	return newMemoryPlan(&p), nil
}

// PlanDistillation is PlanTrainingOfRank for a model with a teacher of this configuration, as of
// Model.LoadTeacher. Without a group, rank is 0, size 1 and hosts 1.
func PlanDistillation(config, teacher ModelConfig, options TrainerOptions, rank, size, hosts int, sentences, sourceTokens, targetTokens int64, frozen ...string) (MemoryPlan, error) {
	patterns, free := views(frozen)
	defer free()
	var p C.trafo_memory_plan
	err := check(C.trafo_plan_distillation(config.c(), teacher.c(), options.c(), patterns, C.size_t(len(frozen)), cInt(rank), cInt(size), cInt(hosts),
		C.int64_t(sentences), C.int64_t(sourceTokens), C.int64_t(targetTokens), &p, C.sizeof_trafo_memory_plan))
	if err != nil {
		return MemoryPlan{}, err
	}
	return newMemoryPlan(&p), nil
}

// PlanAdapter is PlanTrainingOfRank for a model whose adapter is trained, as of Model.AddAdapter, also
// with a BasePrecision. Without a group, rank is 0, size 1 and hosts 1.
func PlanAdapter(config ModelConfig, adapter AdapterOptions, options TrainerOptions, rank, size, hosts int, sentences, sourceTokens, targetTokens int64) (MemoryPlan, error) {
	targets, length := chars(strings.Join(adapter.Targets, ","))
	var p C.trafo_memory_plan
	err := check(C.trafo_plan_adapter(config.c(), options.c(), C.int64_t(adapter.Rank), targets, length, cInt(rank), cInt(size), cInt(hosts),
		C.int64_t(sentences), C.int64_t(sourceTokens), C.int64_t(targetTokens), &p, C.sizeof_trafo_memory_plan))
	if err != nil {
		return MemoryPlan{}, err
	}
	return newMemoryPlan(&p), nil
}

// Plan is what the training takes, by the largest batches of the first epoch.
func (t *Trainer) Plan() (MemoryPlan, error) {
	var p C.trafo_memory_plan
	err := t.in("Trainer.Plan", func() *C.trafo_error {
		return C.trafo_trainer_get_plan(t.ptr, &p, C.sizeof_trafo_memory_plan)
	})
	if err != nil {
		return MemoryPlan{}, err
	}
	return newMemoryPlan(&p), nil
}
