package trafo

// #include "trafo.h"
import "C"

import "context"

// Export writes a model directory, which must not exist or be empty, for another program. It
// appears after it was read back; difference is how far the logits of what was read are from the
// model's. tokenizer may be nil for the formats HFGPT2, HFLlama and HFCompressed: the directory then has no
// tokenizer, and the special tokens that the model knows. ErrUnsupported names the setting that the format cannot
// express. ErrCancelled: ctx has ended, and nothing is left of the directory.
func (m *Model) Export(ctx context.Context, tokenizer *Tokenizer, format ExportFormat, weights ExportWeights, directory string) (difference float64, err error) {
	const origin = "Model.Export"
	var out C.double
	err = m.within(ctx, origin, func() error {
		t, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		data, length := chars(directory)
		return m.c.core.cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
			return C.trafo_model_export(m.ptr, t, C.int32_t(format), C.int32_t(weights), data, length, cancel, &out)
		})
	})
	return float64(out), err
}

// Imported is what ImportModel found.
type Imported struct {
	Model     *Model     // float32; it knows the special tokens of the directory
	Tokenizer *Tokenizer // nil if the directory has no tokenizer that can be imported
	Note      string     // what the user should know; may be empty
}

// ImportModel reads a directory of Hugging Face Transformers with safetensors weights. docs/guide/import.md
// lists the families. ErrCancelled: ctx has ended.
func (c *Context) ImportModel(ctx context.Context, directory string) (imported Imported, err error) {
	var tokenizer *C.trafo_tokenizer
	var note *C.char
	err = c.within(ctx, "Context.ImportModel", func(ptr *C.trafo_context) error {
		data, length := chars(directory)
		var out *C.trafo_model
		if err := c.core.cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
			return C.trafo_model_import(ptr, data, length, cancel, &out, &tokenizer, &note)
		}); err != nil {
			return err
		}
		imported.Model = c.adoptModel(out)
		return nil
	})
	imported.Note = takeCString(note)
	if err == nil && tokenizer != nil {
		imported.Tokenizer, err = newTokenizer(tokenizer, nil)
	}
	return imported, err
}
