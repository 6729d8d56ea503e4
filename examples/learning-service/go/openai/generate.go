package openai

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
)

const (
	mostInFlight = 32 // sequences in flight at which further requests wait
	kept         = 8  // ended sequences whose KV cache stays, for the next turn of a conversation
)

// generation is a request to the language model. The goroutine of the model adds pieces, the one of the request takes
// them: neither waits for the other.
type generation struct {
	ctx     context.Context // of the request; its end ends the sequences
	prompts []string        // texts, or ids
	ids     [][]int32
	options *trafo.GenerationOptions

	lock   sync.Mutex
	pieces []trafo.GenerationPiece // whose sequences are numbered prompt by prompt, from 0
	err    error                   // after the pieces; nothing follows
	signal chan struct{}           // holds a token if something was added
}

func (g *generation) add(piece trafo.GenerationPiece, err error) {
	g.lock.Lock()
	if err == nil {
		g.pieces = append(g.pieces, piece)
	} else {
		g.err = err
	}
	g.lock.Unlock()
	select {
	case g.signal <- struct{}{}:
	default:
	}
}

// next waits for a piece until ctx ends.
func (g *generation) next(ctx context.Context) (piece trafo.GenerationPiece, err error) {
	for {
		g.lock.Lock()
		if len(g.pieces) > 0 {
			piece, g.pieces = g.pieces[0], g.pieces[1:]
			g.lock.Unlock()
			return piece, nil
		}
		err = g.err
		g.lock.Unlock()
		if err != nil {
			return piece, err
		}
		select {
		case <-g.signal:
		case <-ctx.Done():
			return piece, ctx.Err()
		}
	}
}

// LanguageModel generates for all requests together, in one goroutine.
type LanguageModel struct {
	name      string // of its folder
	tokenizer *trafo.Tokenizer
	model     *models.Model
	requests  chan *generation
	ended     chan struct{}
}

// OpenModel loads a decoder-only model and its vocabulary from the folder of the settings; nil if there is none.
func OpenModel(s *settings.Settings) (*LanguageModel, error) {
	folder := s.LanguageModel
	if folder == "" {
		return nil, nil
	}
	name := filepath.Base(filepath.Clean(folder))
	if name == "." || name == ".." || name == "/" || strings.HasPrefix(name, translation) {
		return nil, fault.New(fault.Invalid, "--language-model %s: the folder's name is the model's, and may not begin with %q",
			folder, translation)
	}
	vocabulary, err := trafo.FindVocabulary(folder)
	if err != nil {
		return nil, err
	}
	tokenizer, err := trafo.LoadTokenizer(vocabulary)
	if err != nil {
		return nil, err
	}
	file, err := trafo.FindModel(folder)
	if err != nil {
		return nil, err
	}
	model, err := models.Load(file, models.Server(s))
	if err != nil {
		return nil, err
	}
	if err := model.PrepareInference(); err != nil {
		return nil, err
	}
	generator, err := model.NewGenerator(tokenizer, kept)
	if err != nil {
		return nil, err
	}
	l := &LanguageModel{name, tokenizer, model, make(chan *generation, s.Queue), make(chan struct{})}
	go l.work(generator)
	return l, nil
}

// Close generates what was accepted, for those who still wait for it. No request may follow.
func (l *LanguageModel) Close() {
	if l != nil {
		close(l.requests)
		<-l.ended
		l.model.Close()
	}
}

// submit accepts a request, or refuses it if too many wait.
func (l *LanguageModel) submit(g *generation) error {
	g.signal = make(chan struct{}, 1)
	select {
	case l.requests <- g:
		return nil
	default:
		return fault.New(fault.Unavailable, "the queue is full, try again later")
	}
}

// client is the request of a sequence in flight, and the number of the first of its sequences.
type client struct {
	*generation
	first int64
}

func (l *LanguageModel) work(generator *trafo.Generator) {
	defer close(l.ended)
	runtime.LockOSThread() // see learn.Start
	defer generator.Close()
	clients := map[int64]client{}
	for {
		for len(clients) < mostInFlight {
			var next *generation
			if len(clients) == 0 {
				var open bool
				if next, open = <-l.requests; !open {
					return
				}
			} else {
				select {
				case next = <-l.requests: // nil: closed
				default:
				}
			}
			if next == nil {
				break
			}
			begin(generator, next, clients)
		}
		if len(clients) > 0 {
			step(generator, clients)
		}
	}
}

func begin(generator *trafo.Generator, g *generation, clients map[int64]client) {
	if g.ctx.Err() != nil {
		return
	}
	start := func() (int64, error) { return generator.Start(g.prompts, g.options) }
	count := len(g.prompts)
	if g.ids != nil {
		start, count = func() (int64, error) { return generator.StartIDs(g.ids, g.options) }, len(g.ids)
	}
	first, err := start()
	if err != nil {
		g.add(trafo.GenerationPiece{}, err)
		return
	}
	for number := range int64(count * g.options.NBest) {
		clients[first+number] = client{g, first}
	}
}

// step takes a piece, and gives it to its client. Ending a sequence that has ended or had an error changes nothing.
func step(generator *trafo.Generator, clients map[int64]client) {
	piece, more, err := generator.Next(context.Background())
	if err != nil {
		for sequence, c := range clients {
			c.add(piece, err)
			_ = generator.End(sequence)
		}
		clear(clients)
		return
	}
	if !more {
		clear(clients)
		return
	}
	c, there := clients[piece.Sequence]
	if !there {
		return
	}
	sequence := piece.Sequence
	piece.Sequence -= c.first
	c.add(piece, nil)
	if piece.Finished || c.ctx.Err() != nil {
		_ = generator.End(sequence)
		delete(clients, sequence)
	}
}
