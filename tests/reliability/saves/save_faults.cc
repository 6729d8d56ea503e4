// Suite 1: every system call of a save fails in turn. The checkpoint before it still loads, the
// error is told, training goes on and the next save succeeds.
//
//   save_faults [--long] [runs | files | power_loss | operations | environment]
#include "tests/reliability/saves/save_faults.h"

#include <string_view>

int main(int argc, char** argv) {
  using namespace trafo::testing;
  Suite suite("save_faults");
  prefer_memory_file_system();
  const bool long_form = is_long(argc, argv);
  const std::string_view last = argc > 1 ? argv[argc - 1] : "--long";
  const auto wanted = [&](std::string_view part) { return last == "--long" || last == part; };
  if (wanted("runs")) try_runs(suite, long_form);
  if (wanted("files")) try_files(suite, long_form);
  if (wanted("power_loss")) try_power_loss(suite, long_form);
  if (wanted("operations")) try_missing_operations(suite);
  if (wanted("environment")) try_environment(suite);
  return suite.finish();
}
