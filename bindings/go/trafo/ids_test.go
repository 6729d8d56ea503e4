package trafo_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// idRows gives the ids of texts and of their ends.
func (l *lesson) idRows(t testing.TB, texts []string) [][]int32 {
	t.Helper()
	special := must[trafo.SpecialTokens](t)(l.tokenizer.Special())
	var rows [][]int32
	for _, text := range texts {
		rows = append(rows, append(must[[]int32](t)(l.tokenizer.Encode(text)), special.EOS))
	}
	return rows
}

func TestIDsGiveWhatTextGives(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	source, target = source[:3], target[:3]
	sources, targets := l.idRows(t, source), l.idRows(t, target)
	_, _, err := l.model.SpecialTokens()
	wantError(t, err, trafo.ErrNotFound)
	options := &trafo.TranslateOptions{Beam: 2, MaxLength: 10, WordScores: true}
	_, err = l.model.TranslateIDs(t.Context(), nil, sources, nil, options)
	wantError(t, err, trafo.ErrInvalidArgument)
	special := must[trafo.SpecialTokens](t)(l.tokenizer.Special())
	ok(t, l.model.SetSpecialTokens(special))

	same := func(a, b *trafo.Translations, err error, hasText bool) {
		t.Helper()
		ok(t, err)
		for i, line := range b.Lines {
			for rank := range line {
				if !hasText {
					line[rank].Text = a.Lines[i][rank].Text
				}
			}
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("text gives %v, ids %v", a, b)
		}
	}
	text := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source, options))
	ids, err := l.model.TranslateIDs(t.Context(), l.tokenizer, sources, nil, options)
	same(text, ids, err, true)
	ids, err = l.model.TranslateIDs(t.Context(), nil, sources, nil, options)
	same(text, ids, err, false)

	var begun [][]int32
	for _, row := range targets {
		begun = append(begun, row[:2])
	}
	ids = must[*trafo.Translations](t)(l.model.TranslateIDs(t.Context(), nil, sources, begun, options))
	for i, line := range ids.Lines {
		if !slices.Equal(line[0].Tokens[:2], begun[i]) {
			t.Errorf("line %d does not begin as given: %v", i, line[0].Tokens)
		}
	}
	_, err = l.model.TranslateIDs(t.Context(), nil, sources, begun[:1], options)
	wantError(t, err, trafo.ErrInvalidArgument)

	text = must[*trafo.Translations](t)(l.model.ForceDecode(t.Context(), l.tokenizer, source, target, options))
	ids, err = l.model.ForceDecodeIDs(t.Context(), nil, sources, targets, options)
	same(text, ids, err, false)

	equal := func(a, b *trafo.Tensor) {
		t.Helper()
		if !slices.Equal(must[[]float32](t)(a.Float32s()), must[[]float32](t)(b.Float32s())) {
			t.Error("text and ids give other numbers")
		}
	}
	states, _, err := l.model.HiddenStates(l.tokenizer, source)
	ok(t, err)
	statesOfIDs, _, err := l.model.HiddenStatesIDs(sources)
	ok(t, err)
	equal(states, statesOfIDs)
	logits, _, err := l.model.Logits(l.tokenizer, source, target)
	ok(t, err)
	logitsOfIDs, _, err := l.model.LogitsIDs(nil, sources, targets)
	ok(t, err)
	equal(logits, logitsOfIDs)
}

func TestTrainingNeedsNoText(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	sources, targets := l.idRows(t, source), l.idRows(t, target)
	special := must[trafo.SpecialTokens](t)(l.tokenizer.Special())
	var want []float64
	for _, ids := range []bool{false, true} {
		l.newModel(t)
		tokenizer, corpus := l.tokenizer, l.train
		if ids {
			ok(t, l.model.SetSpecialTokens(special))
			tokenizer, corpus = nil, must[*trafo.Corpus](t)(trafo.NewCorpusOfIDs(sources, targets))
			defer corpus.Close()
		}
		trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(t.Context(), tokenizer, corpus, nil, &l.options))
		var losses []float64
		for range 3 {
			losses = append(losses, must[trafo.StepResult](t)(trainer.Step(t.Context())).Loss)
		}
		ok(t, trainer.Close())
		if !ids {
			want = losses
		} else if !slices.Equal(losses, want) {
			t.Errorf("text gives the losses %v, ids %v", want, losses)
		}
	}

	// Batches need no corpus at all.
	l.newModel(t)
	_, err := l.model.NewTrainer(t.Context(), nil, nil, nil, &l.options)
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, l.model.SetSpecialTokens(special))
	trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(t.Context(), nil, nil, nil, &l.options))
	defer trainer.Close()
	_, err = trainer.Step(t.Context())
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) {
		return trafo.Batch{Source: sources[:4], Target: targets[:4]}, nil
	}))
	if loss := must[trafo.StepResult](t)(trainer.Step(t.Context())).Loss; !(loss > 0) {
		t.Errorf("the loss is %v", loss)
	}
	_, err = trafo.NewCorpusOfIDs([][]int32{{5, -1}}, [][]int32{{5, 2}})
	wantError(t, err, trafo.ErrInvalidArgument)
}

// A decoder-lm reads </s> in place of no source: its targets are plain text.
func TestTargetsWithoutSources(t *testing.T) {
	l := newLesson(t)
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Architecture = trafo.DecoderLM
	config.Vocabulary = must[int](t)(l.tokenizer.Vocabulary())
	config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 32, 64, 2
	model := must[*trafo.Model](t)(l.context.NewModel(config, 1))
	defer model.Close()
	special := must[trafo.SpecialTokens](t)(l.tokenizer.Special())
	ok(t, model.SetSpecialTokens(special, 7, 9))
	_, texts := sentences()
	targets := l.idRows(t, texts[:4])
	scores := must[*trafo.Translations](t)(model.ScoreText(t.Context(), l.tokenizer, texts[:4], nil))
	ids := must[*trafo.Translations](t)(model.ForceDecodeIDs(t.Context(), nil, nil, targets, nil))
	for i := range scores.Lines {
		if scores.Lines[i][0].Score != ids.Lines[i][0].Score {
			t.Errorf("line %d: %v and %v", i, scores.Lines[i][0].Score, ids.Lines[i][0].Score)
		}
	}
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), nil, nil, nil, &l.options))
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) { return trafo.Batch{Target: targets}, nil }))
	must[trafo.StepResult](t)(trainer.Step(t.Context()))
	ok(t, trainer.Close())

	path := filepath.Join(t.TempDir(), "model.safetensors")
	ok(t, model.Save(path))
	again := must[*trafo.Model](t)(l.context.LoadModel(path))
	defer again.Close()
	tokens, ends, err := again.SpecialTokens()
	ok(t, err)
	if tokens != special || !slices.Equal(ends, []int32{7, 9}) {
		t.Errorf("the file has %v and %v", tokens, ends)
	}
}

// Windows over a text: each of its tokens is learned, and scored, once.
func TestLongTextsBecomeWindows(t *testing.T) {
	l := newLesson(t)
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Architecture = trafo.DecoderLM
	config.Vocabulary = must[int](t)(l.tokenizer.Vocabulary())
	config.DecoderLayers, config.Width, config.FFNWidth, config.Heads, config.MaxPositions = 1, 32, 64, 2, 30
	model := must[*trafo.Model](t)(l.context.NewModel(config, 1))
	defer model.Close()
	special := must[trafo.SpecialTokens](t)(l.tokenizer.Special())
	ok(t, model.SetSpecialTokens(special))
	text := make([]int32, 100)
	for i := range text {
		text[i] = int32(5 + i%15)
	}
	texts := must[*trafo.Corpus](t)(trafo.NewCorpusOfIDs([][]int32{{}}, [][]int32{text}))
	defer texts.Close()
	options := l.options
	options.MaxLength = 30
	_, err := model.NewTrainer(t.Context(), nil, texts, nil, &options)
	wantError(t, err, trafo.ErrInvalidArgument)
	options.LongLines, options.WindowStride = trafo.LongLinesWindow, 20
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), nil, texts, nil, &options))
	if labels := must[trafo.StepResult](t)(trainer.Step(t.Context())).Labels; labels != 100 {
		t.Errorf("%d of 100 tokens are learned", labels)
	}
	ok(t, trainer.Close())
	_, err = l.model.NewTrainer(t.Context(), l.tokenizer, l.train, nil, &options)
	wantError(t, err, trafo.ErrInvalidArgument)

	line := strings.Repeat("the small dog sees the tree ", 20)
	translation := trafo.DefaultTranslateOptions()
	for stride, want := range map[int]int{0: 30, 10: len(must[[]int32](t)(l.tokenizer.Encode(line))) + 1} {
		translation.WindowStride = stride
		scored := must[*trafo.Translations](t)(model.ScoreText(t.Context(), l.tokenizer, []string{line}, &translation))
		if got := len(scored.Lines[0][0].Tokens); got != want {
			t.Errorf("stride %d: %d tokens of %d are scored", stride, got, want)
		}
	}
}

func TestAVocabularyWithoutLanguagesRefusesThem(t *testing.T) {
	l := newLesson(t)
	_, err := l.tokenizer.WithLanguages("eng_Latn", "deu_Latn")
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestSpecialTokensInTextByChoice(t *testing.T) {
	l := newLesson(t)
	parsing := must[*trafo.Tokenizer](t)(l.tokenizer.ParseSpecial())
	defer parsing.Close()
	if slices.Contains(must[[]int32](t)(l.tokenizer.Encode("eins zwei</s>")), trafo.TokenEOS) {
		t.Error("text is a special token")
	}
	if got, want := must[[]int32](t)(parsing.Encode("eins zwei</s>")), l.idRows(t, []string{"eins zwei"})[0]; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
