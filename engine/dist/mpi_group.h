// A transport between the processes of an MPI job, which train on the CPU.
#pragma once

#include <memory>

#include "engine/dist/local_group.h"

namespace trafo {

// Names the group of all processes of the MPI job. The same in every process.
GroupId mpi_group_id();

// Joins as the rank that this process has in MPI_COMM_WORLD, and waits for the other processes.
// Opens libtrafo_mpi.so and initialises MPI at the first call. rank -1 and size 0 mean MPI's.
// INVALID_ARGUMENT: they differ from MPI's, the id is another one, or the process is in a group of
// the job already. UNSUPPORTED: there is no libtrafo_mpi.so or no MPI that it can use. PEER_LOST:
// not all have joined within timeouts.start, or a group of this job has failed: the processes must
// be started again.
std::unique_ptr<Communicator> join_mpi_group(const GroupId& id, int rank, int size,
                                             const GroupTimeouts& timeouts);

// Ends MPI if a group has initialised it; exit() does so by itself. Waits for the other processes,
// no longer than the timeout of the last group. PEER_LOST: they did not come, or a group has
// failed; MPI is not finalised then, so the launcher of the job ends the others.
void finalize_mpi();

}  // namespace trafo
