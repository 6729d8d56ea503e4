package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
	"github.com/trafo-engine/trafo/bindings/go/trafo/examples/serving"
)

var (
	german  = []string{"eins", "zwei", "drei", "vier", "fünf"}
	english = []string{"one", "two", "three", "four", "five"}
)

// train makes a run directory in a second or two: a language whose words are reversed and translated
// one by one.
func train(t *testing.T) (run string, source []string) {
	t.Helper()
	var target []string
	for i := range german {
		for j := range german {
			for k := range german {
				source = append(source, fmt.Sprintf("%s %s %s .", german[i], german[j], german[k]))
				target = append(target, fmt.Sprintf("%s %s %s .", english[k], english[j], english[i]))
			}
		}
	}
	run = t.TempDir()
	corpus := value(trafo.NewCorpus(source, target))(t)
	defer corpus.Close()
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 60, true
	tokenizer := value(corpus.TrainTokenizer(t.Context(), &tokenizerOptions))(t)
	defer tokenizer.Close()
	check(t, tokenizer.Save(filepath.Join(run, "vocab.spm")))
	device := value(trafo.NewContext())(t)
	defer device.Close()
	config := value(trafo.Preset("tiny"))(t)
	config.Vocabulary = value(tokenizer.Vocabulary())(t)
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 32, 64, 2
	model := value(device.NewModel(config, 1))(t)
	defer model.Close()
	options := trafo.DefaultTrainerOptions()
	options.RunDirectory, options.AfterUpdates = run, 200
	options.LearningRate, options.Warmup, options.BatchTokens = 5e-3, trafo.Some(50), 256
	trainer := value(model.NewTrainer(t.Context(), tokenizer, corpus, nil, &options))(t)
	defer trainer.Close()
	value(trainer.Run(t.Context(), 0, nil))(t)
	return run, source
}

func value[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testConfig() *config {
	return &config{
		weights: "stored", window: 5 * time.Millisecond, batch: 64, queue: 10_000, grace: 20 * time.Second,
		limits: limits{body: 1 << 20, lines: 256, beam: 16}, how: search{beam: 5, nBest: 1},
	}
}

// start serves until the test, or the function that it gives, ends it; ended tells how.
func start(t *testing.T, ctx context.Context, c *config, translate translator) (url string, ended chan error) {
	t.Helper()
	listener := value(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(ctx)
	ended = make(chan error, 1)
	finished := make(chan struct{})
	go func() {
		ended <- serve(ctx, listener, translate, c)
		close(finished)
	}()
	t.Cleanup(func() { stop(); <-finished })
	return "http://" + listener.Addr().String(), ended
}

func post(ctx context.Context, url, body string) (status int, answer string, header http.Header, err error) {
	r, err := http.NewRequestWithContext(ctx, "POST", url+"/translate", strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	return got.StatusCode, string(data), got.Header, err
}

func body(lines []string, how search) string {
	data, _ := json.Marshal(map[string]any{"text": lines, "beam": how.beam, "n_best": how.nBest})
	return string(data)
}

func metricsOf(t *testing.T, url string) string {
	t.Helper()
	got := value(http.Get(url + "/metrics"))(t)
	defer got.Body.Close()
	return string(value(io.ReadAll(got.Body))(t))
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in 20 s not: ", what)
		}
	}
}

func TestSixtyFourClientsGetWhatTheyWouldGetAlone(t *testing.T) {
	run, source := train(t)
	c := testConfig()
	c.model, c.device = run, "cpu"
	translate, closeModel, err := c.open()
	check(t, err)
	defer closeModel()

	searches := []search{{1, 1}, {4, 1}, {4, 3}}
	alone := map[search]map[string][]trafo.Hypothesis{}
	source = append(source, "", "ein Wort, das es nicht gab")
	for _, how := range searches {
		alone[how] = map[string][]trafo.Hypothesis{}
		for _, line := range source {
			alone[how][line] = value(translate(t.Context(), []string{line}, how))(t).Lines[0]
		}
	}

	url, _ := start(t, t.Context(), c, translate)
	const clients, requests = 64, 4
	var group sync.WaitGroup
	for client := range clients {
		spawn(&group, func() {
			for i := range requests {
				how := searches[(client+i)%len(searches)]
				var lines []string
				for n := range 1 + (client*7+i)%5 {
					lines = append(lines, source[(client*31+i*17+n*11)%len(source)])
				}
				status, answer, _, err := post(t.Context(), url, body(lines, how))
				if err != nil || status != http.StatusOK {
					t.Error(status, answer, err)
					return
				}
				var got response
				if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Translations) != len(lines) {
					t.Error(answer, err)
					return
				}
				for n, line := range lines {
					have := append([]hypothesis{got.Translations[n].hypothesis}, got.Translations[n].Alternatives...)
					want := alone[how][line]
					same := slices.EqualFunc(have, want, func(a hypothesis, b trafo.Hypothesis) bool {
						return a.Text == b.Text && math.Abs(a.Score-b.Score) < 1e-4
					})
					if !same {
						t.Errorf("%q, %+v: %v, alone %v", line, how, have, want)
					}
				}
			}
		})
	}
	group.Wait()
	text := metricsOf(t, url)
	for _, want := range []string{
		fmt.Sprintf("translate_requests_total{code=\"200\"} %d\n", clients*requests),
		fmt.Sprintf("translate_request_seconds_count %d\n", clients*requests),
		"translate_queue_sentences 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var batches int
	fmt.Sscanf(text[strings.LastIndex(text, "translate_batch_sentences_count"):], "translate_batch_sentences_count %d", &batches)
	if batches < 1 || batches >= clients*requests {
		t.Errorf("%d batches of %d requests: nothing was translated together", batches, clients*requests)
	}
	t.Logf("%d requests in %d batches", clients*requests, batches)

	program := os.Getenv("TRAFO_TRANSLATE_TRAIN")
	if program == "" {
		program = "../../../../../build/release/translate-train"
	}
	if _, err := os.Stat(program); err != nil {
		t.Log("SKIPPED: the same by the command line: there is no ", program)
		return
	}
	command := exec.Command(program, "translate", "--model", run, "--device", "cpu", "--beam", "4", "--quiet")
	command.Stdin = strings.NewReader(strings.Join(source, "\n") + "\n")
	out := value(command.Output())(t)
	for i, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		if want := alone[search{4, 1}][source[i]][0].Text; line != want {
			t.Errorf("%q: the command line has %q, the server %q", source[i], line, want)
		}
	}
}

// held is a translator that works when it is let, on no model.
func held(release <-chan struct{}) translator {
	return func(ctx context.Context, lines []string, how search) (*trafo.Translations, error) {
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		result := &trafo.Translations{}
		for _, line := range lines {
			if line == "refused" {
				return nil, &trafo.Error{Code: trafo.ErrInvalidArgument, Origin: "test", Message: "refused"}
			}
			result.Lines = append(result.Lines, []trafo.Hypothesis{{Text: strings.ToUpper(line), Score: -1}})
		}
		return result, nil
	}
}

func TestShutdownAnswersWhatWasAccepted(t *testing.T) {
	release := make(chan struct{})
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	c := testConfig()
	c.batch, c.window = 4, 0
	url, ended := start(t, ctx, c, held(release))
	const clients = 40
	var group sync.WaitGroup
	for i := range clients {
		spawn(&group, func() {
			line := fmt.Sprint("line ", i)
			status, answer, _, err := post(t.Context(), url, body([]string{line}, search{1, 1}))
			if err != nil || status != http.StatusOK || !strings.Contains(answer, strings.ToUpper(line)) {
				t.Error(status, answer, err)
			}
		})
	}
	eventually(t, "all are accepted", func() bool {
		text := metricsOf(t, url)
		var working, batches, queued int
		fmt.Sscanf(text[strings.LastIndex(text, "translate_batch_sentences_sum"):],
			"translate_batch_sentences_sum %d\ntranslate_batch_sentences_count %d", &working, &batches)
		fmt.Sscanf(text[strings.LastIndex(text, "translate_queue_sentences"):], "translate_queue_sentences %d", &queued)
		return working+queued == clients
	})
	check(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	eventually(t, "no new connections", func() bool {
		connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			connection.Close()
		}
		return err != nil
	})
	close(release)
	group.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestShutdownGivesUpAfterItsGrace(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	c := testConfig()
	c.grace = 50 * time.Millisecond
	started := make(chan struct{})
	url, ended := start(t, ctx, c, func(ctx context.Context, lines []string, how search) (*trafo.Translations, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	go post(t.Context(), url, body([]string{"for ever"}, search{1, 1}))
	<-started
	stop()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestAClientThatGoesAwayIsForgotten(t *testing.T) {
	release := make(chan struct{})
	var lock sync.Mutex
	var seen []string
	given := make(chan error, 2)
	c := testConfig()
	c.batch, c.window = 1, 0
	url, _ := start(t, t.Context(), c, func(ctx context.Context, lines []string, how search) (*trafo.Translations, error) {
		lock.Lock()
		seen = append(seen, lines...)
		lock.Unlock()
		result, err := held(release)(ctx, lines, how)
		if err != nil {
			given <- err
		}
		return result, err
	})
	send := func(line string) (leave context.CancelFunc, left chan struct{}) {
		ctx, leave := context.WithCancel(t.Context())
		left = make(chan struct{})
		go func() { post(ctx, url, body([]string{line}, search{1, 1})); close(left) }()
		return leave, left
	}
	leaveFirst, firstLeft := send("first")
	eventually(t, "the first is being translated", func() bool { lock.Lock(); defer lock.Unlock(); return len(seen) == 1 })
	leaveSecond, secondLeft := send("second")
	eventually(t, "the second waits", func() bool {
		return strings.Contains(metricsOf(t, url), "\ntranslate_queue_sentences 1\n")
	})
	leaveSecond()
	<-secondLeft
	eventually(t, "the second is told", func() bool {
		return strings.Contains(metricsOf(t, url), "translate_requests_total{code=\"499\"} 1\n")
	})
	leaveFirst()
	<-firstLeft
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	status, answer, _, err := post(t.Context(), url, body([]string{"third"}, search{1, 1}))
	if err != nil || status != http.StatusOK {
		t.Error(status, answer, err)
	}
	lock.Lock()
	defer lock.Unlock()
	if !slices.Equal(seen, []string{"first", "third"}) {
		t.Error(seen)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	release := make(chan struct{})
	c := testConfig()
	c.limits = limits{body: 2000, lines: 3, beam: 4}
	c.batch, c.window, c.queue, c.how.beam = 1, 0, 2, 2
	url, _ := start(t, t.Context(), c, held(release))

	var group sync.WaitGroup
	for i := range 3 { // one is translated, two wait
		spawn(&group, func() {
			status, answer, _, err := post(t.Context(), url, fmt.Sprintf(`{"text": "line %d"}`, i))
			if err != nil || status != http.StatusOK || !strings.Contains(answer, `"LINE `) {
				t.Error(status, answer, err)
			}
		})
		eventually(t, "the queue is as it should be", func() bool {
			text := metricsOf(t, url)
			return strings.Contains(text, "\ntranslate_batch_sentences_count 1\n") &&
				strings.Contains(text, fmt.Sprintf("\ntranslate_queue_sentences %d\n", i))
		})
	}
	status, answer, header, err := post(t.Context(), url, `{"text": "too many"}`)
	if err != nil || status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(answer, "queue is full") {
		t.Error(status, answer, header, err)
	}
	close(release)
	group.Wait()

	for _, bad := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"text": ["a", "b", "c", "d"]}`, http.StatusRequestEntityTooLarge, "at most 3 lines"},
		{`{"text": "` + strings.Repeat("a", 3000) + `"}`, http.StatusRequestEntityTooLarge, "at most 2000 bytes"},
		{`{"text": []}`, http.StatusBadRequest, "missing or empty"},
		{`{}`, http.StatusBadRequest, "missing or empty"},
		{`{"text": 7}`, http.StatusBadRequest, "a string or a list"},
		{`{"text": "a", "bean": 3}`, http.StatusBadRequest, "bean"},
		{`{"text": "a"} {}`, http.StatusBadRequest, "follows"},
		{`{"text": "a"`, http.StatusBadRequest, "not what it should be"},
		{`{"text": "a", "beam": 0}`, http.StatusBadRequest, "1 to 4"},
		{`{"text": "a", "beam": 5}`, http.StatusBadRequest, "1 to 4"},
		{`{"text": "a", "n_best": 3}`, http.StatusBadRequest, "the beam, which is 2"},
		{`{"text": "refused"}`, http.StatusBadRequest, "refused"},
	} {
		status, answer, _, err := post(t.Context(), url, bad.body)
		if err != nil || status != bad.status || !strings.Contains(answer, bad.says) {
			t.Errorf("%.50s: %d %s %v", bad.body, status, answer, err)
		}
	}
	got := value(http.Get(url + "/translate"))(t)
	got.Body.Close()
	if got.StatusCode != http.StatusMethodNotAllowed {
		t.Error(got.Status)
	}
	got = value(http.Get(url + "/healthz"))(t)
	got.Body.Close()
	if got.StatusCode != http.StatusOK {
		t.Error(got.Status)
	}
}

func TestOneRefusedRequestDoesNotSpoilItsBatch(t *testing.T) {
	release := make(chan struct{})
	close(release)
	m := serving.NewMetrics()
	b := serving.NewBatcher(held(release).found, time.Hour, 3, 10, m) // begins when three wait
	defer b.Close()
	var group sync.WaitGroup
	for _, line := range []string{"a", "refused", "b"} {
		spawn(&group, func() {
			found, err := b.Submit(t.Context(), []string{line}, search{1, 1})
			if line == "refused" {
				if !errors.Is(err, trafo.ErrInvalidArgument) {
					t.Error(err)
				}
			} else if err != nil || found[0][0].Text != strings.ToUpper(line) {
				t.Error(found, err)
			}
		})
	}
	group.Wait()
	var text bytes.Buffer
	m.Write(&text)
	if !strings.Contains(text.String(), "translate_sentences_total 2\n") {
		t.Error(text.String())
	}
}

// spawn is WaitGroup.Go of Go 1.25.
func spawn(group *sync.WaitGroup, f func()) {
	group.Add(1)
	go func() {
		defer group.Done()
		f()
	}()
}
