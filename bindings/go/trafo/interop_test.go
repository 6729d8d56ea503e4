package trafo_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestExportAndImport(t *testing.T) {
	c := newContext(t)
	source, _ := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(source, &options))
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	pre := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer pre.Close()
	directory := filepath.Join(t.TempDir(), "marian")
	_, err := pre.Export(tokenizer, trafo.HFMarian, trafo.WeightsByFormat, directory)
	wantError(t, err, trafo.ErrUnsupported)

	config.PreNorm = false
	post := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer post.Close()
	if difference := must[float64](t)(post.Export(tokenizer, trafo.HFMarian, trafo.WeightsByFormat, directory)); difference != 0 {
		t.Error(difference)
	}
	_, err = post.Export(tokenizer, trafo.CTranslate2, trafo.WeightsInt8, directory)
	wantError(t, err, trafo.ErrInvalidArgument) // not empty

	imported := must[trafo.Imported](t)(c.ImportModel(directory))
	defer imported.Model.Close()
	defer imported.Tokenizer.Close()
	beam := trafo.DefaultTranslateOptions()
	beam.Beam, beam.MaxLength = 2, 8
	ours := must[*trafo.Translations](t)(post.Translate(t.Context(), tokenizer, source[:3], &beam))
	theirs := must[*trafo.Translations](t)(imported.Model.Translate(t.Context(), imported.Tokenizer, source[:3], &beam))
	if !slices.Equal(ours.Best(), theirs.Best()) || imported.Note != "" {
		t.Error(ours.Best(), theirs.Best(), imported.Note)
	}
	_, err = c.ImportModel(t.TempDir())
	wantError(t, err, trafo.ErrNotFound)
}
