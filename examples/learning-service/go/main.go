// Command learning-service translates over HTTP and learns from corrections: see docs/guide/learning-service.md. It is the
// service of this folder in Go; ../src is the one in Rust.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/trafo-engine/trafo/examples/learning-service/go/api"
	"github.com/trafo-engine/trafo/examples/learning-service/go/core"
	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/learn"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/openai"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

// grace is how long a shutdown waits for accepted requests.
const grace = 30 * time.Second

func main() {
	err := run(os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "learning-service:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	settings, err := settings.Parse(arguments, os.Stdout)
	if err != nil {
		return err
	}
	if settings.Token, err = token(os.Getenv("LEARNING_SERVICE_TOKEN")); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", settings.Address)
	if err != nil {
		return fault.New(fault.Invalid, "%s: %v", settings.Address, err)
	}
	defer listener.Close()
	if address := listener.Addr().(*net.TCPAddr); settings.Token == "" && !address.IP.IsLoopback() {
		return fault.New(fault.Invalid, "%v is not a loopback address: set LEARNING_SERVICE_TOKEN", address)
	}
	if err := os.MkdirAll(settings.Data, 0o777); err != nil {
		return err
	}
	s, err := store.Open(filepath.Join(settings.Data, "service.db"))
	if err != nil {
		return err
	}
	defer s.Close()
	if settings.Base == "" {
		if err := makeBase(&settings); err != nil {
			return err
		}
	}
	c, refused, err := core.Open(settings, s)
	if err != nil {
		return err
	}
	for _, reason := range refused {
		fmt.Fprintln(os.Stderr, reason)
	}
	return serve(c, listener)
}

// makeBase trains the base of the demo corpus if the folder is missing.
func makeBase(s *settings.Settings) error {
	folder := s.BaseFolder()
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return fault.IO(err)
	}
	began, recipe := time.Now(), models.Demo(s.Device)
	fmt.Fprintln(os.Stderr, "there is no base model: a small one is trained from the demo corpus into", folder)
	return recipe.TrainDemo(folder, func(update int64) {
		if update%100 == 0 {
			fmt.Fprintf(os.Stderr, "update %d of %d, %.0f s\n", update, recipe.Updates, time.Since(began).Seconds())
		}
	})
}

// serve answers until a signal to end comes, and then what it has accepted.
func serve(c *core.Core, listener net.Listener) error {
	language, err := openai.OpenModel(&c.Settings)
	if err != nil {
		return err
	}
	// Before the first request: none may be lost by a signal that nobody handles.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := api.New(c)
	interfaces := openai.New(app, language)
	server := web.NewServer(&web.Router{
		Routes: append(app.Routes(), interfaces.Routes()...), Token: c.Settings.Token, Open: api.OpenPaths})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	learner := learn.Start(c)
	fmt.Printf("learning-service: http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(os.Stderr, "shutting down: answering what was accepted")
	c.Close()
	patience, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err = server.Shutdown(patience)
	if err != nil {
		_ = server.Close() // ends the contexts of the requests that are left
		err = fault.New(fault.Internal, "connections were left unanswered after %v", grace)
	}
	<-learner
	app.Close()
	language.Close()
	return err
}

// token checks the bearer token; an empty one is none.
func token(text string) (string, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return r < '!' || r > '~' }) {
		return "", fault.New(fault.Invalid, "LEARNING_SERVICE_TOKEN must be of ASCII characters without spaces")
	}
	return text, nil
}
