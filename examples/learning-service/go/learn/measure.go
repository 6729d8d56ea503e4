package learn

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

const (
	chunk        = 16  // lines that are translated together, between two pauses
	mostMeasured = 300 // sentences of each kind
)

// sets has the sentences that versions are measured on.
type sets struct {
	held, regression []store.Pair
	withTerms        []string // sources with a term in them, learned ones among them: a term must be right everywhere
	terms            []store.Term
}

func newSets(round *store.Round, regression []store.Pair, terms []store.Term) *sets {
	s := &sets{held: round.Held, regression: regression, terms: terms}
	add := func(source string) {
		for _, term := range terms {
			if len(s.withTerms) < mostMeasured && containsWords(source, term.Source) {
				s.withTerms = append(s.withTerms, source)
				return
			}
		}
	}
	for _, pair := range round.Held {
		add(pair.Source)
	}
	for i := len(round.Train) - 1; i >= 0; i-- {
		add(round.Train[i].Source)
	}
	s.held = s.held[:min(len(s.held), mostMeasured)]
	return s
}

// figures of a version. Scores are 0 to 100.
type figures struct {
	HeldChrF       settings.Decimal `json:"held_chrf"`
	HeldBLEU       settings.Decimal `json:"held_bleu"`
	HeldExact      int              `json:"held_exact"` // held-out corrections that are translated word for word
	HeldCount      int              `json:"held_count"`
	RegressionBLEU settings.Decimal `json:"regression_bleu"`
	TermsRight     int              `json:"terms_right"`
	TermsCount     int              `json:"terms_count"`
	Tokens         int              `json:"tokens"` // of all translations
	// Milliseconds of all translations. They decide nothing, because they are different in every run.
	Milliseconds settings.Decimal `json:"milliseconds"`
}

// measured has figures and the translations of the held-out corrections.
type measured struct {
	figures figures
	held    []string
}

// measure translates the sets. pause is called between two parts of the work with the time that the part took.
func measure(ctx context.Context, model *trafo.Model, frame *models.Frame, s *sets, beam int, pause func(time.Duration)) (*measured, error) {
	heldSources, heldTargets := sides(s.held)
	regressionSources, regressionTargets := sides(s.regression)
	lines := append(append(heldSources, regressionSources...), s.withTerms...)
	options := trafo.DefaultTranslateOptions()
	options.Beam = beam
	var texts []string
	var m measured
	for len(lines) > 0 {
		began, part := time.Now(), lines[:min(len(lines), chunk)]
		lines = lines[len(part):]
		found, err := frame.Translate(ctx, model, part, &options)
		if err != nil {
			return nil, err
		}
		for _, line := range found.Lines {
			m.figures.Tokens += len(line[0].Tokens)
		}
		texts = append(texts, found.Best()...)
		took := time.Since(began)
		m.figures.Milliseconds += settings.Decimal(took.Seconds() * 1e3)
		pause(took)
	}
	m.held = texts[:len(s.held)]
	texts = texts[len(s.held):]
	regression, withTerms := texts[:len(s.regression)], texts[len(s.regression):]
	f := &m.figures
	chrF, _, err := trafo.ChrF(m.held, heldTargets)
	if err != nil {
		return nil, err
	}
	bleu, _, err := trafo.BLEU(m.held, heldTargets, false)
	if err != nil {
		return nil, err
	}
	regressionBLEU, _, err := trafo.BLEU(regression, regressionTargets, false)
	if err != nil {
		return nil, err
	}
	f.HeldChrF, f.HeldBLEU, f.RegressionBLEU = settings.Decimal(chrF), settings.Decimal(bleu), settings.Decimal(regressionBLEU)
	for i, said := range m.held {
		if said == heldTargets[i] {
			f.HeldExact++
		}
	}
	f.HeldCount = len(m.held)
	f.TermsRight, f.TermsCount = countTerms(s.withTerms, withTerms, s.terms)
	return &m, nil
}

func sides(pairs []store.Pair) (sources, targets []string) {
	for _, pair := range pairs {
		sources, targets = append(sources, pair.Source), append(targets, pair.Target)
	}
	return sources, targets
}

// countTerms counts the terms in the sources, and those of them that are translated as they must be.
func countTerms(sources, translations []string, terms []store.Term) (right, count int) {
	for i, source := range sources {
		for _, term := range terms {
			if !containsWords(source, term.Source) {
				continue
			}
			count++
			if containsWords(translations[i], term.Target) {
				right++
			}
		}
	}
	return right, count
}

// containsWords says whether text has words in it, not as a part of other words, in upper or lower case.
func containsWords(text, words string) bool {
	text, words = strings.ToLower(text), strings.ToLower(words)
	if words == "" {
		return false
	}
	for from := 0; ; {
		at := strings.Index(text[from:], words)
		if at < 0 {
			return false
		}
		at += from
		from = at + len(words)
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[from:])
		if !isAlphanumeric(before) && !isAlphanumeric(after) {
			return true
		}
	}
}

func isAlphanumeric(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Other_Alphabetic, r)
}

// refusal says why the candidate is not served; empty: it is better. base: the figures of the base on the same sets,
// so that small losses do not add up over versions.
func refusal(candidate, current, base *figures, bounds *settings.Bounds) string {
	switch {
	case candidate.HeldChrF <= current.HeldChrF:
		return fmt.Sprintf("it is no better on the held-out corrections: chrF %.2f, and %.2f now",
			candidate.HeldChrF, current.HeldChrF)
	case float64(candidate.RegressionBLEU) < float64(base.RegressionBLEU)-bounds.RegressionLoss:
		return fmt.Sprintf("it forgets: BLEU %.2f on the regression set, and %.2f of the base; %.2f may be lost",
			candidate.RegressionBLEU, base.RegressionBLEU, bounds.RegressionLoss)
	case candidate.TermsRight < current.TermsRight:
		return fmt.Sprintf("it has fewer terms right: %d of %d, and %d now",
			candidate.TermsRight, candidate.TermsCount, current.TermsRight)
	case float64(candidate.Tokens) > float64(current.Tokens)*bounds.Length:
		return fmt.Sprintf("it would be slow: %d tokens for the measured sentences, and %d now",
			candidate.Tokens, current.Tokens)
	}
	return ""
}
