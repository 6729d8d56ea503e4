package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
	"github.com/trafo-engine/trafo/bindings/go/trafo/examples/serving"
)

// search is the settings that lines must share to be translated together.
type search struct{ beam, nBest int }

// limits of one request.
type limits struct {
	body  int64 // bytes
	lines int
	beam  int
}

type server struct {
	batcher *serving.Batcher[search, []trafo.Hypothesis]
	metrics *serving.Metrics
	limits  limits
	how     search // what requests that do not say get

	draining atomic.Bool // the server is about to end
}

// texts is a string or a list of strings.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return errors.New(`"text" is a string or a list of strings`)
	}
	*t = many
	return nil
}

type request struct {
	Text  texts `json:"text"`
	Beam  *int  `json:"beam"`
	NBest *int  `json:"n_best"`
}

type hypothesis struct {
	Text  string  `json:"text"`
	Score float64 `json:"score"`
}

// translation is the best hypothesis and, if several were asked for, those after it.
type translation struct {
	hypothesis
	Alternatives []hypothesis `json:"alternatives,omitempty"`
}

type response struct {
	Translations []translation `json:"translations"`
}

// refusal is an error with the status that tells it.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// statusClientGone is for the metrics only: nobody is there to read it.
const statusClientGone = 499

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /translate", s.translate)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.metrics.Write(w)
	})
	return mux
}

func (s *server) translate(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	status := http.StatusOK
	defer func() { s.metrics.Answered(status, time.Since(began)) }()
	lines, how, err := s.read(w, r)
	var found [][]trafo.Hypothesis
	if err == nil {
		found, err = s.batcher.Submit(r.Context(), lines, how)
	}
	var answer any
	var refused *refusal
	switch {
	case err == nil:
		answer = respond(found)
	case r.Context().Err() != nil:
		status = statusClientGone
		return
	case errors.As(err, &refused):
		status = refused.status
	case errors.Is(err, serving.ErrQueueFull), errors.Is(err, serving.ErrClosing):
		w.Header().Set("Retry-After", "1")
		status = http.StatusServiceUnavailable
	case errors.Is(err, trafo.ErrInvalidArgument):
		status = http.StatusBadRequest
	default:
		status = http.StatusInternalServerError
	}
	if err != nil {
		answer = map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	if s.draining.Load() {
		w.Header().Set("Connection", "close") // its next request finds another server
	}
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(answer) // fails if the client has gone, which is its own affair
}

// read checks a request against the limits.
func (s *server) read(w http.ResponseWriter, r *http.Request) ([]string, search, error) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, s.limits.body))
	decoder.DisallowUnknownFields()
	var q request
	if err := decoder.Decode(&q); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, search{}, refuse(http.StatusRequestEntityTooLarge, "a request has at most %d bytes", s.limits.body)
		}
		return nil, search{}, refuse(http.StatusBadRequest, "the request is not what it should be: %v", err)
	}
	if decoder.More() {
		return nil, search{}, refuse(http.StatusBadRequest, "something follows the request's object")
	}
	if len(q.Text) == 0 {
		return nil, search{}, refuse(http.StatusBadRequest, `"text" is missing or empty`)
	}
	if len(q.Text) > s.limits.lines {
		return nil, search{}, refuse(http.StatusRequestEntityTooLarge, "a request has at most %d lines, this one has %d", s.limits.lines, len(q.Text))
	}
	how := s.how
	if q.Beam != nil {
		how.beam = *q.Beam
	}
	if q.NBest != nil {
		how.nBest = *q.NBest
	}
	if how.beam < 1 || how.beam > s.limits.beam {
		return nil, search{}, refuse(http.StatusBadRequest, `"beam" is 1 to %d`, s.limits.beam)
	}
	if how.nBest < 1 || how.nBest > how.beam {
		return nil, search{}, refuse(http.StatusBadRequest, `"n_best" is 1 to the beam, which is %d`, how.beam)
	}
	return q.Text, how, nil
}

func respond(found [][]trafo.Hypothesis) response {
	answer := response{make([]translation, len(found))}
	for i, line := range found {
		for rank, h := range line {
			if rank == 0 {
				answer.Translations[i].hypothesis = hypothesis{Text: h.Text, Score: h.Score}
			} else {
				answer.Translations[i].Alternatives = append(answer.Translations[i].Alternatives, hypothesis{Text: h.Text, Score: h.Score})
			}
		}
	}
	return answer
}
