// Which parts of the flat gradient are complete while a backward pass still runs: they can be
// exchanged beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/autograd/gradient_observer.h"
#include "engine/core/element_range.h"
#include "engine/dist/communicator.h"
#include "engine/nn/parameter_store.h"

namespace trafo {

// Sets the communicator's mark number i when part i of the flat gradient is complete. The parts
// are the same on all ranks; the order in which they are complete need not be.
class GradientMarks final : public GradientObserver {
 public:
  // All must outlive it. The communicator has marks. `complete`: called with a part just before its
  // mark is set, to issue work that the mark is to wait for; also here, for every part.
  GradientMarks(const Context& context, const ParameterStore& parameters, Communicator& group,
                std::function<void(const ElementRange&)> complete = {});

  // Contiguous, they cover the flat gradient. A backward pass completes later ones first.
  const std::vector<ElementRange>& parts() const { return parts_; }

  void will_add(const Variable& leaf) override;
  void added(const Variable& leaf) override;
  void finished() override;
  // Sets all marks now: there is no backward pass.
  void set_all();

 private:
  struct Progress {
    int64_t absent = 0;   // parameters that the tape does not use
    int64_t missing = 0;  // uses whose gradients have not been added
    bool marked = false;
  };
  struct Place {
    size_t part;
    bool used = false;
  };
  void set(size_t part);

  const Context& context_;
  Communicator& group_;
  std::function<void(const ElementRange&)> complete_;
  std::vector<ElementRange> parts_;
  std::vector<int64_t> counts_;  // parameters in each part
  std::unordered_map<const Variable*, Place> places_;
  std::vector<Progress> progress_;
};

}  // namespace trafo
