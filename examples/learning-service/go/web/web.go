// Package web is what all paths of the HTTP interface share: routes, refusals, the check of the sender, limits.
package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

// Patience is for the head of a request, which is also how long a connection may be idle, and for its body.
const Patience = 30 * time.Second

// StatusClientGone is in the metrics only: nobody is there to read it.
const StatusClientGone = 499

// Refusal is an error with the status that tells it.
type Refusal struct {
	Status  int
	Message string
	// Param is the member of the request that it is about, and Code is OpenAI's. Only /v1 tells them.
	Param, Code string
}

func (r *Refusal) Error() string { return r.Message }

// Refuse makes a refusal.
func Refuse(status int, format string, args ...any) error {
	return &Refusal{Status: status, Message: fmt.Sprintf(format, args...)}
}

// About refuses a member of a request.
func About(param, format string, args ...any) error {
	return &Refusal{http.StatusBadRequest, fmt.Sprintf("%q %s", param, fmt.Sprintf(format, args...)), param, ""}
}

// refusalOf gives any error a status.
func refusalOf(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return &Refusal{Status: fault.KindOf(err).Status(), Message: err.Error()}
}

// StatusOf is the status that tells an error; 200 without one.
func StatusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return refusalOf(err).Status
}

// Handler answers a request. An error is told by the caller; nothing may be written then. values: of the parameters of
// the path.
type Handler func(w http.ResponseWriter, r *http.Request, values []string) error

// Route is a method, a path whose parts "*" are parameters, and their handler.
type Route struct {
	Method, Path string
	Handler      Handler
}

// Router finds the handler of a request, after the checks of the sender.
type Router struct {
	Routes []Route
	Token  string   // that clients must send, but for the open paths; none if empty
	Open   []string // paths that tell nothing about texts and people
}

func (t *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := t.serve(w, r); err != nil {
		refusal := refusalOf(err)
		var body any = map[string]any{"error": refusal.Message}
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			body = OpenAIForm(refusal)
		}
		switch refusal.Status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "1")
		}
		JSON(w, refusal.Status, body)
	}
}

// OpenAIForm is an error in OpenAI's form.
func OpenAIForm(err error) any {
	r, kind := refusalOf(err), "invalid_request_error"
	if r.Status >= 500 {
		kind = "server_error"
	}
	optional := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	return map[string]any{"error": map[string]any{
		"message": r.Message, "type": kind, "param": optional(r.Param), "code": optional(r.Code)}}
}

func (t *Router) serve(w http.ResponseWriter, r *http.Request) error {
	if crowded(r) {
		w.Header().Set("Connection", "close")
		return Refuse(http.StatusServiceUnavailable, "too many connections, try again later")
	}
	if err := t.check(r); err != nil {
		return err
	}
	path := strings.Split(r.URL.EscapedPath(), "/")
	var allowed []string
	for _, route := range t.Routes {
		values, matches, err := match(strings.Split(route.Path, "/"), path)
		if !matches {
			continue
		}
		if route.Method == r.Method || route.Method == http.MethodGet && r.Method == http.MethodHead {
			if err != nil {
				return err
			}
			return route.Handler(w, r, values)
		}
		allowed = append(allowed, route.Method)
	}
	if allowed != nil {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return Refuse(http.StatusMethodNotAllowed, "not with this method")
	}
	return Refuse(http.StatusNotFound, "there is no such path, see /openapi.json")
}

// match gives the values of the parameters. An error: one is no UTF-8 text.
func match(pattern, path []string) (values []string, matches bool, err error) {
	if len(pattern) != len(path) {
		return nil, false, nil
	}
	for i, part := range pattern {
		if part != "*" {
			if part != path[i] {
				return nil, false, nil
			}
			continue
		}
		if path[i] == "" {
			return nil, false, nil
		}
		value, wrong := url.PathUnescape(path[i])
		if wrong != nil || !utf8.ValidString(value) {
			err = Refuse(http.StatusBadRequest, "%q in the path is no UTF-8 text", path[i])
		}
		values = append(values, value)
	}
	return values, true, err
}

// Send writes a whole answer.
func Send(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails if the client has gone
}

// JSON writes a value.
func JSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil { // all values have a form in JSON: NaN is in none
		panic(err)
	}
	Send(w, status, "application/json", text)
}

// ReadBody reads the body of a request.
func ReadBody(w http.ResponseWriter, r *http.Request, most int) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, Refuse(http.StatusRequestEntityTooLarge, "a request has at most %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Refuse(http.StatusRequestTimeout, "the request did not arrive in time")
	case err != nil:
		return nil, Refuse(http.StatusBadRequest, "%v", err)
	}
	return body, control.SetReadDeadline(time.Time{})
}
