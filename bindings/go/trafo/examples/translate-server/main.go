// Command translate-server translates over HTTP with a model that translate-train, or a program of
// yours, has trained.
//
//	go run ./examples/translate-server -model run
//	curl -d '{"text": ["Ein Hund schläft.", "Guten Tag."], "beam": 5, "n_best": 1}' localhost:8080/translate
//
// POST /translate takes a text or a list of texts and gives {"translations": [{"text", "score"}]},
// with "alternatives" if n_best is above 1. Lines of concurrent requests are translated together
// (examples/serving says how). A client that goes away takes its lines out of the queue, and out of the
// engine if nobody else waits for the batch. 503 says that the queue is full. GET /healthz answers
// while the server does; GET /readyz does, too, but is 503 from the signal to end on; GET /metrics is
// for Prometheus.
//
// SIGTERM and SIGINT: for the time of -drain the server works as before, so that a load balancer sees
// /readyz and sends its requests elsewhere. Then no new connections, every accepted request is
// answered, and the server ends.
//
// docs/guide/deployment.md says how to run it in a container, with int8 weights.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
	"github.com/trafo-engine/trafo/bindings/go/trafo/examples/serving"
)

// translator is the model, or its replacement in a test.
type translator func(ctx context.Context, lines []string, how search) (*trafo.Translations, error)

// found is t in the form of the batcher.
func (t translator) found(ctx context.Context, lines []string, how search) ([][]trafo.Hypothesis, int, error) {
	result, err := t(ctx, lines, how)
	if err != nil {
		return nil, 0, err
	}
	return result.Lines, result.Truncated, nil
}

type config struct {
	model, vocabulary string
	device, weights   string
	threads           int
	window            time.Duration
	batch, queue      int
	drain, grace      time.Duration
	limits            limits
	how               search
}

// files finds the model and its tokenizer: model.safetensors of a directory that translate-train
// quantize or import has written; of a run directory the best checkpoint by BLEU, else the latest, as
// translate-train does.
func (c *config) files() (model, vocabulary string, err error) {
	model, vocabulary = c.model, c.vocabulary
	if info, err := os.Stat(model); err != nil {
		return "", "", err
	} else if !info.IsDir() {
		if vocabulary == "" {
			return "", "", fmt.Errorf("%s: give its tokenizer with -vocab", model)
		}
		return model, vocabulary, nil
	}
	if vocabulary == "" {
		vocabulary = model
	}
	file, err := trafo.FindModel(model)
	return file, vocabulary, err
}

// load reads the model as c.weights says.
func (c *config) load(device *trafo.Context, path string) (*trafo.Model, error) {
	switch c.weights {
	case "int8":
		return device.LoadModelInt8(path)
	case "stored":
	default:
		return nil, fmt.Errorf("-weights is %q; it can be stored or int8", c.weights)
	}
	kind, _, err := device.Device()
	if err != nil {
		return nil, err
	}
	if kind == trafo.CUDA {
		return device.LoadModelAs(path, trafo.BFloat16)
	}
	return device.LoadModel(path)
}

// open loads the model; close it afterwards.
func (c *config) open() (translate translator, close func(), err error) {
	path, vocabulary, err := c.files()
	if err != nil {
		return nil, nil, err
	}
	tokenizer, err := trafo.LoadTokenizer(vocabulary)
	if err != nil {
		return nil, nil, err
	}
	kind, index, err := trafo.ParseDevice(c.device)
	if err != nil {
		return nil, nil, err
	}
	options := []trafo.Option{trafo.WithDevice(kind, index)}
	if c.threads > 0 {
		options = append(options, trafo.WithThreads(c.threads))
	}
	device, err := trafo.NewContext(options...)
	if err != nil {
		return nil, nil, err
	}
	model, err := c.load(device, path)
	if err != nil {
		return nil, nil, err
	}
	if err := model.PrepareInference(); err != nil {
		return nil, nil, err
	}
	translate = func(ctx context.Context, lines []string, how search) (*trafo.Translations, error) {
		options := trafo.DefaultTranslateOptions()
		options.Beam, options.NBest = how.beam, how.nBest
		return model.Translate(ctx, tokenizer, lines, &options)
	}
	return translate, func() { model.Close(); device.Close(); tokenizer.Close() }, nil
}

// serve answers until ctx ends, and then what it has accepted; after c.grace it gives that up.
func serve(ctx context.Context, listener net.Listener, translate translator, c *config) error {
	m := serving.NewMetrics()
	b := serving.NewBatcher(translate.found, c.window, c.batch, c.queue, m)
	defer b.Close()
	s := &server{batcher: b, metrics: m, limits: c.limits, how: c.how}
	h := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second, // of a body: a slow client must not hold its place for ever
		IdleTimeout:       2 * time.Minute,
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	log.Printf("not ready any more; no new connections in %v", c.drain)
	select {
	case err := <-ended:
		return err
	case <-time.After(c.drain):
	}
	log.Print("shutting down: answering what was accepted")
	patience, cancel := context.WithTimeout(context.Background(), c.grace)
	defer cancel()
	if err := h.Shutdown(patience); err != nil {
		h.Close() // ends the contexts of the requests that are left
		return fmt.Errorf("requests were left unanswered after %v: %w", c.grace, err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func run() error {
	var c config
	address := flag.String("listen", "localhost:8080", "address to listen on")
	flag.StringVar(&c.model, "model", "run", "run directory (its best checkpoint by BLEU, else the latest), directory of translate-train quantize or import, or model.safetensors")
	flag.StringVar(&c.vocabulary, "vocab", "", "vocabulary (default: the run directory's)")
	flag.StringVar(&c.device, "device", "auto", "auto (CUDA where there is one), cpu, cuda or cuda:N")
	flag.StringVar(&c.weights, "weights", "stored", "stored: as the file has them; int8: quantize float weights, for a CPU")
	flag.IntVar(&c.threads, "threads", 0, "host threads that compute (default 0: GOMAXPROCS)")
	flag.DurationVar(&c.window, "window", 5*time.Millisecond, "how long a request waits for others to be translated with")
	flag.IntVar(&c.batch, "batch", 64, "sentences translated together")
	flag.IntVar(&c.queue, "queue", 1024, "sentences that may wait; 503 beyond it")
	flag.DurationVar(&c.drain, "drain", 0, "how long after a signal to end new requests are accepted, while /readyz is 503")
	flag.DurationVar(&c.grace, "grace", 30*time.Second, "how long a shutdown waits for accepted requests")
	flag.Int64Var(&c.limits.body, "max-body", 1<<20, "largest request in bytes")
	flag.IntVar(&c.limits.lines, "max-lines", 256, "most lines in a request")
	flag.IntVar(&c.limits.beam, "max-beam", 16, "widest beam that a request may ask for")
	flag.IntVar(&c.how.beam, "beam", 5, "beam of requests that do not say")
	c.how.nBest = 1
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	translate, closeModel, err := c.open()
	if err != nil {
		return err
	}
	defer closeModel()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	log.Printf("translating on http://%s", listener.Addr())
	return serve(ctx, listener, translate, &c)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
