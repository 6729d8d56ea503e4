#include "engine/train/step/gemm_tuning.h"

#include <cmath>
#include <set>
#include <string_view>

#include "engine/core/status.h"
#include "engine/train/step/user_gemm_cache.h"

namespace trafo {
namespace {

std::string seconds_text(double seconds) {
  const auto tenths = std::llround(seconds * 10);
  return concat(tenths / 10, ".", tenths % 10, " s");
}

// The choices that are not in `known`, where a GEMM may have another kernel.
std::vector<GemmChoice> without(const std::vector<GemmChoice>& choices,
                                const std::vector<GemmChoice>& known) {
  const auto bytes = [](const GemmChoice& choice) {
    return std::string_view(reinterpret_cast<const char*>(&choice), sizeof choice);
  };
  std::set<std::string_view> present;
  for (const GemmChoice& choice : known) present.insert(bytes(choice));
  std::vector<GemmChoice> others;
  for (const GemmChoice& choice : choices)
    if (!present.contains(bytes(choice))) others.push_back(choice);
  return others;
}

}  // namespace

GemmTuning::~GemmTuning() {
  if (!tuner_ || tuner_->owner() != this) return;
  tuner_->set_tuning_budget(0);
  tuner_->set_owner(nullptr);
}

void GemmTuning::begin() {
  if (!tuner_) return;
  open_ = false;
  choices_.clear();
  user_cache_.reset();
  tuner_->set_owner(this);
  tuner_->set_tuning_budget(0);
  tuner_->set_choices({}, RefusedChoice::dropped);
  if (!on_) return;
  if (lanes_ > 1)
    return tell(false, concat("nothing is timed with ", lanes_,
                              " lanes, so that the number of ranks changes no bit"));
  user_cache_ = user_gemm_cache_path(*tuner_);
  cached_.clear();
  if (user_cache_) {
    try {
      cached_ = read_user_gemm_cache(*tuner_, *user_cache_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      tell(true, "the cache of the user is not used and will be replaced: " + error.message());
    }
  }
  tuner_->set_choices(cached_, RefusedChoice::dropped);
  tuner_->set_tuning_budget(kSeconds);
  updates_ = 0;
  open_ = true;
}

void GemmTuning::resume(GemmCache saved, const std::string& label) {
  if (!tuner_) return;
  const std::string here = tuner_->library();
  if (saved.library != here) {
    tell(true,
         concat(label, " was measured on \"", saved.library.substr(0, 200), "\", this is \"", here,
                "\"; the run goes on with other kernels, and its results differ in their last "
                "digits from those there"));
    return begin();
  }
  open_ = false;
  choices_ = std::move(saved.choices);
  tuner_->set_owner(this);
  tuner_->set_tuning_budget(0);
  tuner_->set_choices(choices_, RefusedChoice::fails);
  tell(false, concat(choices_.size(), " kernels from ", label));
}

void GemmTuning::acquire() {
  if (!tuner_ || tuner_->owner() == this) return;
  if (open_ && updates_ == 0) return begin();
  // The other run has replaced what this one has measured.
  if (open_) {
    choices_.clear();
    tell(true, "it ends without a choice, because another run uses the same context");
  }
  open_ = false;
  tuner_->set_owner(this);
  tuner_->set_tuning_budget(0);
  tuner_->set_choices(choices_, RefusedChoice::fails);
}

void GemmTuning::before_update() {
  if (!tuner_) return;
  acquire();
  if (!open_) return;
  if (updates_ == kUpdates || tuner_->tuning_cost().seconds >= kSeconds) return close();
  ++updates_;
}

void GemmTuning::close() {
  acquire();
  if (!tuner_ || !open_ || updates_ == 0) return;
  const GemmTuningCost cost = tuner_->tuning_cost();
  tuner_->set_tuning_budget(0);
  choices_ = tuner_->choices();
  open_ = false;
  if (choices_.empty()) return;
  std::string text = concat(cost.measured, " GEMMs timed in ", seconds_text(cost.seconds));
  if (user_cache_)
    text += concat(", ", cached_.size(), " kernels from ", user_cache_->string());
  else
    text += ", no cache of the user";
  if (cost.seconds >= kSeconds)
    text +=
        "; the time for it is used up, other GEMMs have the first kernel that the library proposes";
  tell(false, std::move(text));
  const std::vector<GemmChoice> measured = without(choices_, cached_);
  if (!user_cache_ || measured.empty()) return;
  try {
    add_to_user_gemm_cache(*tuner_, *user_cache_, measured);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    tell(true, "the kernels are not kept for later runs: " + error.message());
  }
}

std::optional<GemmCache> GemmTuning::cache() const {
  if (!tuner_) return std::nullopt;
  return GemmCache{tuner_->library(), choices_};
}

}  // namespace trafo
