// Package trafo trains and runs transformers inside a Go program: it is a binding to the C ABI of
// the Trafo engine and needs cgo and a C compiler.
//
// There are two levels. A [Context] makes tensors, records ops on them and computes gradients, for
// custom networks. A [Model], a [Tokenizer] and a [Trainer] train a translation model from a
// [Corpus] in a screen of code.
//
// # Linking
//
// On Linux, x86-64, a prebuilt engine is linked into the program, from a module that this package imports. In a
// checkout of the repository, that module has the engine of build/release; make it once, with one command in the
// root:
//
//	scripts/build.sh
//
// The error "there is no libtrafo.a" means that this has not been done. The Go tool does not see changes in that
// file: after rebuilding the engine, build with -a.
//
// With the build tag trafo_pkgconfig an installed engine is linked instead, the one that pkg-config calls trafo.
// With trafo_system it is -ltrafo, from the folder that CGO_LDFLAGS="-L..." names.
//
// # Closing
//
// A value with a Close method holds memory that the garbage collector does not see: close it.
// Closing twice is fine; using it afterwards gives an error with [ErrClosed] in its chain. Objects
// that are forgotten are freed some time after they became unreachable: the bytes of tensors make the collector
// run. [Context.Scope] closes the intermediate tensors of a piece of work, [Context.Close] all of its tensors.
//
// # Options
//
// Options are structs. A field that is left out has its default: &TranslateOptions{Beam: 2} is a beam of 2 with
// defaults beside it. Where zero or false is another choice than the default, a field is [Optional], and [Some] gives
// it a value: TrainerOptions{LabelSmoothing: Some(0.0)} trains without smoothing, KeepBest: Some(false) keeps no
// best checkpoint. The zero of any other field is the default or no value at all, so nothing hides in a struct: it
// means the same in a literal, after a copy and after JSON. The functions that give defaults, as
// [DefaultTrainerOptions], and presets fill every field.
//
// In JSON, options have the names of the C ABI (docs/reference/generated/options.md), as "label_smoothing", and
// enums, metrics and periods are text: {"schedule": "inv-sqrt", "valid_freq": "500u", "label_smoothing": 0}. What
// has its default may be missing. Events, metrics and results are encoded like that, too; what is not known is
// missing.
//
// # Errors
//
// Errors are of type [*Error]. Each wraps its [Code], so that
// errors.Is(err, trafo.ErrShapeMismatch) tells the reason.
//
// # Goroutines
//
// Any object may be used by any goroutine. Everything made from one Context runs one call at a time:
// a goroutine waits while another trains. It is refused with [ErrInvalidArgument] when a callback has not returned
// or used the engine for ten seconds, because a callback that waits for that goroutine never would. The settings of a
// Context (recording, scopes) belong to all who share it, so give each goroutine that builds networks
// a separate Context. The engine has its own threads, as many as GOMAXPROCS unless [WithThreads] says
// otherwise; results do not depend on their number. Tokenizers and corpora are read by any number of
// goroutines at once.
//
// A context.Context ends [Trainer.Run] between two updates and other calls that take one between two batches, reads or tensors; the error is
// [ErrCancelled] and context.Canceled or context.DeadlineExceeded, and the trainer can go on. [WithProgress] has these
// calls tell how far they are.
//
// Callbacks run on the goroutine that made the call, but for functions of pairs, which run on threads
// of the engine and ahead of the call that needs the pair. Their errors come back wrapped, their
// panics continue in the caller.
package trafo
