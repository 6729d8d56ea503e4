// libtrafo_mpi.so: the table of plugin_api.h, made of calls of the MPI that it is built for.
#include <mpi.h>

#include <cstdio>
#include <new>

#include "engine/core/version.h"
#include "engine/dist/mpi/plugin_api.h"

namespace trafo::mpi {

struct Request {
  MPI_Request request = MPI_REQUEST_NULL;
};

namespace {

MPI_Comm world = MPI_COMM_NULL;  // Trafo's copy of MPI_COMM_WORLD
bool initialised_here = false;

int32_t tell(Why why, const char* doing, const char* reason) {
  std::snprintf(why.text, why.size, "%s: %s", doing, reason);
  return 1;
}

int32_t checked(int result, const char* doing, Why why) {
  if (result == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  return tell(why, doing, text);
}

int32_t initialise(Why why) {
  int there = 0, gone = 0;
  if (checked(MPI_Initialized(&there), "MPI_Initialized", why)) return 1;
  if (checked(MPI_Finalized(&gone), "MPI_Finalized", why)) return 1;
  if (gone) return tell(why, "MPI", "the program has finalised it");
  int level = MPI_THREAD_SINGLE;
  if (there) {
    if (checked(MPI_Query_thread(&level), "MPI_Query_thread", why)) return 1;
    // Trafo calls MPI on a separate thread.
    if (level < MPI_THREAD_SERIALIZED)
      return tell(why, "MPI",
                  "the program has initialised it for one thread; it must ask MPI_Init_thread for "
                  "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
    return 0;
  }
  if (checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread",
              why))
    return 1;
  initialised_here = true;
  return checked(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                 "MPI_Comm_set_errhandler", why);
}

int32_t start(int32_t* rank, int32_t* size, int32_t* is_ours, Why why) {
  if (initialise(why)) return 1;
  if (checked(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup", why)) return 1;
  if (checked(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", why))
    return 1;
  int number = 0, all = 0;
  if (checked(MPI_Comm_rank(world, &number), "MPI_Comm_rank", why)) return 1;
  if (checked(MPI_Comm_size(world, &all), "MPI_Comm_size", why)) return 1;
  *rank = number;
  *size = all;
  *is_ours = initialised_here;
  return 0;
}

template <class Begin>
int32_t begin(Request** out, const char* doing, Why why, Begin start_it) {
  *out = new (std::nothrow) Request;
  if (!*out) return tell(why, doing, "no memory");
  const int32_t result = checked(start_it(&(*out)->request), doing, why);
  if (result) {
    delete *out;
    *out = nullptr;
  }
  return result;
}

int32_t send(const void* data, int64_t bytes, int32_t peer, int32_t tag, Request** out, Why why) {
  return begin(out, "MPI_Isend", why, [&](MPI_Request* request) {
    return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, world, request);
  });
}

int32_t receive(void* data, int64_t bytes, int32_t peer, int32_t tag, Request** out, Why why) {
  return begin(out, "MPI_Irecv", why, [&](MPI_Request* request) {
    return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, world, request);
  });
}

int32_t test(Request* request, int32_t* done, int64_t* received, Why why) {
  int flag = 0;
  MPI_Status status;
  if (checked(MPI_Test(&request->request, &flag, &status), "MPI_Test", why)) return 1;
  *done = flag;
  if (!flag) return 0;
  int count = 0;
  if (received && checked(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count", why)) return 1;
  if (received) *received = count;
  delete request;
  return 0;
}

int32_t probe(int32_t peer, int32_t tag, int32_t* from, int64_t* bytes, Why why) {
  int flag = 0, count = 0;
  MPI_Status status;
  const int source = peer == kAnyPeer ? MPI_ANY_SOURCE : peer;
  if (checked(MPI_Iprobe(source, tag, world, &flag, &status), "MPI_Iprobe", why)) return 1;
  *from = flag ? status.MPI_SOURCE : kNoPeer;
  if (!flag) return 0;
  if (checked(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count", why)) return 1;
  *bytes = count;
  return 0;
}

int32_t finish(Why why) {
  if (checked(MPI_Comm_free(&world), "MPI_Comm_free", why)) return 1;
  return initialised_here ? checked(MPI_Finalize(), "MPI_Finalize", why) : 0;
}

}  // namespace
}  // namespace trafo::mpi

extern "C" __attribute__((visibility("default"))) void trafo_mpi_plugin(
    trafo::mpi::PluginTable* table) {
  using namespace trafo::mpi;
  *table = {kPluginVersion, trafo::kVersion, start, send, receive, test, probe, finish};
}
