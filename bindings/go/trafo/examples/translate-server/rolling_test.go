package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// The long form, and the form with containers, which tests/tools/image_test.py runs.
var (
	restarts = flag.Int("restarts", 2, "of the rolling restart: how many replicas are replaced")
	replicas = flag.String("replica", "", "of the rolling restart: the command that runs a replica in place of the "+
		"program built here, as 'podman run --rm --network host translate-server'")
	linesFile = flag.String("lines", "", "of the rolling restart, with -replica: what the clients ask for")
)

var built struct {
	once   sync.Once
	folder string
	err    error
}

func TestMain(m *testing.M) {
	status := m.Run()
	os.RemoveAll(built.folder)
	os.Exit(status)
}

// program is the server as a separate program, built once.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.folder, built.err = os.MkdirTemp("", "translate-server"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", built.folder, ".").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	check(t, built.err)
	return filepath.Join(built.folder, "translate-server")
}

// quantized writes the int8 form of a run's best model, as translate-train quantize does.
func quantized(t *testing.T, run string) string {
	t.Helper()
	c := testConfig()
	c.model = run
	path, vocabulary, err := c.files()
	check(t, err)
	device := value(trafo.NewContext(trafo.WithDevice(trafo.CPU, 0)))(t)
	defer device.Close()
	model := value(device.LoadModelInt8(path))(t)
	defer model.Close()
	folder := t.TempDir()
	check(t, model.Save(filepath.Join(folder, "model.safetensors")))
	tokenizer := value(trafo.LoadTokenizer(vocabulary))(t)
	defer tokenizer.Close()
	check(t, tokenizer.Save(folder))
	return folder
}

// replica is a running server.
type replica struct {
	command *exec.Cmd
	url     *url.URL
}

// launch waits until the server listens, which is when its model is loaded.
func launch(t *testing.T, command ...string) *replica {
	t.Helper()
	command = append(command, "-listen", "127.0.0.1:0", "-device", "cpu", "-threads", "1")
	r := &replica{command: exec.Command(command[0], command[1:]...)}
	log := value(r.command.StderrPipe())(t)
	check(t, r.command.Start())
	t.Cleanup(func() { r.command.Process.Kill(); r.command.Wait() })
	lines := bufio.NewScanner(log)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if _, address, found := strings.Cut(lines.Text(), "translating on "); found {
			r.url = value(url.Parse(address))(t)
			go io.Copy(io.Discard, log)
			return r
		}
	}
	t.Fatal("the server does not listen: ", strings.Join(said, "\n"))
	return nil
}

func (r *replica) ready() bool {
	got, err := http.Get(r.url.String() + "/readyz")
	if err != nil {
		return false
	}
	got.Body.Close()
	return got.StatusCode == http.StatusOK
}

// end tells the server to end and waits; a signal must not lose what it has accepted.
func (r *replica) end(t *testing.T) {
	t.Helper()
	check(t, r.command.Process.Signal(syscall.SIGTERM))
	if err := r.command.Wait(); err != nil {
		t.Errorf("%v ended with %v", r.url, err)
	}
}

// service represents the service that a cluster puts before replicas: it asks each whether it is ready
// every 20 ms, as a probe does, and sends requests to the ready ones, in turn. It repeats no request.
type service struct {
	lock     sync.Mutex
	replicas []*replica
	targets  atomic.Pointer[[]*url.URL]
	next     atomic.Uint64
}

func (s *service) add(r *replica) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.replicas = append(s.replicas, r)
}

func (s *service) probe(ctx context.Context) {
	for ctx.Err() == nil {
		s.lock.Lock()
		replicas := append([]*replica{}, s.replicas...)
		s.lock.Unlock()
		targets := []*url.URL{}
		for _, r := range replicas {
			if r.ready() {
				targets = append(targets, r.url)
			}
		}
		s.targets.Store(&targets)
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *service) waitFor(t *testing.T, r *replica, there bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v among the targets: %v", r.url, there), func() bool {
		targets := s.targets.Load()
		if targets == nil {
			return false
		}
		for _, target := range *targets {
			if target == r.url {
				return there
			}
		}
		return !there
	})
}

// handler forwards requests; it counts those that a replica did not answer.
func (s *service) handler(failures *atomic.Int64) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			targets := *s.targets.Load()
			r.SetURL(targets[int(s.next.Add(1))%len(targets)])
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			failures.Add(1)
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
}

func question(line string) string {
	data, _ := json.Marshal(map[string]string{"text": line})
	return string(data)
}

// askAll has compare_answers.py ask a server for all lines: with "--write" it makes the baseline.
func askAll(t *testing.T, server *url.URL, baseline string, arguments ...string) {
	t.Helper()
	arguments = append([]string{"compare_answers.py", "--server", server.String(), "--baseline", baseline}, arguments...)
	if out, err := exec.Command("python3", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", arguments, err, out)
	}
}

// baselineAnswers is what the server must say to each line of the baseline.
func baselineAnswers(t *testing.T, baseline string) map[string]string {
	t.Helper()
	expected := map[string]string{}
	for entry := range strings.Lines(string(value(os.ReadFile(baseline))(t))) {
		var e struct{ Text, Answer string }
		check(t, json.Unmarshal([]byte(entry), &e))
		expected[e.Text] = e.Answer
	}
	return expected
}

// translated is the text of an answer with one translation.
func translated(answer string) string {
	var a struct{ Translations []struct{ Text string } }
	if json.Unmarshal([]byte(answer), &a) != nil || len(a.Translations) != 1 {
		return "no answer: " + answer
	}
	return a.Translations[0].Text
}

// replicaCommand runs a replica with an int8 model; source is what it is asked.
func replicaCommand(t *testing.T) (command, source []string) {
	t.Helper()
	if *replicas == "" {
		run, source := train(t)
		// With the image's -drain: a busy machine may probe a second late.
		return []string{program(t), "-model", quantized(t, run), "-drain", "5s", "-beam", "2"}, source
	}
	return strings.Fields(*replicas), strings.Split(strings.TrimSpace(string(value(os.ReadFile(*linesFile))(t))), "\n")
}

func TestARollingRestartLosesNoAnswerOfSixtyFourClients(t *testing.T) {
	command, source := replicaCommand(t)
	start := func() *replica { return launch(t, command...) }
	first := start()

	// Answers of one replica alone to each line.
	folder := t.TempDir()
	lines, baseline := filepath.Join(folder, "lines.txt"), filepath.Join(folder, "answers.jsonl")
	check(t, os.WriteFile(lines, []byte(strings.Join(source, "\n")+"\n"), 0o644))
	askAll(t, first.url, baseline, "--write", lines)
	expected := baselineAnswers(t, baseline)

	var s service
	var failures atomic.Int64
	running := []*replica{first, start()}
	for _, r := range running {
		s.add(r)
	}
	probing, stop := context.WithCancel(t.Context())
	defer stop()
	go s.probe(probing)
	for _, r := range running {
		s.waitFor(t, r, true)
	}
	front := httptest.NewServer(s.handler(&failures))
	defer front.Close()

	var answers, wrong atomic.Int64
	ended := make(chan struct{})
	var clients sync.WaitGroup
	for client := range 64 {
		spawn(&clients, func() {
			for i := client; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				line := source[i%len(source)]
				status, answer, _, err := post(context.Background(), front.URL, question(line))
				if err != nil || status != http.StatusOK || translated(answer) != expected[line] {
					if wrong.Add(1) <= 3 {
						t.Error(status, answer, err)
					}
				}
				answers.Add(1)
			}
		})
	}
	eventually(t, "clients are answered", func() bool { return answers.Load() > 64 })
	for range *restarts { // a new replica is ready before an old one ends
		old, added := running[0], start()
		running = append(running[1:], added)
		s.add(added)
		s.waitFor(t, added, true)
		before := answers.Load()
		old.end(t)
		s.waitFor(t, old, false)
		eventually(t, "the others answer", func() bool { return answers.Load() > before+64 })
	}
	close(ended)
	clients.Wait()
	if wrong.Load() > 0 || failures.Load() > 0 {
		t.Errorf("of %d answers %d were wrong or lost, and the service failed %d times", answers.Load(), wrong.Load(), failures.Load())
	}
	for _, r := range running {
		askAll(t, r.url, baseline) // fails if an answer differs
	}
	t.Logf("%d answers during %d restarts", answers.Load(), *restarts)
}
