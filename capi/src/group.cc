#include <cstring>

#include "capi/src/trainer_handles.h"
#include "engine/backend/cuda/copy_link.h"
#include "engine/backend/cuda/nccl_link.h"
#include "engine/dist/linked_group.h"
#include "engine/dist/local_group.h"
#include "engine/dist/mpi_group.h"
#include "engine/dist/tcp_group.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr double kMostSeconds = 1e7;  // four months

GroupId new_nccl_group() {
  load_nccl();
  return new_local_group();
}

// A rank without a GPU is refused before it joins: the others do not wait for long. The id says
// where the ranks are: in one process, or in those that MPI or TCP connects.
std::unique_ptr<Communicator> join_nccl_group(const Backend& backend, const GroupId& id, int rank,
                                              int size, const GroupTimeouts& timeouts) {
  std::unique_ptr<LinkMaker> links = make_nccl_links();
  links->prepare(backend);
  const auto join = is_tcp_group_id(id)    ? join_tcp_group
                    : id == mpi_group_id() ? join_mpi_group
                                           : join_local_group;
  return join_linked_group(join(id, rank, size, timeouts), std::move(links), timeouts);
}

// Ranks on GPUs copy between these.
std::unique_ptr<Communicator> join_threads(const Backend& backend, const GroupId& id, int rank,
                                           int size, const GroupTimeouts& timeouts) {
  auto group = join_local_group(id, rank, size, timeouts);
  if (backend.device().kind == DeviceKind::cpu) return group;
  return join_linked_group(std::move(group), make_copy_links(), timeouts);
}

template <auto Join>
std::unique_ptr<Communicator> join_anywhere(const Backend&, const GroupId& id, int rank, int size,
                                            const GroupTimeouts& timeouts) {
  return Join(id, rank, size, timeouts);
}

// How each transport names a group and joins it.
struct Transport {
  int32_t value;
  const char* symbol;
  const char* name;  // Communicator::transport()
  GroupId (*new_id)();
  std::unique_ptr<Communicator> (*join)(const Backend& backend, const GroupId& id, int rank,
                                        int size, const GroupTimeouts& timeouts);
};
constexpr Transport kTransports[] = {
    {TRAFO_TRANSPORT_LOCAL, "TRAFO_TRANSPORT_LOCAL", "local", new_local_group, join_threads},
    {TRAFO_TRANSPORT_MPI, "TRAFO_TRANSPORT_MPI", "mpi", mpi_group_id,
     join_anywhere<join_mpi_group>},
    {TRAFO_TRANSPORT_NCCL, "TRAFO_TRANSPORT_NCCL", "nccl", new_nccl_group, join_nccl_group},
    {TRAFO_TRANSPORT_TCP, "TRAFO_TRANSPORT_TCP", "tcp", new_tcp_group,
     join_anywhere<join_tcp_group>},
};

const Transport& transport_of(const Call& call, int32_t value) {
  std::string known;
  for (const Transport& each : kTransports) {
    if (each.value == value) return each;
    known += concat(known.empty() ? "" : " or ", each.symbol, " (", each.value, ")");
  }
  call.refuse_argument("transport", " must be ", known, ", got ", value);
}

void check_id(const Call& call, const uint8_t* id, size_t bytes) {
  if (!id) call.refuse_argument("id", " is NULL");
  if (bytes != TRAFO_GROUP_ID_BYTES)
    call.refuse_argument("id_bytes", " must be ", TRAFO_GROUP_ID_BYTES, ", got ", bytes);
}

double checked_seconds(const Call& call, double seconds, const char* name) {
  if (!(seconds > 0 && seconds <= kMostSeconds))
    call.refuse_argument(name, " must be above 0 and at most ", kMostSeconds, " seconds, got ",
                         seconds);
  return seconds;
}

}  // namespace

trafo_error* trafo_group_id_new(int32_t transport, uint8_t* id, size_t id_bytes) {
  return api(__func__, [&](const Call& call) {
    check_id(call, id, id_bytes);
    std::memset(id, 0, id_bytes);
    const GroupId made = transport_of(call, transport).new_id();
    std::memcpy(id, made.data(), made.size());
  });
}

trafo_error* trafo_group_id_of_master(const char* master, size_t master_length,
                                      const uint8_t* token, size_t token_length, uint8_t* id,
                                      size_t id_bytes) {
  return api(__func__, [&](const Call& call) {
    check_id(call, id, id_bytes);
    std::memset(id, 0, id_bytes);
    const std::string_view place = call.text(master, master_length, "master");
    if (!token && token_length != 0)
      call.refuse_argument("token", " is NULL and token_length ", token_length);
    if (token && token_length == 0) call.refuse_argument("token_length", " is 0");
    const std::string_view secret(reinterpret_cast<const char*>(token), token_length);
    const GroupId made = tcp_group_id(place, secret);
    std::memcpy(id, made.data(), made.size());
  });
}

trafo_error* trafo_group_new(trafo_context* context, const trafo_group_options* options,
                             const uint8_t* id, size_t id_bytes, trafo_group** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    check_id(call, id, id_bytes);
    const trafo_group_options wanted = read_options(call, options);
    const Transport& transport = transport_of(call, wanted.transport);
    call.reserved(wanted.reserved);
    const GroupTimeouts timeouts{checked_seconds(call, wanted.start_timeout_s, "start_timeout_s"),
                                 checked_seconds(call, wanted.timeout_s, "timeout_s")};
    const Backend& backend = call.context(context).backend();
    GroupId name;
    std::memcpy(name.data(), id, name.size());
    *out = new_handle<trafo_group>(std::shared_ptr<Communicator>(
        transport.join(backend, name, wanted.rank, wanted.size, timeouts)));
  });
}

trafo_error* trafo_group_get_info(const trafo_group* group, trafo_group_info* out,
                                  size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const Communicator& communicator = *call.handle(group, "group").communicator;
    trafo_group_info info{};
    info.rank = communicator.rank();
    info.size = communicator.size();
    for (const Transport& each : kTransports)
      if (std::string_view(each.name) == communicator.transport()) info.transport = each.value;
    init_options(call, out, struct_size, info);
  });
}

trafo_error* trafo_group_abort(trafo_group* group, const char* reason, size_t reason_length) {
  return api(__func__, [&](const Call& call) {
    const std::string_view words = call.text(reason, reason_length, "reason");
    call.handle(group, "group").communicator->abort(words);
  });
}

trafo_error* trafo_mpi_finalize(void) {
  return api(__func__, [](const Call&) { finalize_mpi(); });
}

void trafo_group_free(trafo_group* group) {
  free_handle(group);
}

trafo_error* trafo_trainer_new_in_group(trafo_group* group, trafo_model* model,
                                        const trafo_tokenizer* tokenizer, const trafo_corpus* train,
                                        const trafo_corpus* valid,
                                        const trafo_trainer_options* options,
                                        const char* run_directory, size_t run_directory_length,
                                        const trafo_cancel* cancel, trafo_trainer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const std::shared_ptr<Communicator> communicator = call.handle(group, "group").communicator;
    *out = new_trainer(
        call,
        {model, tokenizer, train, valid, options, run_directory, run_directory_length, cancel},
        communicator);
  });
}
