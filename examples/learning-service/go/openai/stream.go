package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

// optionsOf: OpenAI's default is to draw from the whole distribution.
func optionsOf(a *asked, samples int) *trafo.GenerationOptions {
	options := &trafo.GenerationOptions{TranslateOptions: trafo.DefaultTranslateOptions(), Stop: a.stop}
	options.NBest = samples
	options.PresencePenalty, options.FrequencyPenalty = a.presencePenalty, a.frequencyPenalty
	if options.MaxLength = 0; a.most != nil {
		options.MaxLength = *a.most
	}
	draw := models.Draw{Temperature: 1, TopP: 1, Seed: a.seed}
	if a.temperature != nil {
		draw.Temperature = *a.temperature
	}
	if a.topP != nil {
		draw.TopP = *a.topP
	}
	if draw.Temperature > 0 {
		options.Sampling = models.Sampling(draw)
	}
	return options
}

// generationOf encodes a request.
func (l *LanguageModel) generationOf(ctx context.Context, a *asked) (*generation, error) {
	// Without draws, the sequences of a prompt are equal: the engine takes each as a prompt.
	copies, samples := 1, a.count
	if a.temperature != nil && *a.temperature == 0 {
		copies, samples = a.count, 1
	}
	g := &generation{ctx: ctx, options: optionsOf(a, samples)}
	if !a.chat {
		for _, prompt := range a.prompts {
			for range copies {
				g.prompts = append(g.prompts, prompt)
			}
		}
		return g, nil
	}
	conversation, err := json.Marshal(map[string]any{"messages": a.messages})
	if err != nil {
		return nil, err
	}
	tokens, err := l.tokenizer.EncodeChatJSON(string(conversation), true)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	for range copies {
		g.ids = append(g.ids, tokens.IDs)
	}
	return g, nil
}

// progress says how far the sequences of a request are.
type progress struct {
	choices []choice
	counts  []usage
	samples int // sequences of a prompt
	left    int
}

// take adds a piece, and says whether more are to come.
func (p *progress) take(piece *trafo.GenerationPiece) bool {
	c := &p.choices[piece.Sequence]
	c.text += piece.Text
	p.counts[piece.Sequence] = usage{piece.PromptTokens, piece.CachedTokens, piece.GeneratedTokens}
	if piece.Finished {
		c.finish = "stop"
		if piece.Finish == trafo.FinishLength {
			c.finish = "length"
		}
		p.left--
	}
	return p.left > 0
}

func (p *progress) usage() *usage {
	var u usage
	for number, counts := range p.counts {
		u.completion += counts.completion
		if number%p.samples == 0 {
			u.prompt += counts.prompt
			u.cached += counts.cached
		}
	}
	return &u
}

func (i *Interface) generate(w http.ResponseWriter, r *http.Request, a *asked) error {
	sequences := a.count * max(len(a.prompts), 1)
	if sequences > mostSequences {
		return web.Refuse(http.StatusBadRequest, "a request has at most %d sequences", mostSequences)
	}
	// Its end ends the sequences, whoever ends it: the client, the limit or this function.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	g, err := i.language.generationOf(ctx, a)
	if err != nil {
		return err
	}
	if err := i.language.submit(g); err != nil {
		return err
	}
	limit := i.app.TimeLimit()
	patience := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, limit) }
	next := func(ctx context.Context) (trafo.GenerationPiece, error) {
		piece, err := g.next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = web.Refuse(http.StatusGatewayTimeout, "not generated within %v", limit)
		}
		return piece, err
	}
	whole, end := patience()
	defer end()
	p := &progress{make([]choice, sequences), make([]usage, sequences), a.count, sequences}
	defer func() { i.count(0, p.usage()) }() // also of an answer that nobody waits for any more
	// Awaited before the answer begins: an error still decides its status.
	piece, err := next(whole)
	if err != nil {
		return err
	}
	h := newHead(a, "")
	if a.stream {
		i.send(w, h, p, piece, func() (trafo.GenerationPiece, error) {
			ctx, end := patience()
			defer end()
			return next(ctx)
		})
		return nil
	}
	for p.take(&piece) {
		if piece, err = next(whole); err != nil {
			return err
		}
	}
	web.JSON(w, http.StatusOK, h.whole(p.choices, p.usage()))
	return nil
}

// send sends what the pieces add. It ends if the client goes away.
func (i *Interface) send(w http.ResponseWriter, h *head, p *progress, piece trafo.GenerationPiece, next func() (trafo.GenerationPiece, error)) {
	w.Header().Set("Content-Type", events)
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{}) // of a later answer on the connection
	write := func(text string) error {
		if text == "" {
			return nil
		}
		if err := control.SetWriteDeadline(time.Now().Add(web.Patience)); err != nil {
			return err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
		return control.Flush()
	}
	begin := ""
	for index := range p.choices {
		begin += h.begin(index)
	}
	if write(begin) != nil {
		return
	}
	for {
		more, index, text := p.take(&piece), int(piece.Sequence), ""
		if piece.Text != "" {
			text = h.text(index, piece.Text)
		}
		if piece.Finished {
			text += h.finish(index, p.choices[index].finish)
		}
		if !more {
			text += h.end(p.usage())
		}
		if write(text) != nil || !more {
			return
		}
		var err error
		if piece, err = next(); err != nil {
			_ = write(event(web.OpenAIForm(err))) // the client may have gone
			return
		}
	}
}
