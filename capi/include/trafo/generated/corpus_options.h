/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CORPUS_OPTIONS_H
#define TRAFO_GENERATED_CORPUS_OPTIONS_H

typedef struct trafo_corpus_options {
  size_t struct_size;
  /* Bytes. A larger file (gzip: larger than a quarter of it) stays on disk and is read as batches need it, with 16 bytes of
   * memory a pair. So does a corpus whose pairs take more once they are unpacked, with 72 bytes a pair beside their text. Does
   * not change training. 0: all text stays on disk. Default 256 MiB. */
  int64_t memory_bytes;
  /* Directory for gzip files and standard input that stay on disk: they are unpacked into unnamed files. It is created if
   * missing. Empty: the system's directory for temporary files. Default empty. */
  trafo_string_view unpack_directory;
  /* Files of llm.c and nanoGPT: the token that ends a document, such as 50256 of GPT-2. Without it a file is one document.
   * Default -1: none. */
  int64_t document_end;
  /* 1: it is one file of text without a source, for a decoder-lm. The members of JSON lines say it themselves. Default 0. */
  int32_t monolingual;
  /* 1: it is preferences for DPO, ORPO or KTO: three files of prompts, chosen and rejected answers, or one file of JSON lines
   * or of TSV with three columns. Default 0. */
  int32_t preferences;
  int32_t format; /* TRAFO_CORPUS_*. Format of the files. Default TRAFO_CORPUS_AUTO. */
  int32_t reserved; /* 0 */
} trafo_corpus_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_corpus_options_init(trafo_corpus_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_CORPUS_OPTIONS_H */
