#include "tests/ops/op_cases.h"

namespace trafo::testing {

#define TRAFO_OP(name, Name) OpCases name##_cases();
#define TRAFO_COMPOSITE(name) OpCases name##_cases();
#define TRAFO_UPDATE(name, Name)
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE

const std::vector<OpUnderTest>& ops_under_test() {
  static const std::vector<OpUnderTest> ops = {
#define TRAFO_OP(name, Name) {#name, &name##_cases},
#define TRAFO_COMPOSITE(name) {#name, &name##_cases},
#define TRAFO_UPDATE(name, Name)
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE
  };
  return ops;
}

}  // namespace trafo::testing
