package trafo_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

var (
	cancellations = flag.Int("cancellations", 50, "random moments at which training is cancelled")
	cycles        = flag.Int("cycles", 240, "cycles of the leak check, at least")
)

// A cancelled run returns within a second or one update, whichever is longer, and trains on.
func TestCancellationAtRandomMoments(t *testing.T) {
	l := newLesson(t)
	l.options.LogFreq, l.options.ValidFreq = trafo.Every(1, trafo.Updates), trafo.Every(7, trafo.Updates)
	trainer := l.trainer(t) // without a limit
	source, _ := sentences()
	random := rand.New(rand.NewPCG(1, 2))
	var slowest, step time.Duration
	var reached int64
	for i := range *cancellations {
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan time.Time, 1)
		after := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		time.AfterFunc(after, func() { cancelled <- time.Now(); cancel() })
		last := time.Now()
		reason, err := trainer.Run(ctx, 0, func(e trafo.Event) error {
			if e.Kind == trafo.EventLog {
				step, last = max(step, time.Since(last)), time.Now()
				reached = e.Update
			}
			return nil
		})
		late := time.Since(<-cancelled)
		wantError(t, err, trafo.ErrCancelled, context.Canceled)
		if reason != trafo.StopCancelled {
			t.Fatalf("run %d: %v", i, reason)
		}
		if slowest = max(slowest, late); late > max(time.Second, step) {
			t.Fatalf("run %d returned %v after it was cancelled, an update takes %v at most", i, late, step)
		}
		// The engine is usable: one more update counts on, and it translates.
		next := must[trafo.StepResult](t)(trainer.Step(t.Context()))
		if next.Update <= reached || next.Skipped || !(next.Loss > 0) {
			t.Fatalf("run %d: %+v after update %d", i, next, reached)
		}
		if i%10 == 0 {
			must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source[:2], nil))
		}
	}
	stillWorks(t, l.context)
	t.Logf("%d cancellations, the slowest returned after %v; %d updates", *cancellations, slowest, reached)
}

// resident is the memory of the process in kilobytes.
func resident(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/smaps_rollup") // exact; status is late, thread by thread
	if err != nil {
		t.Skip("the resident size is not known here: ", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, is := strings.CutPrefix(line, "Rss:"); is {
			return must[int](t)(strconv.Atoi(strings.Fields(rest)[0]))
		}
	}
	t.Fatal("no Rss")
	return 0
}

// Create, train one step, translate, close: the process does not grow.
func TestCyclesDoNotLeak(t *testing.T) {
	if raceDetector {
		t.Skip("the resident size holds the race detector's own memory, which grows; run it without -race")
	}
	// Memory that a process keeps without a leak: glibc makes up to eight heaps for each processor and gives back little of
	// them, and each system thread that calls the engine has scratch memory, while Go moves a goroutine from thread to thread.
	const oneHeap = "MALLOC_ARENA_MAX"
	if os.Getenv(oneHeap) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCyclesDoNotLeak$", "-test.v", "-cycles="+strconv.Itoa(*cycles))
		again.Env = append(os.Environ(), oneHeap+"=1")
		output, err := again.CombinedOutput()
		if t.Logf("with %s=1:\n%s", oneHeap, output); err != nil {
			t.Error(err)
		}
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	source, target := sentences()
	cycle := func() {
		corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(source[:20], target[:20]))
		defer corpus.Close()
		tokenizerOptions := trafo.DefaultTokenizerOptions()
		tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 40, true
		tokenizer := must[*trafo.Tokenizer](t)(corpus.TrainTokenizer(t.Context(), &tokenizerOptions))
		defer tokenizer.Close()
		c := must[*trafo.Context](t)(trafo.NewContext(trafo.WithThreads(2)))
		defer c.Close()
		config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
		config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
		config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 16, 32, 2
		model := must[*trafo.Model](t)(c.NewModel(config, 1))
		defer model.Close()
		trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, nil, nil))
		defer trainer.Close()
		must[trafo.StepResult](t)(trainer.Step(t.Context()))
		options := trafo.DefaultTranslateOptions()
		options.MaxLength = 5
		must[*trafo.Translations](t)(model.Translate(t.Context(), tokenizer, source[:2], &options))
	}
	settle := func() int {
		runtime.GC()
		runtime.GC() // what cleanups have freed
		return resident(t)
	}
	const most = 12
	block := max(*cycles/4, 1)
	for range block { // pools and caches fill
		cycle()
	}
	sizes := []int{settle()}
	for range most {
		for range block {
			cycle()
		}
		sizes = append(sizes, settle())
		// Allocators, and Go's runtime, take more now and then and keep it, less and less of it. A leak makes every
		// block grow: weights alone are 40 KB, so that one model in eighty cycles would show.
		if n := len(sizes); n > 4 && sizes[n-1]-sizes[n-3] <= block {
			if sizes[n-1]-sizes[0] > 4<<10 {
				t.Errorf("blocks of %d cycles: %d KB", block, sizes)
			}
			t.Logf("blocks of %d cycles: %d KB", block, sizes)
			return
		}
	}
	t.Errorf("each of %d blocks of %d cycles took more memory: %d KB", most, block, sizes)
}
