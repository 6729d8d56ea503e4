package trafo_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// inGroup runs body for each rank of a new local group, each with a separate lesson.
func inGroup(t *testing.T, size int, body func(l *lesson, group *trafo.Group) error) []error {
	t.Helper()
	id := must[trafo.GroupID](t)(trafo.NewLocalGroup())
	lessons := make([]*lesson, size)
	for rank := range lessons {
		lessons[rank] = newLesson(t, trafo.WithThreads(1))
	}
	results := make([]chan error, size)
	for rank, l := range lessons {
		results[rank] = make(chan error, 1)
		go func() {
			group, err := trafo.JoinGroup(l.context, id, trafo.GroupOptions{Rank: rank, Size: size, Timeout: time.Minute})
			if err == nil {
				defer group.Close()
				err = body(l, group)
			}
			results[rank] <- err
		}()
	}
	errors := make([]error, size)
	for rank := range errors {
		errors[rank] = <-results[rank]
	}
	return errors
}

func TestTwoRanksTrainLikeOne(t *testing.T) {
	train := func(size int, directory string, communication trafo.CommunicationDType) {
		errors := inGroup(t, size, func(l *lesson, group *trafo.Group) error {
			l.options.CommunicationDType = communication
			l.options.Lanes, l.options.AfterUpdates, l.options.RunDirectory, l.options.Group = 2, 12, directory, group
			trainer, err := l.model.NewTrainer(t.Context(), l.tokenizer, l.train, l.valid, &l.options)
			if err != nil {
				return err
			}
			defer trainer.Close()
			_, err = trainer.Run(t.Context(), 0, nil)
			return err
		})
		for _, err := range errors {
			ok(t, err)
		}
	}
	for _, communication := range []trafo.CommunicationDType{trafo.CommunicateFloat32, trafo.CommunicateBFloat16} {
		one, two := t.TempDir(), t.TempDir()
		train(1, one, communication)
		train(2, two, communication)
		for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
			file := filepath.Join("ckpt", "12", name)
			alone := must[[]byte](t)(os.ReadFile(filepath.Join(one, file)))
			together := must[[]byte](t)(os.ReadFile(filepath.Join(two, file)))
			if string(alone) != string(together) {
				t.Errorf("%s differs between one and two ranks, communication %d", file, communication)
			}
		}
	}
}

func TestARankThatLeavesEndsTheOthers(t *testing.T) {
	errors := inGroup(t, 2, func(l *lesson, group *trafo.Group) error {
		rank, size, err := group.Rank()
		if err != nil {
			return err
		}
		if size != 2 {
			t.Errorf("the group has %d ranks", size)
		}
		if rank == 0 {
			return group.Abort("the test says so")
		}
		l.options.Group = group
		_, err = l.model.NewTrainer(t.Context(), l.tokenizer, l.train, l.valid, &l.options)
		return err
	})
	ok(t, errors[0])
	wantError(t, errors[1], trafo.ErrPeerLost)
	if errors[1] != nil && !strings.Contains(errors[1].Error(), "rank 0 has left: the test says so") {
		t.Error(errors[1])
	}
}

func TestAGroupThatNobodyElseJoins(t *testing.T) {
	id := must[trafo.GroupID](t)(trafo.NewLocalGroup())
	_, err := trafo.JoinGroup(newContext(t), id, trafo.GroupOptions{Size: 2, StartTimeout: 50 * time.Millisecond})
	wantError(t, err, trafo.ErrPeerLost)
}

func TestNCCLIsForGPUs(t *testing.T) {
	id, err := trafo.NewNCCLGroup()
	if err != nil && !errors.Is(err, trafo.ErrUnsupported) {
		t.Fatal(err)
	}
	c := newContext(t, trafo.WithDevice(trafo.CPU, 0))
	_, err = trafo.JoinGroup(c, id, trafo.GroupOptions{Size: 1, Transport: trafo.TransportNCCL})
	if !errors.Is(err, trafo.ErrUnsupported) || !strings.Contains(err.Error(), "this rank computes on cpu") {
		t.Errorf("a rank on the CPU joined over NCCL: %v", err)
	}
}
