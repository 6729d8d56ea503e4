// Groups: two ranks as threads train like one, and a rank that leaves ends the other.
#include <pthread.h>

#include "capi_check.h"
#include "tiny_config.h"

enum { kPairs = 40, kUpdates = 5 };

typedef struct rank {
  uint8_t id[TRAFO_GROUP_ID_BYTES];
  int32_t number, size;
  const trafo_tokenizer* tokenizer;
  const trafo_corpus* corpus;
  int aborts;
  trafo_error* error;
  int64_t update;
  double loss;
  uint32_t weight; /* bits of one that was trained */
} rank;

static trafo_error* train(rank* r, trafo_context* context, trafo_model** model, trafo_group** group,
                          trafo_trainer** trainer) {
  trafo_error* error = NULL;
  trafo_model_config config;
  trafo_group_options join;
  trafo_group_info info;
  trafo_trainer_options options;
  trafo_tensor* value = NULL;
  if ((error = tiny_config(&config))) return error;
  if ((error = trafo_tokenizer_get_vocabulary(r->tokenizer, &config.vocabulary))) return error;
  if ((error = trafo_model_new(context, &config, 1, model))) return error;
  if ((error = trafo_group_options_init(&join, sizeof join))) return error;
  join.rank = r->number;
  join.size = r->size;
  join.timeout_s = 60;
  if ((error = trafo_group_new(context, &join, r->id, sizeof r->id, group))) return error;
  if ((error = trafo_group_get_info(*group, &info, sizeof info))) return error;
  r->number = info.rank;
  if (r->aborts) return trafo_group_abort(*group, "the test says so", 16);
  if ((error = trafo_trainer_options_init(&options, sizeof options))) return error;
  options.batch_tokens = 64;
  options.max_length = 16;
  options.lanes = 2;
  error = trafo_trainer_new_in_group(*group, *model, r->tokenizer, r->corpus, NULL, &options, NULL,
                                     0, NULL, trainer);
  if (error) return error;
  for (int i = 0; i < kUpdates; ++i) {
    trafo_step_result result;
    if ((error = trafo_trainer_step(*trainer, NULL, &result))) return error;
    r->update = result.update;
    r->loss = result.loss;
  }
  if ((error = trafo_model_get_parameter(*model, 0, NULL, &value))) return error;
  float weights[4096];
  int32_t dimensions = 0;
  int64_t shape[8], count = 1;
  error = trafo_tensor_get_shape(value, shape, 8, &dimensions);
  for (int32_t i = 0; i < dimensions; ++i) count *= shape[i];
  if (!error && (size_t)count <= sizeof weights / sizeof *weights)
    error = trafo_tensor_read(value, weights, (size_t)count * sizeof *weights);
  if (!error) memcpy(&r->weight, &weights[count - 1], sizeof r->weight);
  trafo_tensor_free(value);
  return error;
}

static void* run_rank(void* argument) {
  rank* r = argument;
  trafo_context_options where;
  trafo_context* context = NULL;
  trafo_model* model = NULL;
  trafo_group* group = NULL;
  trafo_trainer* trainer = NULL;
  r->error = trafo_context_options_init(&where, sizeof where);
  where.threads = 1;
  if (!r->error) r->error = trafo_context_new(&where, &context);
  if (!r->error) r->error = train(r, context, &model, &group, &trainer);
  trafo_group_free(group); /* the trainer keeps what it needs */
  trafo_trainer_free(trainer);
  trafo_model_free(model);
  trafo_context_free(context);
  return NULL;
}

static void run_ranks(rank* ranks, int32_t size) {
  pthread_t threads[2];
  uint8_t id[TRAFO_GROUP_ID_BYTES];
  OK(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, id, sizeof id));
  for (int32_t i = 0; i < size; ++i) {
    memcpy(ranks[i].id, id, sizeof id);
    ranks[i].number = i;
    ranks[i].size = size;
    CHECK(pthread_create(&threads[i], NULL, run_rank, &ranks[i]) == 0);
  }
  for (int32_t i = 0; i < size; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

void test_groups(void) {
  static char lines[2][kPairs][48];
  static trafo_string_view sides[2][kPairs];
  static const char* const words[] = {"one", "two", "three", "four", "five"};
  for (int i = 0; i < kPairs; ++i)
    for (int side = 0; side < 2; ++side) {
      snprintf(lines[side][i], sizeof lines[side][i], "%s %s %s", words[(i + side) % 5],
               words[i / 5 % 5], words[i / 25 % 5]);
      sides[side][i] = view(lines[side][i]);
    }
  trafo_tokenizer_options cut;
  trafo_tokenizer* tokenizer = NULL;
  trafo_corpus* corpus = NULL;
  OK(trafo_tokenizer_options_init(&cut, sizeof cut));
  cut.vocabulary = 40;
  cut.soft_limit = 1;
  OK(trafo_tokenizer_train(sides[0], kPairs, &cut, NULL, &tokenizer));
  OK(trafo_corpus_new(sides[0], sides[1], kPairs, &corpus));

  const rank fresh = {.tokenizer = tokenizer, .corpus = corpus};
  rank alone = fresh, both[2] = {fresh, fresh};
  run_ranks(&alone, 1);
  OK(alone.error);
  CHECK(alone.update == kUpdates);
  run_ranks(both, 2);
  for (int i = 0; i < 2; ++i) {
    OK(both[i].error);
    CHECK(both[i].number == i);
    CHECK(both[i].update == kUpdates);
    CHECK(both[i].loss == alone.loss);
    CHECK(both[i].weight == alone.weight);
  }

  rank torn[2] = {fresh, fresh};
  torn[1].aborts = 1;
  run_ranks(torn, 2);
  FAILS(torn[0].error, TRAFO_PEER_LOST, "rank 1 has left: the test says so");
  OK(torn[1].error);
  CHECK(strcmp(trafo_error_code_name(TRAFO_PEER_LOST), "PEER_LOST") == 0);

  uint8_t id[TRAFO_GROUP_ID_BYTES] = {0};
  trafo_group_options join;
  trafo_group* group = NULL;
  trafo_context* context = new_context(1);
  OK(trafo_group_options_init(&join, sizeof join));
  CHECK(join.size == 1 && join.start_timeout_s == 300 && join.timeout_s == 600);
  FAILS(trafo_group_new(context, &join, id, sizeof id, &group), TRAFO_INVALID_ARGUMENT,
        "not that of a local group");
  FAILS(trafo_group_id_new(7, id, sizeof id), TRAFO_INVALID_ARGUMENT,
        "TRAFO_TRANSPORT_TCP (3), got 7");
  static const uint8_t token[] = "a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5";
  uint8_t other[TRAFO_GROUP_ID_BYTES];
  OK(trafo_group_id_of_master("node:29400", 10, token, sizeof token, id, sizeof id));
  OK(trafo_group_id_of_master("node:29400", 10, token, sizeof token, other, sizeof other));
  CHECK(memcmp(id, other, sizeof id) == 0);
  OK(trafo_group_id_of_master("node:29400", 10, NULL, 0, other, sizeof other));
  CHECK(memcmp(id, other, sizeof id) != 0);
  FAILS(trafo_group_id_of_master("node", 4, token, sizeof token, id, sizeof id),
        TRAFO_INVALID_ARGUMENT, "HOST:PORT");
  FAILS(trafo_group_id_of_master("node:29400", 10, token, 3, id, sizeof id), TRAFO_INVALID_ARGUMENT,
        "token must have 32 to 4096 bytes that nobody can guess, got 3");
  FAILS(trafo_group_id_of_master("node:29400", 10, NULL, 3, id, sizeof id), TRAFO_INVALID_ARGUMENT,
        "token is NULL");
  FAILS(trafo_group_id_of_master("node:29400", 10, token, sizeof token, id, 16),
        TRAFO_INVALID_ARGUMENT, "id_bytes");
  join.transport = TRAFO_TRANSPORT_TCP;
  memset(other, 0, sizeof other);
  FAILS(trafo_group_new(context, &join, other, sizeof other, &group), TRAFO_INVALID_ARGUMENT,
        "not that of a group over TCP");
  join.transport = TRAFO_TRANSPORT_NCCL;
  FAILS(trafo_group_new(context, &join, id, sizeof id, &group), TRAFO_UNSUPPORTED,
        "NCCL moves memory of GPUs, this rank computes on cpu");
  join.transport = TRAFO_TRANSPORT_LOCAL;
  FAILS(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, id, 16), TRAFO_INVALID_ARGUMENT, "id_bytes");
  OK(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, id, sizeof id));
  join.rank = 1;
  FAILS(trafo_group_new(context, &join, id, sizeof id, &group), TRAFO_INVALID_ARGUMENT, "rank");
  join.rank = 0;
  join.timeout_s = 0;
  FAILS(trafo_group_new(context, &join, id, sizeof id, &group), TRAFO_INVALID_ARGUMENT,
        "timeout_s");
  join.timeout_s = 1;
  join.size = 2;
  join.start_timeout_s = 0.05;
  FAILS(trafo_group_new(context, &join, id, sizeof id, &group), TRAFO_PEER_LOST,
        "rank 1 has not joined");
  CHECK(group == NULL);
  trafo_context_free(context);
  trafo_corpus_free(corpus);
  trafo_tokenizer_free(tokenizer);
}
