package trafo

// #include "trafo.h"
import "C"

import "context"

// ExportFormat is a form of model directories of other programs.
type ExportFormat int32

// The formats.
const (
	HFMarian    ExportFormat = C.TRAFO_EXPORT_HF_MARIAN   // transformers' MarianMTModel: post-norm encoder-decoder, tied embeddings
	HFGPT2      ExportFormat = C.TRAFO_EXPORT_HF_GPT2     // transformers' GPT2LMHeadModel: pre-norm decoder-only
	CTranslate2 ExportFormat = C.TRAFO_EXPORT_CTRANSLATE2 // every architecture
	HFLlama     ExportFormat = C.TRAFO_EXPORT_HF_LLAMA    // transformers' LlamaForCausalLM: pre-norm decoder-only, RMS norm, rotary positions, SwiGLU
	ONNX        ExportFormat = C.TRAFO_EXPORT_ONNX        // ONNX graphs of opset 17 and their weights: every model
	GGUF        ExportFormat = C.TRAFO_EXPORT_GGUF        // llama.cpp's file of such a model; a BPE vocabulary with byte fallback
	// HFCompressed is compressed-tensors, for transformers and vLLM: such a model in int8 or int4.
	HFCompressed ExportFormat = C.TRAFO_EXPORT_HF_COMPRESSED
	// HFPegasus is transformers' PegasusForConditionalGeneration: pre-norm encoder-decoder, tied embeddings.
	HFPegasus ExportFormat = C.TRAFO_EXPORT_HF_PEGASUS
)

// ExportWeights is how an export stores matrices.
type ExportWeights int32

// The types of weights.
const (
	WeightsByFormat ExportWeights = C.TRAFO_EXPORT_WEIGHTS_BY_FORMAT // float16 in GGUF, int8 in compressed-tensors, float32 in the others
	WeightsFloat32  ExportWeights = C.TRAFO_EXPORT_WEIGHTS_FLOAT32
	WeightsFloat16  ExportWeights = C.TRAFO_EXPORT_WEIGHTS_FLOAT16  // CTranslate2, GGUF
	WeightsBFloat16 ExportWeights = C.TRAFO_EXPORT_WEIGHTS_BFLOAT16 // CTranslate2
	WeightsInt16    ExportWeights = C.TRAFO_EXPORT_WEIGHTS_INT16    // CTranslate2: one scale for a matrix
	WeightsInt8     ExportWeights = C.TRAFO_EXPORT_WEIGHTS_INT8     // CTranslate2, ONNX (7 bits), compressed-tensors: a scale for each output
	WeightsQ8_0     ExportWeights = C.TRAFO_EXPORT_WEIGHTS_Q8_0     // GGUF: 8 bits, a scale for each block of 32
	WeightsQ4_0     ExportWeights = C.TRAFO_EXPORT_WEIGHTS_Q4_0     // GGUF: 4 bits, a scale for each block of 32
	WeightsInt4     ExportWeights = C.TRAFO_EXPORT_WEIGHTS_INT4     // compressed-tensors: 4 bits, a scale for each 32 values of a row
)

// Export writes a model directory, which must not exist or be empty, for another program. It
// appears after it was read back; difference is how far the logits of what was read are from the
// model's. ErrUnsupported names the setting that the format cannot express.
func (m *Model) Export(tokenizer *Tokenizer, format ExportFormat, weights ExportWeights, directory string) (difference float64, err error) {
	const origin = "Model.Export"
	var out C.double
	err = m.within(context.Background(), origin, func() error {
		t, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		data, length := chars(directory)
		return m.c.core.finish(C.trafo_model_export(m.ptr, t, C.int32_t(format), C.int32_t(weights), data, length, &out))
	})
	return float64(out), err
}

// Imported is what ImportModel found.
type Imported struct {
	Model     *Model     // float32
	Tokenizer *Tokenizer // nil if the directory has no SentencePiece model
	Note      string     // what the user should know; may be empty
}

// ImportModel reads a MarianMT, Pegasus, GPT-2 or Llama directory of transformers, with model.safetensors.
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
