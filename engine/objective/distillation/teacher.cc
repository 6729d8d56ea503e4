#include "engine/objective/distillation/teacher.h"

#include <utility>

#include "engine/core/generated/option_enums.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

constexpr const char* kTeacherOrigin = "teacher";

}  // namespace

std::shared_ptr<const Teacher> frozen_teacher(Context& context, std::unique_ptr<Model> model) {
  model->parameters().set_trainable(context, "*", false);
  return std::make_shared<Teacher>(Teacher{std::move(model), {}});
}

std::shared_ptr<const Teacher> load_teacher(Context& context, const Model& student,
                                            const std::filesystem::path& file) {
  const SafetensorsReader reader = open_model(file);
  const ModelConfig config = read_model_config(reader), &own = student.config();
  require(config.architecture == own.architecture, ErrorCode::invalid_argument, kTeacherOrigin,
          reader.label(), " has the architecture ", enum_name(config.architecture),
          ", the student has ", enum_name(own.architecture));
  require(config.vocabulary == own.vocabulary, ErrorCode::invalid_argument, kTeacherOrigin,
          reader.label(), " has a vocabulary of ", config.vocabulary,
          " tokens, the student one of ", own.vocabulary,
          ": train the student with the vocabulary of its teacher");
  std::unique_ptr<Model> model = load_model(context, reader, student.parameters().dtype());
  if (model->adapter()) {
    merge_adapter(context, *model);
    remove_adapter(context, *model);
  }
  model->parameters().set_trainable(context, "*", false);
  std::string checksum = base_checksums(context, model->parameters()).all;
  auto teacher = std::make_shared<Teacher>(Teacher{std::move(model), std::move(checksum)});
  require_teacher_vocabulary(*teacher, student.origin().vocabulary);
  return teacher;
}

void require_teacher_vocabulary(const Teacher& teacher, std::string_view checksum) {
  const Model::Origin& origin = teacher.model->origin();
  require(checksum.empty() || origin.vocabulary.empty() || origin.vocabulary == checksum,
          ErrorCode::invalid_argument, kTeacherOrigin, origin.file,
          " was trained with another vocabulary (checksum ", origin.vocabulary,
          ") than the student's (checksum ", checksum,
          "): train the student with the vocabulary of its teacher");
}

}  // namespace trafo
