// Package settings has the settings of the service and its command line.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

// Decimal is a number that JSON has with a point or an exponent, as the service in Rust writes it.
type Decimal float64

// MarshalJSON writes the shortest text that is read as the same number.
func (d Decimal) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(d))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// Learning has the settings that decide the bytes of an adapter, beside the corrections and the base. The
// database has them as JSON.
type Learning struct {
	Seed         uint64  `json:"seed"` // first part of the seeds of all versions
	Rank         int     `json:"rank"` // of the LoRA adapter
	LearningRate Decimal `json:"learning_rate"`
	Warmup       int     `json:"warmup"`
	Updates      int     `json:"updates"`  // most updates of a round
	Every        int     `json:"every"`    // updates from one validation and checkpoint to the next
	Patience     int     `json:"patience"` // validations without a better loss on held-out corrections that end a round
	BatchTokens  int     `json:"batch_tokens"`
	Replay       int     `json:"replay"`     // pairs of the base's text that are learned again
	Share        Decimal `json:"share"`      // of the corrections in the pairs of an epoch, above 0 and below 1
	PerPerson    int     `json:"per_person"` // newest corrections of a person in a domain that are learned
	Most         int     `json:"most"`       // newest corrections of a domain that are learned
}

// Read parses the settings that a database has. A member that this program does not know is an error, and so
// is a missing one: the bytes of the adapter could depend on it.
func (l *Learning) Read(text string) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(l); err != nil {
		return err
	}
	var given, known map[string]any
	whole, err := json.Marshal(l)
	if err == nil {
		err = json.Unmarshal(whole, &known)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &given)
	}
	if err != nil {
		return err
	}
	for name := range known {
		if _, there := given[name]; !there {
			return fault.New(fault.Internal, "missing field `%s`", name)
		}
	}
	return nil
}

// Bounds must be kept by a candidate to be served.
type Bounds struct {
	RegressionLoss float64 // BLEU that a candidate may lose on the regression set, against the base
	// Length is the tokens that a candidate may take for the measured lines, relative to the current version.
	// Their number decides how long a translation takes, and it is the same in every run.
	Length float64
}

// Settings of the service.
type Settings struct {
	Data            string // database, adapters
	Base            string // directory of the base model; Data/base if empty, which is trained if it is missing
	LanguageModel   string // directory of a model that the OpenAI interface serves beside the base; none if empty
	Address         string
	Token           string // clients must send it; without one, the address must be a loopback address
	Batch           int    // new corrections of a domain that start a round
	Beam            int
	Device          string  // of translations, training and measuring: cpu, cuda, cuda:N or auto
	ServeThreads    int     // 0: one for each core
	TrainThreads    int     //
	TrainShare      float64 // of the time in which training computes, above 0 and at most 1
	BusyShare       float64 // the same while requests are translated, 0.001 to 1
	Queue           int     // sentences that may wait to be translated
	MostBody        int     // bytes of a request
	TimeLimit       float64 // seconds until a request that is not answered is given up
	MostDomains     int     // each has an adapter in memory
	StoredPerPerson int     // corrections of a person
	MostCorrections int     // corrections of a domain that are stored
	Learning        Learning
	Bounds          Bounds
}

// Default gives the defaults, which are those of the service in Rust.
func Default() Settings {
	return Settings{
		Data: "learning-data", Address: "127.0.0.1:8080", Batch: 10, Beam: 4, Device: "cpu", TrainThreads: 1, TrainShare: 1,
		BusyShare: 0.1, Queue: 1024, MostBody: 1 << 20, TimeLimit: 30, MostDomains: 16, StoredPerPerson: 10_000,
		MostCorrections: 100_000,
		Learning: Learning{Seed: 1, Rank: 8, LearningRate: 3e-3, Warmup: 20, Updates: 400, Every: 20, Patience: 5,
			BatchTokens: 1024, Replay: 12000, Share: 0.15, PerPerson: 200, Most: 5000},
		Bounds: Bounds{RegressionLoss: 0.5, Length: 1.5},
	}
}

// BaseFolder is the directory of the base model.
func (s *Settings) BaseFolder() string {
	if s.Base != "" {
		return s.Base
	}
	return filepath.Join(s.Data, "base")
}

func (s *Settings) flags() *flag.FlagSet {
	set := flag.NewFlagSet("learning-service", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&s.Data, "data", s.Data, "`folder` of database and adapters")
	set.StringVar(&s.Base, "base", s.Base, "`folder` of the base model; by default the folder base of -data, where one is trained if it is missing")
	set.StringVar(&s.LanguageModel, "language-model", s.LanguageModel,
		"`folder` of a decoder-only model for /v1/chat/completions and /v1/completions; it learns nothing")
	set.StringVar(&s.Address, "address", s.Address, "`host:port`; port 0 is a free one")
	set.IntVar(&s.Batch, "batch", s.Batch, "new corrections of a domain that start a round")
	set.IntVar(&s.Beam, "beam", s.Beam, "width of the beam search")
	set.StringVar(&s.Device, "device", s.Device, "cpu, cuda, cuda:N or auto, of translations and training")
	set.IntVar(&s.ServeThreads, "serve-threads", s.ServeThreads, "threads that translate; 0: one for each core")
	set.IntVar(&s.TrainThreads, "train-threads", s.TrainThreads, "threads that train")
	set.Float64Var(&s.TrainShare, "train-share", s.TrainShare, "share of the time in which training computes")
	set.Float64Var(&s.BusyShare, "busy-share", s.BusyShare, "the same while requests are translated")
	set.IntVar(&s.Queue, "queue", s.Queue, "sentences that may wait")
	set.IntVar(&s.MostBody, "most-body", s.MostBody, "`bytes` of a request")
	set.Float64Var(&s.TimeLimit, "time-limit", s.TimeLimit, "`seconds` until a request is given up")
	set.IntVar(&s.MostDomains, "most-domains", s.MostDomains, "domains that may exist")
	set.IntVar(&s.MostCorrections, "most-corrections", s.MostCorrections, "corrections of a domain that are stored")
	set.Float64Var(&s.Bounds.RegressionLoss, "regression-loss", s.Bounds.RegressionLoss,
		"BLEU that a version may lose on the regression set")
	l := &s.Learning
	set.Uint64Var(&l.Seed, "seed", l.Seed, "of the rounds")
	set.IntVar(&l.Rank, "rank", l.Rank, "of the adapters")
	set.Float64Var((*float64)(&l.LearningRate), "learning-rate", float64(l.LearningRate), "of a round")
	set.IntVar(&l.Warmup, "warmup", l.Warmup, "updates in which the learning rate rises")
	set.IntVar(&l.Updates, "updates", l.Updates, "most updates of a round")
	set.IntVar(&l.Every, "every", l.Every, "updates between validations")
	set.IntVar(&l.Patience, "patience", l.Patience, "validations without a better loss that end a round")
	set.IntVar(&l.BatchTokens, "batch-tokens", l.BatchTokens, "target tokens of a batch")
	set.IntVar(&l.Replay, "replay", l.Replay, "pairs of the base's text that a round learns again")
	set.Float64Var((*float64)(&l.Share), "share", float64(l.Share), "of the corrections in an epoch")
	set.IntVar(&l.PerPerson, "per-person", l.PerPerson, "newest corrections of a person that are learned")
	return set
}

// Parse reads the arguments after the program's name. flag.ErrHelp: they ask for help, which was written to
// out. Errors name the option.
func Parse(arguments []string, out io.Writer) (Settings, error) {
	s := Default()
	set := s.flags()
	if err := set.Parse(arguments); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(out, "usage: learning-service [--NAME VALUE]...")
		set.SetOutput(out)
		set.PrintDefaults()
		fmt.Fprintln(out, "The bearer token is the variable LEARNING_SERVICE_TOKEN. Without it the address must be a loopback address.")
		return s, err
	} else if err != nil {
		return s, fault.New(fault.Invalid, "%s", strings.Replace(err.Error(), " -", " --", 1))
	}
	if set.NArg() > 0 {
		return s, fault.New(fault.Invalid, "there is no argument %q, see --help", set.Arg(0))
	}
	return s, s.check()
}

func (s *Settings) check() error {
	if _, _, err := trafo.ParseDevice(s.Device); err != nil {
		return fault.New(fault.Invalid, "--device: %v", err)
	}
	l := &s.Learning
	for _, each := range []struct {
		name         string
		value, least int
	}{
		{"batch", s.Batch, 1}, {"beam", s.Beam, 1}, {"train-threads", s.TrainThreads, 1}, {"queue", s.Queue, 1},
		{"most-domains", s.MostDomains, 1}, {"most-corrections", s.MostCorrections, 1}, {"rank", l.Rank, 1},
		{"updates", l.Updates, 1}, {"every", l.Every, 1}, {"patience", l.Patience, 1}, {"per-person", l.PerPerson, 1},
		{"serve-threads", s.ServeThreads, 0}, {"most-body", s.MostBody, 0}, {"warmup", l.Warmup, 0},
		{"batch-tokens", l.BatchTokens, 0}, {"replay", l.Replay, 0},
	} {
		if each.value < each.least {
			return fault.New(fault.Invalid, "--%s must be at least %d", each.name, each.least)
		}
	}
	for _, each := range []struct {
		is   bool
		says string
	}{
		{l.Updates > l.Warmup, "--updates must be above --warmup"},
		{s.TrainShare > 0 && s.TrainShare <= 1, "--train-share must be above 0 and at most 1"},
		{s.BusyShare >= 0.001 && s.BusyShare <= 1, "--busy-share must be 0.001 to 1"},
		{l.Share > 0 && l.Share < 1, "--share must be above 0 and below 1"},
		{s.TimeLimit > 0 && s.TimeLimit <= 86_400, "--time-limit must be above 0 and at most 86400"},
	} {
		if !each.is {
			return fault.New(fault.Invalid, "%s", each.says)
		}
	}
	return nil
}
