// Finds parts of parameters by what they are.
#pragma once

#include <map>
#include <tuple>

#include "engine/nn/parameter_store.h"

namespace trafo {

class PartIndex {
 public:
  explicit PartIndex(const ParameterStore& parameters);

  struct Found {
    ParamId parameter;
    Part part;
  };
  // Null: the model has no such part.
  const Found* find(const Place& place, Role role, Piece piece = Piece::weight) const;
  // INTERNAL: the model has no such part.
  const Found& at(const Place& place, Role role, Piece piece = Piece::weight) const;

 private:
  std::map<std::tuple<Place, Role, Piece>, Found> parts_;
};

}  // namespace trafo
