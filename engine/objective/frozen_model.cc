#include "engine/objective/frozen_model.h"

#include <utility>

#include "engine/core/generated/option_enums.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

// The model that is trained, as messages about the other one call it.
const char* name_beside(FrozenRole role) {
  return role == FrozenRole::teacher ? "student" : "model";
}

}  // namespace

const char* role_name(FrozenRole role) {
  switch (role) {
    case FrozenRole::teacher:
      return "teacher";
    case FrozenRole::reference:
      return "reference";
    case FrozenRole::none:
      break;
  }
  return "second model";
}

std::shared_ptr<const FrozenModel> frozen_model(Context& context, std::unique_ptr<Model> model,
                                                FrozenRole role) {
  model->parameters().set_trainable(context, "*", false);
  return std::make_shared<FrozenModel>(FrozenModel{role, std::move(model), {}});
}

std::shared_ptr<const FrozenModel> load_frozen_model(Context& context, const Model& trained,
                                                     const std::filesystem::path& file,
                                                     FrozenRole role) {
  const char* const origin = role_name(role);
  const SafetensorsReader reader = open_model(file);
  const ModelConfig config = read_model_config(reader), &own = trained.config();
  require(config.architecture == own.architecture, ErrorCode::invalid_argument, origin,
          reader.label(), " has the architecture ", enum_name(config.architecture), ", the ",
          name_beside(role), " has ", enum_name(own.architecture));
  const ModelSpec theirs = spec_of(config), &ours = trained.spec();
  const bool of_targets = theirs.vocabulary != ours.vocabulary;
  require(!of_targets && theirs.source_vocabulary() == ours.source_vocabulary(),
          ErrorCode::invalid_argument, origin, reader.label(), " has a vocabulary of ",
          of_targets ? theirs.vocabulary : theirs.source_vocabulary(), " tokens",
          of_targets ? "" : " of sources", ", the ", name_beside(role), " one of ",
          of_targets ? ours.vocabulary : ours.source_vocabulary(), ": train the ",
          name_beside(role), " with the vocabulary of its ", role_name(role));
  std::unique_ptr<Model> model = load_model(context, reader, trained.parameters().dtype());
  if (model->adapter()) {
    merge_adapter(context, *model);
    remove_adapter(context, *model);
  }
  model->parameters().set_trainable(context, "*", false);
  std::string checksum = base_checksums(context, *model).all;
  auto frozen =
      std::make_shared<FrozenModel>(FrozenModel{role, std::move(model), std::move(checksum)});
  require_same_vocabulary(*frozen, trained.origin().vocabulary);
  return frozen;
}

void require_same_vocabulary(const FrozenModel& frozen, std::string_view checksum) {
  const Model::Origin& origin = frozen.model->origin();
  const char* const trained = name_beside(frozen.role);
  require(checksum.empty() || origin.vocabulary.empty() || origin.vocabulary == checksum,
          ErrorCode::invalid_argument, role_name(frozen.role), origin.file,
          " was trained with another vocabulary (checksum ", origin.vocabulary, ") than the ",
          trained, "'s (checksum ", checksum, "): train the ", trained,
          " with the vocabulary of its ", role_name(frozen.role));
}

}  // namespace trafo
