package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// Corpus is pairs of sentences. Goroutines may use it at once.
type Corpus struct {
	shared  shared[*C.trafo_corpus]
	sources []*pairBody // the functions that its pairs come from, if any
}

func newCorpus(ptr *C.trafo_corpus, e *C.trafo_error, sources ...*pairBody) (*Corpus, error) {
	if err := check(e); err != nil {
		return nil, err
	}
	c := &Corpus{sources: sources}
	c.shared.ptr = ptr
	c.shared.cleanup = runtime.AddCleanup(c, func(ptr *C.trafo_corpus) { C.trafo_corpus_free(ptr) }, ptr)
	return c, nil
}

// NewCorpus pairs source[i] with target[i]. The lines are checked like lines of files.
func NewCorpus(source, target []string) (*Corpus, error) {
	if len(source) != len(target) {
		return nil, refuse("NewCorpus", "%d source lines, %d target lines: a corpus is pairs", len(source), len(target))
	}
	sources, freeSources := views(source)
	defer freeSources()
	targets, freeTargets := views(target)
	defer freeTargets()
	var out *C.trafo_corpus
	e := C.trafo_corpus_new(sources, targets, C.size_t(len(source)), &out)
	return newCorpus(out, e)
}

// NewPreferenceCorpus makes preference pairs, for ObjectiveDPO, ObjectiveORPO and ObjectiveKTO: answers chosen[i] and rejected[i] to prompts[i].
// The lines are checked like lines of files.
func NewPreferenceCorpus(prompts, chosen, rejected []string) (*Corpus, error) {
	if len(prompts) != len(chosen) || len(prompts) != len(rejected) {
		return nil, refuse("NewPreferenceCorpus", "%d prompts, %d chosen answers, %d rejected ones: a prompt has one of each",
			len(prompts), len(chosen), len(rejected))
	}
	p, freePrompts := views(prompts)
	defer freePrompts()
	c, freeChosen := views(chosen)
	defer freeChosen()
	r, freeRejected := views(rejected)
	defer freeRejected()
	var out *C.trafo_corpus
	e := C.trafo_corpus_new_preferences(p, c, r, C.size_t(len(prompts)), &out)
	return newCorpus(out, e)
}

// NewLabelledCorpus makes labelled answers, for ObjectiveKTO: answers[i] to prompts[i] is desirable if desirable[i]. In the
// corpus they are preference pairs with one answer: the other one is empty. The lines are checked like lines of files.
func NewLabelledCorpus(prompts, answers []string, desirable []bool) (*Corpus, error) {
	if len(prompts) != len(answers) || len(prompts) != len(desirable) {
		return nil, refuse("NewLabelledCorpus", "%d prompts, %d answers, %d labels: a prompt has one of each",
			len(prompts), len(answers), len(desirable))
	}
	p, freePrompts := views(prompts)
	defer freePrompts()
	a, freeAnswers := views(answers)
	defer freeAnswers()
	labels := make([]C.int32_t, len(desirable))
	for i, good := range desirable {
		labels[i] = cBool(good)
	}
	var out *C.trafo_corpus
	e := C.trafo_corpus_new_labelled(p, a, unsafe.SliceData(labels), C.size_t(len(prompts)), &out)
	return newCorpus(out, e)
}

// LoadCorpus reads two files of equal line count, plain or gzip. Errors name file, line and reason. ErrCancelled:
// ctx has ended.
func LoadCorpus(ctx context.Context, sourcePath, targetPath string) (*Corpus, error) {
	source, sourceLength := chars(sourcePath)
	target, targetLength := chars(targetPath)
	return readCorpus(ctx, "LoadCorpus", func(cancel *C.trafo_cancel, out **C.trafo_corpus) *C.trafo_error {
		return C.trafo_corpus_load(source, sourceLength, target, targetLength, cancel, out)
	})
}

// readCorpus makes a corpus with a call that ctx cancels.
func readCorpus(ctx context.Context, origin string, f func(cancel *C.trafo_cancel, out **C.trafo_corpus) *C.trafo_error) (*Corpus, error) {
	var out *C.trafo_corpus
	if err := cancellableCall(ctx, origin, func(cancel *C.trafo_cancel) *C.trafo_error { return f(cancel, &out) }); err != nil {
		return nil, err
	}
	return newCorpus(out, nil)
}

// LoadCorpusTSV reads one file of source, tab, target, plain or gzip; "-" is standard input. ErrCancelled: ctx has
// ended.
func LoadCorpusTSV(ctx context.Context, path string) (*Corpus, error) {
	data, length := chars(path)
	return readCorpus(ctx, "LoadCorpusTSV", func(cancel *C.trafo_cancel, out **C.trafo_corpus) *C.trafo_error {
		return C.trafo_corpus_load_tsv(data, length, cancel, out)
	})
}

func (c *Corpus) hold(origin string) (*C.trafo_corpus, error) {
	if c == nil {
		return nil, closed(origin, "the corpus")
	}
	return c.shared.hold(origin, "the corpus")
}

func (c *Corpus) in(origin string, f func(ptr *C.trafo_corpus) *C.trafo_error) error {
	ptr, err := c.hold(origin)
	if err != nil {
		return err
	}
	defer c.shared.release()
	return told(c.sources, check(f(ptr)))
}

// Info counts the corpus.
func (c *Corpus) Info() (CorpusInfo, error) {
	var info C.trafo_corpus_info
	err := c.in("Corpus.Info", func(ptr *C.trafo_corpus) *C.trafo_error {
		return C.trafo_corpus_get_info(ptr, &info)
	})
	return newCorpusInfo(&info), err
}

// Pair gives one pair.
func (c *Corpus) Pair(index int64) (source, target string, err error) {
	err = c.in("Corpus.Pair", func(ptr *C.trafo_corpus) *C.trafo_error {
		var s, t C.trafo_string_view
		if e := C.trafo_corpus_get_pair(ptr, C.int64_t(index), &s, &t); e != nil {
			return e
		}
		source, target = viewed(s), viewed(t)
		return nil
	})
	return source, target, err
}

// Rejected gives the rejected answer of a preference pair, whose prompt and chosen answer Pair gives.
// ErrInvalidArgument: the corpus has no preference pairs.
func (c *Corpus) Rejected(index int64) (rejected string, err error) {
	err = c.in("Corpus.Rejected", func(ptr *C.trafo_corpus) *C.trafo_error {
		var view C.trafo_string_view
		if e := C.trafo_corpus_get_rejected(ptr, C.int64_t(index), &view); e != nil {
			return e
		}
		rejected = viewed(view)
		return nil
	})
	return rejected, err
}

// Line gives the line of a pair in its file, counted from 0, through all files one after the other where the
// corpus is a mix. Lines with an empty side are no pairs. Of held-out pairs and of pairs from a function it is
// the index.
func (c *Corpus) Line(index int64) (int64, error) {
	var line C.int64_t
	err := c.in("Corpus.Line", func(ptr *C.trafo_corpus) *C.trafo_error {
		return C.trafo_corpus_get_line(ptr, C.int64_t(index), &line)
	})
	return int64(line), err
}

// TrainTokenizer trains one tokenizer on both sides, as [TrainTokenizer] does. options may be nil.
func (c *Corpus) TrainTokenizer(ctx context.Context, options *TokenizerOptions) (*Tokenizer, error) {
	const origin = "Corpus.TrainTokenizer"
	ptr, err := c.hold(origin)
	if err != nil {
		return nil, err
	}
	defer c.shared.release()
	o, free := options.c()
	defer free()
	var out *C.trafo_tokenizer
	if err := cancellableCall(ctx, origin, func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_corpus_train_tokenizer(ptr, o, cancel, &out)
	}); err != nil {
		return nil, told(c.sources, err)
	}
	return newTokenizer(out, nil)
}

// Close frees the corpus, once no call uses it any more; it may be called more than once.
func (c *Corpus) Close() error {
	if c != nil {
		c.shared.close(func(ptr *C.trafo_corpus) { C.trafo_corpus_free(ptr) })
	}
	return nil
}
