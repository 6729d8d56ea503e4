// Parts of a suite that do not depend on each other, each in a separate process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/reliability/suite.h"

namespace trafo::testing {

class Jobs {
 public:
  // As many at a time as there are processors, or as TRAFO_JOBS says.
  explicit Jobs(Suite& suite);
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // Forks: no thread may be running. The counts of `part` are added to the suite; a part that ends
  // in any other way than by returning has failed. Waits for another one to end while all are busy.
  void start(const std::string& name, const std::function<void(Suite&)>& part);
  // Waits for all.
  void finish();

 private:
  struct Running {
    pid_t pid;
    int pipe;
    std::string name;
  };
  void collect_one();

  Suite& suite_;
  size_t at_once_;
  std::vector<Running> running_;
};

}  // namespace trafo::testing
