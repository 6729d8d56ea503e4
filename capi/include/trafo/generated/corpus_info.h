/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CORPUS_INFO_H
#define TRAFO_GENERATED_CORPUS_INFO_H

/* Sizes of a corpus. */
typedef struct trafo_corpus_info {
  int64_t lines; /* Lines of one side. */
  int64_t pairs; /* Pairs of the corpus. */
  int64_t dropped_empty; /* Pairs left out because a side is empty or white space. */
  /* Texts of a pair: 1: text without a source; 2: source and target; 3: a preference pair or a labelled answer. */
  int32_t texts;
  int32_t json_lines; /* 1: the files are JSON lines; in a mixture, the files of the first corpus. */
  int32_t chats; /* 1: the texts are conversations, as JSON: {"messages": ...}. */
  int32_t labelled; /* 1: preferences are labelled answers: of a pair, the chosen answer is empty, or the rejected one. */
  int32_t csv; /* 1: the files are CSV; in a mixture, the files of the first corpus. */
  int32_t ids; /* 1: the rows are token ids and no text. */
} trafo_corpus_info;

#endif /* TRAFO_GENERATED_CORPUS_INFO_H */
