package main

import (
	"bufio"
	"context"
	"encoding/json"
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

// program is the server as a program of its own, built once.
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
	check(t, os.WriteFile(filepath.Join(folder, "vocab.spm"), value(os.ReadFile(vocabulary))(t), 0o644))
	return folder
}

// replica is a running server.
type replica struct {
	command *exec.Cmd
	url     *url.URL
}

// launch waits until the server listens, which is when its model is loaded.
func launch(t *testing.T, program string, arguments ...string) *replica {
	t.Helper()
	arguments = append([]string{"-listen", "127.0.0.1:0", "-device", "cpu", "-threads", "1"}, arguments...)
	r := &replica{command: exec.Command(program, arguments...)}
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

// service stands for what a cluster puts before replicas: it asks each whether it is ready every 20 ms,
// as a probe does, and sends requests to those that were, in turn. It repeats no request.
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

func TestARollingRestartLosesNoAnswerOfSixtyFourClients(t *testing.T) {
	run, source := train(t)
	model := quantized(t, run)
	server := program(t)

	// What one replica alone says to each line.
	start := func() *replica { // with the image's -drain: a busy machine may probe a second late
		return launch(t, server, "-model", model, "-drain", "5s", "-beam", "2")
	}
	first := start()
	expected := map[string]string{}
	for _, line := range source {
		status, answer, _, err := post(t.Context(), first.url.String(), question(line))
		if err != nil || status != http.StatusOK {
			t.Fatal(status, answer, err)
		}
		expected[line] = answer
	}

	var s service
	var failures atomic.Int64
	replicas := []*replica{first, start()}
	for _, r := range replicas {
		s.add(r)
	}
	probing, stop := context.WithCancel(t.Context())
	defer stop()
	go s.probe(probing)
	for _, r := range replicas {
		s.waitFor(t, r, true)
	}
	front := httptest.NewServer(s.handler(&failures))
	defer front.Close()

	var answers, wrong atomic.Int64
	ended := make(chan struct{})
	var clients sync.WaitGroup
	for client := range 64 {
		clients.Go(func() {
			for i := client; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				line := source[i%len(source)]
				status, answer, _, err := post(context.Background(), front.URL, question(line))
				if err != nil || status != http.StatusOK || answer != expected[line] {
					if wrong.Add(1) <= 3 {
						t.Error(status, answer, err)
					}
				}
				answers.Add(1)
			}
		})
	}
	eventually(t, "clients are answered", func() bool { return answers.Load() > 64 })
	for _, old := range replicas { // a new replica is ready before an old one ends
		added := start()
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
	t.Logf("%d answers during two restarts", answers.Load())
}
