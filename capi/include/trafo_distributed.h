/*
 * Trafo, several ranks that train one model. Include trafo.h; its rules hold here.
 *
 * The batches of an update are dealt to `lanes` of the trainer's options. Each rank computes some of the lanes. The sums of the lanes
 * are added in a fixed order, so the bits of a run depend on the number of lanes and not on the number of ranks. Each rank has the
 * optimizer states of a shard of the weights.
 *
 * A rank is a separate context, model, group and trainer, used by one thread. All ranks make the same calls of a trainer in the
 * same order: trafo_trainer_run, _step, _validate and _save wait for each other. An error that the ranks agree on (a batch, a validation
 * or a save has failed on one of them) is returned by all, and names the rank; the trainers may go on. After any other error the rank
 * has left its group, and the calls of the others return PEER_LOST.
 */
#ifndef TRAFO_DISTRIBUTED_H
#define TRAFO_DISTRIBUTED_H

#include "trafo_models.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAFO_GROUP_ID_BYTES 128

/* One rank of a group. */
typedef struct trafo_group trafo_group;

#include "trafo/generated/group_options.h"

#include "trafo/generated/group_info.h"

/* The name of a new group, which the program gives to all its ranks. id has room for id_bytes, which must be TRAFO_GROUP_ID_BYTES. With MPI
 * the group is the job, and each process makes the same id by itself.
 * TRAFO_TRANSPORT_NCCL: the first call loads NCCL, 2.19.1 or newer: the file that TRAFO_NCCL_LIBRARY in the environment names by an absolute
 * path, or else libnccl.so.2 beside libtrafo_cuda.so or on the loader's path. It sets NCCL_NVLS_ENABLE=0 in the environment unless it is
 * set. UNSUPPORTED: there is none, and where it was looked for. The id is for threads of this process.
 * TRAFO_TRANSPORT_TCP: trafo_group_id_of_master at 127.0.0.1:0 with a new token, for the processes of this host. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_id_new(int32_t transport, uint8_t *id, size_t id_bytes);

/* The name of a group of processes that meet at `master`, "HOST:PORT" or "[IPv6]:PORT" of at most 79 bytes of HOST, where rank 0 listens.
 * Either every process makes the id from the same master and token, or one makes it and gives its bytes to the others, by any means.
 * token: a secret of 32 to 4096 bytes from a generator of random numbers (openssl rand -hex 32). Who can guess it can join; bytes of which
 * fewer than 10 differ are refused. NULL and 0: a new random one, which is in the id.
 * PORT 0, only without a token: this process takes a free port at once and keeps it until rank 0 joins, which must be in this process.
 * HOST localhost, 127.* or ::1: nobody listens for other hosts. Any other HOST: all ranks listen at all addresses of their hosts, rank 0
 * at PORT, the others at free ports. Traffic between ranks is not encrypted. The ranks of a group trust each other.
 * The id is for TRAFO_TRANSPORT_TCP, and for TRAFO_TRANSPORT_NCCL, which exchanges over NCCL and all else over TCP.
 * INVALID_ARGUMENT: no such master or token. UNSUPPORTED: PORT 0, and libtrafo_tcp.so was not found (the message names the files;
 * TRAFO_TCP_LIBRARY in the environment names another one). IO: there is no free port. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_id_of_master(const char *master, size_t master_length, const uint8_t *token,
                                                               size_t token_length, uint8_t *id, size_t id_bytes);

/* Joins the group as one rank and waits for the others, each of which calls this with the same id on a separate thread. `context` is that
 * of the rank's model; nothing else may use it meanwhile. options may be NULL: a group of one rank. INVALID_ARGUMENT: the id names no group
 * that this process can join, the rank has joined already, or another rank gave another size. PEER_LOST: not all ranks have joined within
 * start_timeout_s. UNSUPPORTED: the context is not on a GPU, with TRAFO_TRANSPORT_NCCL.
 * TRAFO_TRANSPORT_TCP: ranks are processes or threads. INVALID_ARGUMENT also: what answers at the master has another token or is no rank.
 * IO: rank 0 cannot listen at its port. VERSION: a rank has another release. UNSUPPORTED: libtrafo_tcp.so was not found. A rank whose
 * process or host dies ends the group of all, at once or after about 45 seconds.
 * TRAFO_TRANSPORT_MPI: each process is one rank, in one group at a time. INVALID_ARGUMENT: rank or size differ from MPI's.
 * UNSUPPORTED: libtrafo_mpi.so was not found or cannot be loaded (the message names the files; TRAFO_MPI_LIBRARY in the environment names
 * another one), MPI has been finalised, or the program has initialised it below MPI_THREAD_SERIALIZED. The first call initialises MPI unless
 * the program has. Trafo calls MPI on a separate thread, and only during calls of the group. After PEER_LOST no group of the job can be
 * joined any more: the program should end, and its launcher start all processes again. TRAFO_TRANSPORT_NCCL takes an id of MPI or TCP as well:
 * the processes exchange over NCCL, and all else over MPI or TCP. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_new(trafo_context *context, const trafo_group_options *options,
                                                      const uint8_t *id, size_t id_bytes, trafo_group **out);
/* The rank, the number of ranks and the transport. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_get_info(const trafo_group *group, trafo_group_info *out, size_t struct_size);
/* Leaves the group: calls that wait in it, on this rank and on the others, return PEER_LOST with `reason`. May be called from any thread
 * while another one trains. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_abort(trafo_group *group, const char *reason, size_t reason_length);
/* Ends MPI, if Trafo has initialised it. Each process calls this when it will join no other group; it waits for the other processes, no
 * longer than the timeout_s of the last group. exit() and a return from main do this by themselves; a program that ends in another way (Go's
 * os.Exit) makes this call. PEER_LOST: another process has failed or did not come, or a call of a group is running. MPI is not finalised
 * then, and the launcher ends the other processes when this one ends. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_mpi_finalize(void);
/* Frees the handle. A trainer of the group keeps what it needs; the rank has left the group once both are freed. since 0.1 */
TRAFO_API void trafo_group_free(trafo_group *group);

/* trafo_trainer_new for one rank of a group; all ranks call it. valid may be NULL. The model, the corpora, the tokenizer and the options
 * must be the same on all ranks; INVALID_ARGUMENT names a rank that differs, and in what, or two ranks on one GPU. Rank 0 alone reads and
 * writes the run directory, which all ranks give. Its files equal the files of a trainer without a group that has the same lanes. lanes 1 becomes
 * the number of ranks, or the lanes of the run that resumes. A run may resume with any number of ranks up to its lanes. Not with a group of
 * several ranks (UNSUPPORTED): trafo_trainer_write and trafo_trainer_read. cancel may be NULL. CANCELLED: this rank has left the call, and
 * the others wait for it until trafo_group_abort or the timeout of the group. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_trainer_new_in_group(trafo_group *group, trafo_model *model,
                                                                 const trafo_tokenizer *tokenizer, const trafo_corpus *train,
                                                                 const trafo_corpus *valid, const trafo_trainer_options *options,
                                                                 const char *run_directory, size_t run_directory_length,
                                                                 const trafo_cancel *cancel, trafo_trainer **out);

/* trafo_plan_training for rank `rank` of a group of `size`: with its shard of the optimizer's states, the sums of lanes that it keeps and
 * those that it receives. The ranks are on `hosts` hosts, equally many on each, host by host: several hosts exchange gradients beside the
 * backward pass or in two levels, which takes other memory than on one host. options may be NULL. lanes 1 is planned as one for each rank.
 * With batch_fit the batch fits this rank; a group takes the smallest batch of all its ranks. INVALID_ARGUMENT also: there is no such rank,
 * hosts is below 1 or `size` is no multiple of it, or lanes is above 1 and below `size`. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_plan_training_of_rank(const trafo_model_config *config,
                                                                  const trafo_trainer_options *options,
                                                                  const trafo_string_view *frozen, size_t frozen_count,
                                                                  int32_t rank, int32_t size, int32_t hosts, int64_t sentences,
                                                                  int64_t source_tokens, int64_t target_tokens,
                                                                  trafo_memory_plan *out, size_t struct_size);

#ifdef __cplusplus
}
#endif

#endif /* TRAFO_DISTRIBUTED_H */
