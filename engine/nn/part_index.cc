#include "engine/nn/part_index.h"

namespace trafo {

PartIndex::PartIndex(const ParameterStore& parameters) {
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const ParameterParts& parts = parameters.parts(id);
    for (const Part& part : parts.rows) {
      const bool is_new =
          parts_.try_emplace({part.place, part.role, parts.piece}, Found{id, part}).second;
      require(is_new, ErrorCode::internal, "parameters", parameters.name(id),
              " has a part that another parameter has, too");
    }
  }
}

const PartIndex::Found* PartIndex::find(const Place& place, Role role, Piece piece) const {
  const auto found = parts_.find({place, role, piece});
  return found == parts_.end() ? nullptr : &found->second;
}

const PartIndex::Found& PartIndex::at(const Place& place, Role role, Piece piece) const {
  const Found* found = find(place, role, piece);
  require(found != nullptr, ErrorCode::internal, "parameters", "the model has no part of role ",
          static_cast<int>(role), " in layer ", place.layer, " of stack ",
          static_cast<int>(place.stack));
  return *found;
}

}  // namespace trafo
