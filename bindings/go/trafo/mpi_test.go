package trafo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// Set in the processes that TestTwoProcessesTrainLikeOne starts: the run directory.
const mpiRun = "TRAFO_TEST_MPI_RUN"

func TestTwoProcessesTrainLikeOne(t *testing.T) {
	train := func(directory string, id trafo.GroupID, options trafo.GroupOptions) {
		l := newLesson(t, trafo.WithThreads(1))
		options.Timeout = time.Minute
		group := must[*trafo.Group](t)(trafo.JoinGroup(l.context, id, options))
		defer group.Close()
		l.options.Lanes, l.options.AfterUpdates, l.options.RunDirectory, l.options.Group = 2, 12, directory, group
		trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(l.tokenizer, l.train, l.valid, &l.options))
		defer trainer.Close()
		_, err := trainer.Run(t.Context(), 0, nil)
		ok(t, err)
	}
	if directory := os.Getenv(mpiRun); directory != "" { // one of the processes
		id := must[trafo.GroupID](t)(trafo.NewMPIGroup())
		train(directory, id, trafo.GroupOptions{Transport: trafo.TransportMPI})
		ok(t, trafo.FinalizeMPI())
		return
	}
	library := os.Getenv("TRAFO_MPI_LIBRARY")
	if library == "" {
		library = must[string](t)(filepath.Abs("../../../build/release/libtrafo_mpi.so"))
	}
	if _, err := os.Stat(library); err != nil {
		t.Skip("there is no libtrafo_mpi.so:", err)
	}
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("there is no mpirun")
	}
	one, two := t.TempDir(), t.TempDir()
	id := must[trafo.GroupID](t)(trafo.NewLocalGroup())
	train(one, id, trafo.GroupOptions{Rank: 0, Size: 1})
	job := exec.Command("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2",
		must[string](t)(os.Executable()), "-test.run=^TestTwoProcessesTrainLikeOne$")
	job.Env = append(os.Environ(), mpiRun+"="+two, "TRAFO_MPI_LIBRARY="+library, "OMPI_ALLOW_RUN_AS_ROOT=1",
		"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_btl_vader_single_copy_mechanism=none")
	if said, err := job.CombinedOutput(); err != nil {
		t.Fatalf("mpirun: %v\n%s", err, said)
	}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		file := filepath.Join("ckpt", "12", name)
		alone := must[[]byte](t)(os.ReadFile(filepath.Join(one, file)))
		together := must[[]byte](t)(os.ReadFile(filepath.Join(two, file)))
		if string(alone) != string(together) {
			t.Errorf("%s differs between one and two processes", file)
		}
	}
}
