package trafo_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// Set in the processes that TestTwoProcessesTrainLikeOne starts: the run directory.
const mpiRun = "TRAFO_TEST_MPI_RUN"

// Set in the process that TestTwoProcessesTrainOverTCP starts: the run directory and the id.
const tcpRun, tcpID = "TRAFO_TEST_TCP_RUN", "TRAFO_TEST_TCP_ID"

func trainInGroup(t *testing.T, directory string, id trafo.GroupID, options trafo.GroupOptions) {
	t.Helper()
	l := newLesson(t, trafo.WithThreads(1))
	options.Timeout = time.Minute
	group := must[*trafo.Group](t)(trafo.JoinGroup(l.context, id, options))
	defer group.Close()
	l.options.Lanes, l.options.AfterUpdates, l.options.RunDirectory, l.options.Group = 2, 12, directory, group
	trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(t.Context(), l.tokenizer, l.train, l.valid, &l.options))
	defer trainer.Close()
	_, err := trainer.Run(t.Context(), 0, nil)
	ok(t, err)
}

func sameCheckpoint(t *testing.T, one, two string) {
	t.Helper()
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		file := filepath.Join("ckpt", "12", name)
		alone := must[[]byte](t)(os.ReadFile(filepath.Join(one, file)))
		together := must[[]byte](t)(os.ReadFile(filepath.Join(two, file)))
		if string(alone) != string(together) {
			t.Errorf("%s differs between one and two processes", file)
		}
	}
}

// One process makes the id and gives it to the other as text in the environment.
func TestTwoProcessesTrainOverTCP(t *testing.T) {
	if directory := os.Getenv(tcpRun); directory != "" { // the other process
		var id trafo.GroupID
		if count := must[int](t)(hex.Decode(id[:], []byte(os.Getenv(tcpID)))); count != len(id) {
			t.Fatalf("the id has %d bytes", count)
		}
		trainInGroup(t, directory, id, trafo.GroupOptions{Transport: trafo.TransportTCP, Rank: 1, Size: 2})
		return
	}
	if os.Getenv("TRAFO_TCP_LIBRARY") == "" { // these tests are linked statically
		library := must[string](t)(filepath.Abs("../../../build/release/libtrafo_tcp.so"))
		if _, err := os.Stat(library); err == nil {
			t.Setenv("TRAFO_TCP_LIBRARY", library)
		}
	}
	one, two := t.TempDir(), t.TempDir()
	local := must[trafo.GroupID](t)(trafo.NewLocalGroup())
	trainInGroup(t, one, local, trafo.GroupOptions{Rank: 0, Size: 1})
	id, err := trafo.NewTCPGroup("localhost:0", nil)
	if errors.Is(err, trafo.ErrUnsupported) {
		t.Skip("there is no libtrafo_tcp.so:", err)
	}
	ok(t, err)
	other := exec.Command(must[string](t)(os.Executable()), "-test.run=^TestTwoProcessesTrainOverTCP$")
	other.Env = append(os.Environ(), tcpRun+"="+two, tcpID+"="+hex.EncodeToString(id[:]))
	var said bytes.Buffer
	other.Stdout, other.Stderr = &said, &said
	ok(t, other.Start())
	trainInGroup(t, two, id, trafo.GroupOptions{Transport: trafo.TransportTCP, Rank: 0, Size: 2})
	if err := other.Wait(); err != nil {
		t.Fatalf("the other process: %v\n%s", err, said.String())
	}
	sameCheckpoint(t, one, two)
	_, err = trafo.NewTCPGroup("localhost:29400", []byte("short"))
	if !errors.Is(err, trafo.ErrInvalidArgument) {
		t.Errorf("a short token: %v", err)
	}
}

func TestTwoProcessesTrainLikeOne(t *testing.T) {
	if directory := os.Getenv(mpiRun); directory != "" { // one of the processes
		id := must[trafo.GroupID](t)(trafo.NewMPIGroup())
		trainInGroup(t, directory, id, trafo.GroupOptions{Transport: trafo.TransportMPI})
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
	trainInGroup(t, one, id, trafo.GroupOptions{Rank: 0, Size: 1})
	job := exec.Command("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2",
		must[string](t)(os.Executable()), "-test.run=^TestTwoProcessesTrainLikeOne$")
	job.Env = append(os.Environ(), mpiRun+"="+two, "TRAFO_MPI_LIBRARY="+library, "OMPI_ALLOW_RUN_AS_ROOT=1",
		"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_btl_vader_single_copy_mechanism=none")
	if said, err := job.CombinedOutput(); err != nil {
		t.Fatalf("mpirun: %v\n%s", err, said)
	}
	sameCheckpoint(t, one, two)
}
