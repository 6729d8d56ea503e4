// Family 1: every system call of a save fails in turn. The checkpoint before it still loads, the
// error is told, training goes on and the next save succeeds.
#include "tests/reliability/save_faults.h"

int main(int argc, char** argv) {
  using namespace trafo::testing;
  Family family("save_faults");
  prefer_memory_file_system();
  const bool long_form = is_long(argc, argv);
  try_runs(family, long_form);
  try_files(family, long_form);
  try_power_loss(family, long_form);
  try_environment(family);
  return family.finish();
}
