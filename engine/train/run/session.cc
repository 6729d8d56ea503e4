#include "engine/train/run/session.h"

#include <string>
#include <string_view>

namespace trafo {

void RunSession::vote() {
  if (!group_.has_peers()) return;
  const char ballot[] = {stop_ ? '1' : '0', asks_for_cancel() ? '1' : '0'};
  any_stop_ = any_cancelled_ = vote_due_ = false;
  for (const std::string& each :
       group_.communicator->host_all_gather(std::string_view(ballot, sizeof ballot))) {
    any_stop_ = any_stop_ || each.starts_with('1');
    any_cancelled_ = any_cancelled_ || each.ends_with('1');
  }
}

}  // namespace trafo
