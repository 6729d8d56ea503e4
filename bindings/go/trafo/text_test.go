package trafo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func newTokenizer(t testing.TB, change func(*trafo.TokenizerOptions)) *trafo.Tokenizer {
	source, target := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 60, true
	if change != nil {
		change(&options)
	}
	return must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), slices.Concat(source, target), &options))
}

func TestTokenizer(t *testing.T) {
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	const text = "fünf vier eins"
	ids := must[[]int32](t)(tokenizer.Encode(text))
	if of := must[[]int32](t)(tokenizer.EncodeTarget(text)); !slices.Equal(of, ids) { // one model for both sides
		t.Errorf("%v, %v", of, ids)
	}
	if got := must[string](t)(tokenizer.Decode(ids)); got != text || len(ids) == 0 {
		t.Errorf("%v is %q", ids, got)
	}
	if slices.Contains(ids, trafo.TokenUnk) || slices.Contains(ids, trafo.TokenEOS) {
		t.Error(ids)
	}
	if token := must[string](t)(tokenizer.Token(trafo.TokenEOS)); token != "</s>" {
		t.Error(token)
	}
	special := must[trafo.SpecialTokens](t)(tokenizer.Special())
	if special != (trafo.SpecialTokens{Unk: trafo.TokenUnk, BOS: trafo.TokenBOS, EOS: trafo.TokenEOS, Pad: trafo.TokenPad}) {
		t.Error(special)
	}
	if ids := must[[]int32](t)(tokenizer.Encode("")); len(ids) != 0 {
		t.Error(ids)
	}
	size := must[int](t)(tokenizer.Vocabulary())
	_, err := tokenizer.Decode([]int32{int32(size)})
	wantError(t, err)
	_, err = tokenizer.Token(-1)
	wantError(t, err)

	path := filepath.Join(t.TempDir(), "tokenizer.model")
	ok(t, tokenizer.Save(path))
	data := must[[]byte](t)(os.ReadFile(path))
	for _, same := range []*trafo.Tokenizer{must[*trafo.Tokenizer](t)(trafo.LoadTokenizer(path)), must[*trafo.Tokenizer](t)(trafo.ParseTokenizer(data))} {
		if !slices.Equal(must[[]int32](t)(same.Encode(text)), ids) {
			t.Error("loaded, it encodes otherwise")
		}
	}
	_, err = trafo.ParseTokenizer(data[:len(data)/2])
	wantError(t, err)
	_, err = trafo.ParseTokenizer(nil)
	wantError(t, err)
	_, err = trafo.LoadTokenizer(path + ".none")
	wantError(t, err)
	wantError(t, tokenizer.Save(filepath.Join(path, "below a file")))

	bpe := newTokenizer(t, func(o *trafo.TokenizerOptions) { o.BPE, o.ByteFallback, o.Vocabulary = true, true, 320 })
	const strange = "eins Ω"
	if got := must[string](t)(bpe.Decode(must[[]int32](t)(bpe.Encode(strange)))); got != strange {
		t.Errorf("bytes of unknown characters became %q", got)
	}
	_, err = trafo.TrainTokenizer(t.Context(), nil, nil)
	wantError(t, err)
}

// The ids of ByT5, in a directory that says which vocabulary it has.
func TestByteTokenizer(t *testing.T) {
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), nil, &trafo.TokenizerOptions{Kind: "byte"}))
	defer tokenizer.Close()
	ids := must[[]int32](t)(tokenizer.Encode("Life ü"))
	if !slices.Equal(ids, []int32{79, 108, 105, 104, 35, 198, 191}) {
		t.Error(ids)
	}
	if text := must[string](t)(tokenizer.Decode(append(ids, 1, 198))); text != "Life ü" {
		t.Error(text)
	}
	special := must[trafo.SpecialTokens](t)(tokenizer.Special())
	if special != (trafo.SpecialTokens{Unk: 2, BOS: -1, EOS: 1, Pad: 0}) {
		t.Error(special)
	}
	folder := t.TempDir()
	_, err := trafo.FindVocabulary(folder)
	wantError(t, err, trafo.ErrNotFound)
	ok(t, tokenizer.Save(folder))
	if path := must[string](t)(trafo.FindVocabulary(folder)); path != filepath.Join(folder, "vocab.byte") {
		t.Error(path)
	}
	again := must[*trafo.Tokenizer](t)(trafo.LoadTokenizer(folder))
	defer again.Close()
	if kind := must[string](t)(again.Kind()); kind != "byte" {
		t.Error(kind)
	}
	_, err = trafo.TrainTokenizer(t.Context(), []string{"a"}, &trafo.TokenizerOptions{Kind: "word"})
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestTokenizersAreSharedByGoroutines(t *testing.T) {
	tokenizer := newTokenizer(t, nil)
	var group sync.WaitGroup
	for range 8 {
		spawn(&group, func() {
			for range 200 {
				ids, err := tokenizer.Encode("eins zwei")
				if err != nil {
					wantError(t, err, trafo.ErrClosed)
					return
				}
				if len(ids) == 0 {
					t.Error("no ids")
				}
			}
		})
	}
	spawn(&group, func() { ok(t, tokenizer.Close()) })
	group.Wait()
	_, err := tokenizer.Encode("eins")
	wantError(t, err, trafo.ErrClosed)
}

func TestCorpus(t *testing.T) {
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus([]string{"ä b", "", "e"}, []string{"c", "d", "日本"}))
	defer corpus.Close()
	if info := must[trafo.CorpusInfo](t)(corpus.Info()); info != (trafo.CorpusInfo{Lines: 3, Pairs: 2, DroppedEmpty: 1, Texts: 2}) {
		t.Errorf("%+v", info)
	}
	source, target, err := corpus.Pair(1)
	if err != nil || source != "e" || target != "日本" {
		t.Error(source, target, err)
	}
	_, _, err = corpus.Pair(2)
	wantError(t, err)
	_, err = trafo.NewCorpus([]string{"a"}, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.NewCorpus(nil, nil)
	wantError(t, err)
	for _, bad := range []string{"\xff", "a\x00b"} {
		_, err = trafo.NewCorpus([]string{"a", bad}, []string{"a", "b"})
		wantError(t, err)
		if !strings.Contains(err.Error(), "2") {
			t.Errorf("%v does not name line 2", err)
		}
	}

	directory := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(directory, name)
		ok(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	two := write("two", "a\nb\n")
	if info := must[trafo.CorpusInfo](t)(must[*trafo.Corpus](t)(trafo.LoadCorpus(t.Context(), two, two)).Info()); info.Pairs != 2 {
		t.Errorf("%+v", info)
	}
	_, err = trafo.LoadCorpus(t.Context(), two, write("three", "a\nb\nc\n"))
	wantError(t, err)
	if !strings.Contains(err.Error(), "three") || !strings.Contains(err.Error(), "3") {
		t.Errorf("%v names neither file nor count", err)
	}
	tsv := must[*trafo.Corpus](t)(trafo.LoadCorpusTSV(t.Context(), write("pairs", "a\tb\nc\td\n")))
	if source, target, err := tsv.Pair(1); err != nil || source != "c" || target != "d" {
		t.Error(source, target, err)
	}
	_, err = trafo.LoadCorpusTSV(t.Context(), filepath.Join(directory, "none"))
	wantError(t, err)
	ok(t, corpus.Close())
	_, err = corpus.Info()
	wantError(t, err, trafo.ErrClosed)
	_, err = corpus.TrainTokenizer(t.Context(), nil)
	wantError(t, err, trafo.ErrClosed)
}

func TestCorporaOnDisk(t *testing.T) {
	directory := t.TempDir()
	write := func(name, word string) string {
		var text strings.Builder
		for i := range 40 {
			fmt.Fprintf(&text, "%s %d\n", word, i)
		}
		path := filepath.Join(directory, name)
		ok(t, os.WriteFile(path, []byte(text.String()), 0o600))
		return path
	}
	source, target := write("a.de", "Haus"), write("a.en", "house")
	options := trafo.DefaultCorpusOptions()
	if options.MemoryBytes != trafo.Some(int64(256<<20)) {
		t.Error(options)
	}
	options.MemoryBytes = trafo.Some(int64(0))
	options.UnpackDirectory = filepath.Join(directory, "unpacked")
	corpus := must[*trafo.Corpus](t)(trafo.OpenCorpus(t.Context(), []string{source, target}, &options))
	if s, e, err := corpus.Pair(39); err != nil || s != "Haus 39" || e != "house 39" {
		t.Error(s, e, err)
	}
	rest, held, err := corpus.HoldOut(4)
	ok(t, err)
	mix := must[*trafo.Corpus](t)(trafo.MixCorpora([]trafo.WeightedCorpus{{rest, 0.5}, {held, 2}}))
	ok(t, rest.Close())
	ok(t, held.Close())
	if info := must[trafo.CorpusInfo](t)(mix.Info()); info.Pairs != 40 {
		t.Errorf("%+v", info)
	}
	text := must[*trafo.Corpus](t)(trafo.OpenCorpus(t.Context(), []string{target}, &trafo.CorpusOptions{Monolingual: true}))
	if s, e, err := text.Pair(0); err != nil || s != "" || e != "house 0" {
		t.Error(s, e, err)
	}
	_, err = trafo.MixCorpora([]trafo.WeightedCorpus{{corpus, 1}, {text, 1}})
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.MixCorpora([]trafo.WeightedCorpus{{held, 1}})
	wantError(t, err, trafo.ErrClosed)
	_, err = trafo.OpenCorpus(t.Context(), nil, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, _, err = corpus.HoldOut(0)
	wantError(t, err, trafo.ErrInvalidArgument)

	o := trafo.DefaultTrainerOptions()
	if o.MaxLengthRatio != 0 || o.DropIdentical || o.MaxiBatch != 0 || o.SourceAlpha != 0 || o.TargetAlpha != 0 {
		t.Errorf("%+v", o)
	}
}

func TestJSONLines(t *testing.T) {
	directory := t.TempDir()
	open := func(name, text string, format trafo.CorpusFormat) (*trafo.Corpus, error) {
		path := filepath.Join(directory, name)
		ok(t, os.WriteFile(path, []byte(text), 0o600))
		return trafo.OpenCorpus(t.Context(), []string{path}, &trafo.CorpusOptions{Monolingual: true, Format: format})
	}
	const record = `{"prompt": "ein\nBär", "completion": "a bear"}`
	for _, format := range []trafo.CorpusFormat{trafo.CorpusFormatAuto, trafo.CorpusFormatJSONLines} {
		pairs := must[*trafo.Corpus](t)(open("pairs.txt", "\n"+record+"\n", format))
		defer pairs.Close()
		info := must[trafo.CorpusInfo](t)(pairs.Info())
		if info.Lines != 2 || info.Pairs != 1 || info.Texts != 2 || !info.JSONLines {
			t.Errorf("%+v", info)
		}
		if s, e, err := pairs.Pair(0); err != nil || s != "ein\nBär" || e != "a bear" {
			t.Error(s, e, err)
		}
	}
	text := must[*trafo.Corpus](t)(open("pairs.txt", record+"\n", trafo.CorpusFormatText))
	defer text.Close()
	if info := must[trafo.CorpusInfo](t)(text.Info()); info.Texts != 1 || info.JSONLines {
		t.Errorf("%+v", info)
	}
	preferences := must[*trafo.Corpus](t)(open("p.jsonl", `{"prompt": "a", "chosen": "b", "rejected": "c"}`, trafo.CorpusFormatAuto))
	defer preferences.Close()
	if answer := must[string](t)(preferences.Rejected(0)); answer != "c" {
		t.Error(answer)
	}
	_, err := open("bad.jsonl", record+"\n{}\n", trafo.CorpusFormatAuto)
	wantError(t, err, trafo.ErrCorruptFile)
	if !strings.Contains(err.Error(), "bad.jsonl:2: there is no prompt") {
		t.Error(err)
	}
	_, err = open("bad.jsonl", record, trafo.CorpusFormat(8))
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestFilesOfTokenIDs(t *testing.T) {
	directory := t.TempDir()
	lines := []string{"a b c d e", "b c", "d e f a b c"}
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), lines, &trafo.TokenizerOptions{Vocabulary: 40, SoftLimit: true}))
	defer tokenizer.Close()
	file := filepath.Join(directory, "text.txt")
	ok(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	text := must[*trafo.Corpus](t)(trafo.OpenCorpus(t.Context(), []string{file}, &trafo.CorpusOptions{Monolingual: true}))
	defer text.Close()
	for _, format := range []trafo.CorpusFormat{trafo.CorpusFormatLLMC, trafo.CorpusFormatNanoGPT, trafo.CorpusFormatMegatron} {
		path := filepath.Join(directory, format.String()+".bin")
		documents, tokens, err := text.WriteIDs(t.Context(), tokenizer, format, path)
		ok(t, err)
		options := trafo.CorpusOptions{Format: format}
		if format != trafo.CorpusFormatMegatron {
			options.DocumentEnd = trafo.Some(int64(must[trafo.SpecialTokens](t)(tokenizer.Special()).EOS))
		}
		ids := must[*trafo.Corpus](t)(trafo.OpenCorpus(t.Context(), []string{path}, &options))
		defer ids.Close()
		if info := must[trafo.CorpusInfo](t)(ids.Info()); info.Pairs != 3 || !info.IDs || info.Texts != 1 || documents != 3 || tokens < 6 {
			t.Errorf("%v: %+v, %d documents, %d tokens", format, info, documents, tokens)
		}
		_, _, err = ids.WriteIDs(t.Context(), tokenizer, format, path)
		wantError(t, err, trafo.ErrInvalidArgument)
	}
	_, _, err := text.WriteIDs(t.Context(), tokenizer, trafo.CorpusFormatText, filepath.Join(directory, "no.bin"))
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, os.WriteFile(file, []byte("odd"), 0o600))
	_, err = trafo.OpenCorpus(t.Context(), []string{file}, &trafo.CorpusOptions{Format: trafo.CorpusFormatNanoGPT})
	wantError(t, err, trafo.ErrCorruptFile)
}

func TestMetrics(t *testing.T) {
	lines := []string{"the cat sat on the mat .", "Ünïcode is here today ."}
	score, signature, err := trafo.BLEU(lines, lines, false)
	ok(t, err)
	wantValues(t, "BLEU", []float64{score}, []float64{100})
	if !strings.Contains(signature, "tok:13a") {
		t.Error(signature)
	}
	score, signature, err = trafo.ChrF(lines, lines)
	ok(t, err)
	wantValues(t, "chrF", []float64{score}, []float64{100})
	if !strings.Contains(signature, "nc:6") {
		t.Error(signature)
	}
	upper := []string{strings.ToUpper(lines[0]), strings.ToUpper(lines[1])}
	cased, _, err := trafo.BLEU(upper, lines, false)
	ok(t, err)
	lower, _, err := trafo.BLEU(upper, lines, true)
	ok(t, err)
	if cased > 50 || lower < 99.9 {
		t.Error(cased, lower)
	}
	_, _, err = trafo.BLEU(lines, lines[:1], false)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, _, err = trafo.ChrF(nil, nil)
	wantError(t, err)
}

func TestNormalFormAndSymbolsOfATokenizer(t *testing.T) {
	lines := []string{"Ein <b>Wort</b>, zwei <b>Worte</b>", "ein WORT und noch ein Wort"}
	options := trafo.TokenizerOptions{
		Vocabulary: 60, SoftLimit: true, UserSymbols: []string{"<b>", "</b>"}, Normalization: trafo.NormalizationNFKCCF,
	}
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), lines, &options))
	defer tokenizer.Close()
	ids := must[[]int32](t)(tokenizer.Encode("<b>WORT</b>"))
	if got := must[string](t)(tokenizer.Decode(ids)); got != "<b>wort</b>" {
		t.Error(got)
	}
	if token := must[string](t)(tokenizer.Token(ids[len(ids)-1])); token != "</b>" {
		t.Error(token)
	}
	options.UserSymbols = []string{"two words"}
	_, err := trafo.TrainTokenizer(t.Context(), lines, &options)
	wantError(t, err)
	options.UserSymbols, options.Normalization = nil, 5
	_, err = trafo.TrainTokenizer(t.Context(), lines, &options)
	wantError(t, err)
}
