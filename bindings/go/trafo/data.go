package trafo

// #include "trafo.h"
import "C"

import "context"

// CorpusOptions says how OpenCorpus reads files. Fields that are left out or zero have their defaults.
type CorpusOptions struct {
	// Files with more text than this stay on disk, at 16 bytes of memory a pair; never changes what is
	// trained. 0: every file stays on disk. Default 256 MiB.
	MemoryBytes Optional[int64] `json:"memory_bytes,omitzero"`
	// Where gzip files and standard input that stay on disk are unpacked; default "", the system's
	// directory for temporary files.
	UnpackDirectory string `json:"unpack_directory,omitzero"`
	Monolingual     bool   `json:"monolingual,omitzero"` // one file of text without a source, for a decoder-lm; default false
	// Preferences, for ObjectiveDPO, ObjectiveORPO or ObjectiveKTO: three files of prompts, chosen and rejected answers, or one file
	// of JSON lines or of TSV with three columns; default false.
	Preferences bool `json:"preferences,omitzero"`
	// The format of the files; default CorpusFormatAuto.
	Format CorpusFormat `json:"format,omitzero"`
	// Of files of llm.c and nanoGPT: the token that ends a document, such as 50256 of GPT-2. Without it a
	// file is one document.
	DocumentEnd Optional[int64] `json:"document_end,omitzero"`
}

// DefaultCorpusOptions gives the defaults.
func DefaultCorpusOptions() CorpusOptions {
	var o C.trafo_corpus_options
	mustInit(C.trafo_corpus_options_init(&o, C.sizeof_trafo_corpus_options))
	return CorpusOptions{MemoryBytes: Some(int64(o.memory_bytes))}
}

// OpenCorpus reads two files of equal line count; or one file of JSON lines or TSV, or one of text or of
// token ids (of llm.c, nanoGPT or Megatron) if the options say so. Files that stay on disk must not change while they are trained on. options may be nil.
// ErrCancelled: ctx has ended.
func OpenCorpus(ctx context.Context, paths []string, options *CorpusOptions) (*Corpus, error) {
	var o CorpusOptions
	if options != nil {
		o = *options
	}
	// The directory goes with the paths, because all of them have to lie in C memory.
	all, free := views(append(append([]string{}, paths...), o.UnpackDirectory))
	defer free()
	var c C.trafo_corpus_options
	mustInit(C.trafo_corpus_options_init(&c, C.sizeof_trafo_corpus_options))
	if bytes, given := o.MemoryBytes.Get(); given {
		c.memory_bytes = C.int64_t(bytes)
	}
	c.monolingual = cBool(o.Monolingual)
	c.preferences = cBool(o.Preferences)
	c.format = C.int32_t(o.Format)
	if end, given := o.DocumentEnd.Get(); given {
		c.document_end = C.int64_t(end)
	}
	c.unpack_directory = viewAt(all, len(paths))
	return readCorpus(ctx, "OpenCorpus", func(cancel *C.trafo_cancel, out **C.trafo_corpus) *C.trafo_error {
		return C.trafo_corpus_open(all, C.size_t(len(paths)), &c, cancel, out)
	})
}

// WriteIDs writes text without a source as a file of token ids that [OpenCorpus] reads, in the format
// CorpusFormatLLMC, CorpusFormatNanoGPT or CorpusFormatMegatron, whose path is NAME.bin and which also has NAME.idx:
// the ids of each text and the tokenizer's end, the DocumentEnd to read it with. It gives the numbers of documents
// and of tokens that it has written. ErrInvalidArgument: the corpus has no text, pairs, preferences or conversations;
// another format. ErrUnsupported: the vocabulary is too large for nanoGPT (65,536 tokens), the text for llm.c (2^31 -
// 1). After an error, and after the end of ctx, which is ErrCancelled, the path has what it had before.
func (c *Corpus) WriteIDs(ctx context.Context, tokenizer *Tokenizer, format CorpusFormat, path string) (documents, tokens int64, err error) {
	const origin = "Corpus.WriteIDs"
	ptr, err := c.hold(origin)
	if err != nil {
		return 0, 0, err
	}
	defer c.shared.release()
	subwords, err := tokenizer.hold(origin)
	if err != nil {
		return 0, 0, err
	}
	defer tokenizer.shared.release()
	data, length := chars(path)
	var count, size C.int64_t
	err = cancellableCall(ctx, origin, func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_corpus_write_ids(ptr, subwords, C.int32_t(format), data, length, cancel, &count, &size)
	})
	return int64(count), int64(size), told(c.sources, err)
}

// WeightedCorpus is a part of a mix: an epoch has every pair of it Weight times; 0.25 is a quarter of
// them, another one each epoch.
type WeightedCorpus struct {
	Corpus *Corpus
	Weight float64
}

// MixCorpora makes one corpus of several, which may be closed.
func MixCorpora(parts []WeightedCorpus) (*Corpus, error) {
	handles, weights, free := weightedArrays(len(parts))
	defer free()
	var sources []*pairBody
	for i, part := range parts {
		ptr, err := part.Corpus.hold("MixCorpora")
		if err != nil {
			return nil, err
		}
		defer part.Corpus.shared.release()
		sources = append(sources, part.Corpus.sources...)
		handles[i], weights[i] = ptr, C.double(part.Weight)
	}
	var out *C.trafo_corpus
	e := C.trafo_corpus_mix(first(handles), first(weights), C.size_t(len(parts)), &out)
	return newCorpus(out, e, sources...)
}

// HoldOut takes count pairs out, chosen by a hash of their text, with all copies of them.
func (c *Corpus) HoldOut(count int64) (rest, held *Corpus, err error) {
	ptr, err := c.hold("Corpus.HoldOut")
	if err != nil {
		return nil, nil, err
	}
	defer c.shared.release()
	var restPtr, heldPtr *C.trafo_corpus
	e := C.trafo_corpus_hold_out(ptr, C.int64_t(count), &restPtr, &heldPtr)
	if rest, err = newCorpus(restPtr, e, c.sources...); err != nil {
		return nil, nil, told(c.sources, err)
	}
	held, err = newCorpus(heldPtr, nil, c.sources...)
	return rest, held, err
}
