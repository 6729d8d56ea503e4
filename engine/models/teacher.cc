#include "engine/models/teacher.h"

#include <utility>

#include "engine/core/generated/option_enums.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

constexpr const char* kTeacherOrigin = "teacher";

}  // namespace

Model::Teacher planned_teacher(Context& context, std::unique_ptr<Model> model) {
  model->parameters().set_trainable(context, "*", false);
  return {std::move(model), {}};
}

void load_teacher(Context& context, Model& student, const std::filesystem::path& file) {
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
  const std::optional<Model::Teacher> before = student.teacher();
  student.set_teacher(Model::Teacher{std::move(model), std::move(checksum)});
  try {
    require_teacher_vocabulary(student, student.origin().vocabulary);
  } catch (...) {
    student.set_teacher(before);
    throw;
  }
}

void require_teacher_vocabulary(const Model& student, std::string_view checksum) {
  if (!student.teacher() || checksum.empty()) return;
  const Model::Origin& origin = student.teacher()->model->origin();
  require(origin.vocabulary.empty() || origin.vocabulary == checksum, ErrorCode::invalid_argument,
          kTeacherOrigin, origin.file, " was trained with another vocabulary (checksum ",
          origin.vocabulary, ") than the student's (checksum ", checksum,
          "): train the student with the vocabulary of its teacher");
}

}  // namespace trafo
