// Names that code below the option tables writes by hand are those of engine/options/enums.toml.
#include <gtest/gtest.h>

#include <set>

#include "engine/models/architecture.h"
#include "engine/models/model_config_fields.generated.h"
#include "engine/ops/activation/activation.h"
#include "engine/optim/adamw.h"
#include "engine/optim/schedule.h"
#include "engine/train/train_options_fields.generated.h"

namespace trafo {
namespace {

// One value behind the last is unknown to both.
template <class E, class Name>
void expect_names(Name name) {
  for (int32_t i = 0; i <= static_cast<int32_t>(EnumNames<E>::names.size()); ++i)
    EXPECT_STREQ(name(static_cast<E>(i)), enum_name(static_cast<E>(i))) << i;
}

TEST(OptionNames, AreThoseOfTheTables) {
  expect_names<ScheduleKind>(&schedule_name);
  expect_names<OptimizerStates>(&optimizer_states_name);
  expect_names<Activation>(&activation_name);
  for (const char* name : EnumNames<ScheduleKind>::names)
    EXPECT_STREQ(schedule_name(schedule_kind(name)), name);
}

TEST(OptionNames, ArchitecturesAreThoseOfTheTable) {
  ASSERT_EQ(architectures().size(), EnumNames<Architecture>::names.size());
  std::set<Architecture> seen;
  for (const ArchitectureInfo& info : architectures()) {
    EXPECT_STREQ(info.name, enum_name(info.architecture));
    EXPECT_TRUE(seen.insert(info.architecture).second) << info.name;
  }
}

}  // namespace
}  // namespace trafo
