package trafo

// #include "trafo.h"
import "C"

import "context"

// Export writes a model directory, which must not exist or be empty, for another program. It
// appears after it was read back; difference is how far the logits of what was read are from the
// model's. tokenizer may be nil for the formats HFGPT2, HFLlama and HFCompressed: the directory then has no
// tokenizer, and the special tokens that the model knows. ErrUnsupported names the setting that the format cannot
// express.
func (m *Model) Export(tokenizer *Tokenizer, format ExportFormat, weights ExportWeights, directory string) (difference float64, err error) {
	const origin = "Model.Export"
	var out C.double
	err = m.within(context.Background(), origin, func() error {
		t, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		data, length := chars(directory)
		return m.c.core.finish(C.trafo_model_export(m.ptr, t, C.int32_t(format), C.int32_t(weights), data, length, &out))
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
// lists the families.
func (c *Context) ImportModel(directory string) (imported Imported, err error) {
	var tokenizer *C.trafo_tokenizer
	var note *C.char
	imported.Model, err = c.model("Context.ImportModel", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		data, length := chars(directory)
		return C.trafo_model_import(ptr, data, length, out, &tokenizer, &note)
	})
	imported.Note = takeCString(note)
	if err == nil && tokenizer != nil {
		imported.Tokenizer, err = newTokenizer(tokenizer, nil)
	}
	return imported, err
}
