#include "engine/train/checkpoint/background_save.h"

#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "engine/core/library_thread.h"
#include "engine/core/status.h"

namespace trafo {

void BackgroundSave::start(std::function<void()> work) {
  require(!in_flight(), ErrorCode::internal, "save", "an earlier save is still in flight");
  const auto shared = std::make_shared<const std::function<void()>>(std::move(work));
  try {
    result_ = start_task([shared] { (*shared)(); });
  } catch (const std::system_error&) {
    std::packaged_task<void()> task([shared] { (*shared)(); });
    result_ = task.get_future();
    task();
  }
}

bool BackgroundSave::done() const {
  return in_flight() && result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace trafo
