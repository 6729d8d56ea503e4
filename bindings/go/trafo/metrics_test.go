package trafo_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

var (
	hypothesisLines = []string{"the cat sat on the mat", "There is a dog."}
	referenceLines  = []string{"the cat sat on the mat", "There is a cat."}
	moreReferences  = []string{"a cat sat on that mat", "There is one dog."}
)

func evaluated(t testing.TB, hypotheses []string, references [][]string, options *trafo.EvaluationOptions) *trafo.Evaluation {
	t.Helper()
	result, err := trafo.Evaluate(t.Context(), hypotheses, references, options)
	ok(t, err)
	return result
}

func TestEvaluateHasThePartsOfBLEU(t *testing.T) {
	one := evaluated(t, hypothesisLines, [][]string{referenceLines}, nil)
	// 10 of 11 words, 7 of 9 pairs, 5 of 7 triples, 3 of 5 quadruples.
	if one.Matches != [4]int64{10, 7, 5, 3} || one.Totals != [4]int64{11, 9, 7, 5} || one.HypothesisTokens != 11 || one.ReferenceTokens != 11 {
		t.Errorf("%+v", one)
	}
	wantValues(t, "precisions", one.Precisions[:], []float64{1000. / 11, 700. / 9, 500. / 7, 60})
	wantValues(t, "BLEU", []float64{one.BLEU.Score}, []float64{100 * math.Pow(10./11*7/9*5/7*3/5, 0.25)})
	chrf, _, err := trafo.ChrF(hypothesisLines, referenceLines)
	ok(t, err)
	if score := must[float64](t)(trafo.MetricScore(trafo.MetricChrF, hypothesisLines, [][]string{referenceLines})); score != chrf {
		t.Errorf("chrF %v and %v", score, chrf)
	}
	if one.ChrF.Score != chrf || one.BrevityPenalty != 1 || one.UnspacedReferences != 0 {
		t.Errorf("%+v, chrF %v", one, chrf)
	}
	if !strings.HasPrefix(one.BLEUSignature, "nrefs:1|case:mixed|eff:no|tok:13a|") || !strings.HasPrefix(one.ChrFSignature, "nrefs:1|case:mixed|eff:yes|nc:6|") {
		t.Error(one.BLEUSignature, one.ChrFSignature)
	}
	for _, unknown := range []float64{one.BLEU.Mean, one.BLEU.HalfWidth, one.BLEU.PValue, one.BaselineBLEU.Score, one.BaselineChrF.Score} {
		if !math.IsNaN(unknown) {
			t.Errorf("%+v", one)
		}
	}
	two := evaluated(t, hypothesisLines, [][]string{referenceLines, moreReferences}, nil)
	if two.Matches != [4]int64{11, 8, 5, 3} || !(two.BLEU.Score > one.BLEU.Score) || !strings.HasPrefix(two.BLEUSignature, "nrefs:2|") {
		t.Errorf("%+v", two)
	}
	options := trafo.DefaultEvaluationOptions()
	options.Lowercase = true
	upper := []string{strings.ToUpper(hypothesisLines[0]), strings.ToUpper(hypothesisLines[1])}
	if caseless := evaluated(t, upper, [][]string{referenceLines}, &options); caseless.Matches != one.Matches || !strings.Contains(caseless.BLEUSignature, "|case:lc|") {
		t.Errorf("%+v", caseless)
	}
}

func TestSentenceScores(t *testing.T) {
	hypotheses, references := []string{"two words", hypothesisLines[1]}, []string{"two words", referenceLines[1]}
	scores := must[[]trafo.SentenceScore](t)(trafo.SentenceScores(hypotheses, references, nil))
	alone, _, err := trafo.ChrF(hypotheses[1:], references[1:])
	if err != nil {
		t.Fatal(err)
	}
	// Orders longer than a translation are left out.
	wantValues(t, "scores", []float64{scores[0].BLEU, scores[0].ChrF, scores[1].ChrF}, []float64{100, 100, alone})
	if !(scores[1].BLEU < 99) {
		t.Errorf("%+v", scores)
	}
	if _, err := trafo.SentenceScores(hypotheses, references[1:], nil); err == nil {
		t.Error("two hypotheses and one reference were scored")
	}
	options := trafo.DefaultEvaluationOptions()
	options.Tokenize = trafo.TokenizeFlores200
	if _, err := trafo.SentenceScores(hypotheses, references, &options); err == nil {
		t.Error("flores200 scored without a tokenizer")
	}
}

func TestEvaluateResamplesAndCompares(t *testing.T) {
	references := [][]string{referenceLines}
	options := trafo.DefaultEvaluationOptions()
	options.Resamples, options.Seed, options.Baseline = 200, trafo.Some(uint64(7)), hypothesisLines
	compared := evaluated(t, referenceLines, references, &options)
	wantValues(t, "BLEU", []float64{compared.BLEU.Score, compared.BLEU.Mean, compared.BLEU.HalfWidth}, []float64{100, 100, 0})
	if p := compared.BLEU.PValue; !(p > 0 && p < 1) {
		t.Errorf("%+v", compared)
	}
	if !(compared.BaselineBLEU.HalfWidth > 0) || !math.IsNaN(compared.BaselineBLEU.PValue) || !strings.HasPrefix(compared.BLEUSignature, "nrefs:1|bs:200|seed:7|") {
		t.Errorf("%+v", compared)
	}
	if same := evaluated(t, hypothesisLines, references, &options); same.BLEU.PValue != 1 || same.ChrF.PValue != 1 {
		t.Errorf("%+v", same)
	}
	options.Baseline, options.Confidence = nil, true
	// The same seed draws the same lines.
	numbers := func(s trafo.ResampledScore) [3]float64 { return [3]float64{s.Score, s.Mean, s.HalfWidth} }
	alone := evaluated(t, hypothesisLines, references, &options)
	if numbers(alone.BLEU) != numbers(compared.BaselineBLEU) || numbers(alone.ChrF) != numbers(compared.BaselineChrF) {
		t.Errorf("%+v and %+v", alone, compared)
	}
	options.Seed = trafo.Some(uint64(8))
	if other := evaluated(t, hypothesisLines, references, &options); other.BLEU.Mean == alone.BLEU.Mean {
		t.Errorf("%+v", other)
	}
}

func TestEvaluateWithEveryTokenizer(t *testing.T) {
	hypotheses, references := []string{"今天天气很好，我们去公园。"}, [][]string{{"今天天气不错，我们去公园。"}}
	options := trafo.DefaultEvaluationOptions()
	for _, c := range []struct {
		tokenizer trafo.BLEUTokenizer
		name      string
		tokens    int64
	}{
		{trafo.Tokenize13a, "13a", 1}, {trafo.TokenizeNone, "none", 1}, {trafo.TokenizeZh, "zh", 13},
		{trafo.TokenizeIntl, "intl", 4}, // two phrases, a comma, a full stop
		{trafo.TokenizeChar, "char", 13},
	} {
		options.Tokenize = c.tokenizer
		if e := evaluated(t, hypotheses, references, &options); e.HypothesisTokens != c.tokens || e.UnspacedReferences != 1 || !strings.Contains(e.BLEUSignature, "|tok:"+c.name+"|") {
			t.Errorf("%s: %+v", c.name, e)
		}
	}

	// MeCab is no part of the library. Without it the error says what to install.
	options.Tokenize = trafo.TokenizeJaMecab
	japanese := []string{"東京都に住んでいます。"}
	if e, err := trafo.Evaluate(t.Context(), japanese, [][]string{japanese}, &options); err == nil {
		if e.HypothesisTokens != 8 || !strings.Contains(e.BLEUSignature, "|tok:ja-mecab-0.99") {
			t.Errorf("%+v", e)
		}
	} else {
		wantError(t, err, trafo.ErrUnsupported)
	}

	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	source, target := sentences()
	pieces := 0
	for _, line := range target {
		pieces += len(must[[]int32](t)(tokenizer.Encode(line)))
	}
	options.Tokenize, options.Tokenizer = trafo.TokenizeFlores200, tokenizer
	subwords := evaluated(t, target, [][]string{target}, &options)
	wantValues(t, "BLEU", []float64{subwords.BLEU.Score}, []float64{100})
	if subwords.HypothesisTokens != int64(pieces) || subwords.ReferenceTokens != int64(pieces) || !strings.Contains(subwords.BLEUSignature, "|tok:flores200|model:") {
		t.Errorf("%d pieces, %+v", pieces, subwords)
	}
	if other := evaluated(t, source, [][]string{target}, &options); other.BLEU.Score > 50 {
		t.Errorf("%+v", other)
	}
}

func TestEvaluateRefuses(t *testing.T) {
	closedTokenizer := newTokenizer(t, nil)
	ok(t, closedTokenizer.Close())
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	for name, c := range map[string]struct {
		hypotheses []string
		references [][]string
		change     func(*trafo.EvaluationOptions)
		want       error
	}{
		"no hypotheses":     {nil, [][]string{nil}, nil, trafo.ErrInvalidArgument},
		"no references":     {hypothesisLines, nil, nil, trafo.ErrInvalidArgument},
		"fewer references":  {hypothesisLines, [][]string{referenceLines, referenceLines[1:]}, nil, trafo.ErrInvalidArgument},
		"shorter baseline":  {hypothesisLines, [][]string{referenceLines}, func(o *trafo.EvaluationOptions) { o.Baseline = slices.Clone(referenceLines[1:]) }, trafo.ErrInvalidArgument},
		"fewer than none":   {hypothesisLines, [][]string{referenceLines}, func(o *trafo.EvaluationOptions) { o.Resamples = -1 }, trafo.ErrInvalidArgument},
		"no model":          {hypothesisLines, [][]string{referenceLines}, func(o *trafo.EvaluationOptions) { o.Tokenize = trafo.TokenizeFlores200 }, trafo.ErrInvalidArgument},
		"unused model":      {hypothesisLines, [][]string{referenceLines}, func(o *trafo.EvaluationOptions) { o.Tokenizer = tokenizer }, trafo.ErrInvalidArgument},
		"closed model":      {hypothesisLines, [][]string{referenceLines}, func(o *trafo.EvaluationOptions) { o.Tokenizer = closedTokenizer }, trafo.ErrClosed},
		"an unknown number": {hypothesisLines, [][]string{referenceLines}, func(o *trafo.EvaluationOptions) { o.Tokenize = 77 }, trafo.ErrInvalidArgument},
		"text of Latin-1": {[]string{"caf\xe9"}, [][]string{{"café"}}, func(o *trafo.EvaluationOptions) {
			o.Tokenize, o.Tokenizer = trafo.TokenizeFlores200, tokenizer // which encodes UTF-8
		}, trafo.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			options := trafo.DefaultEvaluationOptions()
			if c.change != nil {
				c.change(&options)
			}
			_, err := trafo.Evaluate(t.Context(), c.hypotheses, c.references, &options)
			wantError(t, err, c.want)
		})
	}
}

func TestScoreByEveryMetric(t *testing.T) {
	shifted := []string{"d e f a b c"}
	wantValues(t, "TER", []float64{must[float64](t)(trafo.MetricScore(trafo.MetricTER, shifted, [][]string{{"a b c d e f"}}))}, []float64{100. / 6})
	if trafo.MetricTER.String() != "ter" || trafo.MetricCE.String() != "ce-mean-words" {
		t.Error(trafo.MetricTER, trafo.MetricCE)
	}
	_, err := trafo.MetricScore(trafo.MetricCE, shifted, [][]string{{"a"}})
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.MetricScore(trafo.MetricTER, shifted, [][]string{{"a", "b"}})
	wantError(t, err, trafo.ErrInvalidArgument)
}
