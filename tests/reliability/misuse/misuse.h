/* The misuse table: what the generated part and the hand-written part share. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "misuse_kinds.h"
#include "tests/capi/dlpack_layout.h"
#include "trafo.h"

enum { EITHER, REFUSED, ACCEPTED };

typedef struct misuse_variant {
  const char* parameter; /* NULL ends a list */
  int cls, expect;
} misuse_variant;

typedef struct misuse_function {
  const char* name;
  size_t argument_bytes;
  void (*good)(void* arguments); /* makes arguments that are right */
  trafo_error* (*run)(void* arguments);
  void (*clean)(void* arguments);            /* gives back what came out, and what good() made */
  void (*bend)(void* arguments, int number); /* makes one of them wrong */
  void (*busy)(void* arguments);             /* _free functions: the handle that others use now */
  const misuse_variant* variants;
  int variant_count;
  int uses_trainer; /* 1: refused while the trainer is at work; 2: a trainer beside it */
} misuse_function;

extern const misuse_function misuse_functions[];
extern const int misuse_function_count;
extern const char* const misuse_class_names[];

/* ---- The world: a live handle of every kind, and the files and functions that good arguments name
 * ---- */

typedef struct world {
  trafo_error* error;
  trafo_context* context;
  trafo_tensor *matrix, *row, *ids, *offsets,
      *cube;                    /* float32 [2,2], [2]; int32 [2], [3]; float32 [2,2,2] */
  trafo_tensor *leaf, *doubles; /* float64 [2], the first wants a gradient */
  trafo_cancel* cancel;
  trafo_adamw* adamw; /* of the leaf */
  trafo_tokenizer* tokenizer;
  trafo_tokenizer* chatting;  /* the same with a chat template */
  trafo_tokenizer* bilingual; /* the same with the languages en_XX and de_DE */
  trafo_corpus* corpus;
  trafo_corpus* plain;             /* text without a source */
  trafo_model *model, *free_model; /* with a trainer, without one */
  trafo_trainer* trainer;
  trafo_translations* translations;
  trafo_shortlist* shortlist;
  trafo_group* group;         /* of one rank */
  trafo_generator* generator; /* nothing is in flight */
  trafo_model_config config;
  struct {
    char tokenizer[256], shortlist[256], tsv[256], text[256], model[256], language[256],
        import[256], checkpoint[256], run[256], adapter[256], tensors[256], adamw[256];
  } files;
} world;
extern world w;
extern const uint8_t* tokenizer_bytes;
extern size_t tokenizer_byte_count;
extern int misuse_user_data;

void world_files(const char* folder); /* where they lie */
void world_begin(void);
void world_write_files(void);
void world_end(void);

void must(trafo_error* error); /* ends the process: the table itself is wrong */
void* live(int kind);
void* freed(int kind);     /* one that is no more, but others of its kind have been made since */
int successors_live(void); /* these are as they were made */
void* fresh(int kind);
void free_handle(int kind, void* handle);
char* fresh_string(void);
int32_t* fresh_ids(void);
trafo_tensor* fresh_loss(void);
trafo_trainer* fresh_saver(void);     /* with a run directory */
trafo_trainer* fresh_validated(void); /* and a best checkpoint in it */
/* 0: without an adapter, 1: with one, 2: merged, 3: with a teacher instead, 4: with a reference,
 * 5: prepared for inference, without one */
trafo_model* fresh_adapted(int state);
trafo_corpus* fresh_preferences(void);         /* of two pairs of answers */
trafo_model* fresh_language_model(void);       // without an encoder
trafo_model* fresh_prepared_model(void);       /* the same, for inference */
trafo_model* fresh_encoder(void);              /* with three labels of texts */
trafo_generator* fresh_generator(int started); /* 1: with a sequence in flight */
const char* fresh_path(void);                  /* of nothing yet */
const trafo_string_view* good_lines(void);
const trafo_string_view* good_tokens(void); /* that no vocabulary has */
const trafo_ids_view* good_rows(void);      /* each with its end */
const trafo_ids_view* good_types(void);     /* of the tokens of good_rows() */
const trafo_ids_view* good_prefixes(void);  /* without */
const trafo_string_view* good_paths(void);
const trafo_string_view* good_patterns(void);
const trafo_string_view* good_model_paths(void);
void good_shape(int64_t* shape, int64_t first);
void good_dlpack(struct DLManagedTensorVersioned* managed, int64_t* shape);
void trainer_settings(trafo_trainer_options* options);
void keep_result(int32_t result);
void keep_text(const char* text);

int32_t region_copies(void*, trafo_context*, const trafo_tensor* const*, size_t, trafo_tensor**,
                      size_t);
int32_t event_ignored(void*, const trafo_event*);
trafo_event_fn event_counter(void); /* event_ignored, for a run that begins to count */
double rate_same(void*, int64_t, double);
int32_t progress_heard(void*, int32_t, int64_t, int64_t);
int32_t pair_words(void*, int64_t, trafo_string_view*, trafo_string_view*);
int32_t batch_words(void*, int64_t, trafo_batch*);
int32_t write_taken(void*, const uint8_t*, size_t);
int32_t read_model(void*, uint8_t*, size_t, size_t*);
int32_t read_checkpoint(void*, uint8_t*, size_t, size_t*);
void ignore_user_data(void*);
