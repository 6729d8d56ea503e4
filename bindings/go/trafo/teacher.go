package trafo

// #include "trafo.h"
import "C"

// LoadTeacher gives the model a teacher: a model file, a directory with one, or a run directory, whose
// best model it is. In training the teacher runs beside the model, frozen and in its precision, and
// TrainerOptions.TeacherWeight is its share in the loss. A run resumes with the same teacher only.
// ErrInvalidArgument, naming both: another architecture or vocabulary.
func (m *Model) LoadTeacher(path string) error {
	return m.in("Model.LoadTeacher", func() *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_load_teacher(m.ptr, data, length)
	})
}

// RemoveTeacher frees the teacher. ErrInvalidArgument: the model has no teacher.
func (m *Model) RemoveTeacher() error {
	return m.in("Model.RemoveTeacher", func() *C.trafo_error {
		return C.trafo_model_remove_teacher(m.ptr)
	})
}

// LoadReference gives the model the reference that ObjectiveDPO or ObjectiveKTO compares it with, usually the file that its
// weights come from, in place of a teacher or an earlier reference. A model with an adapter needs none: without
// its adapter it is its own reference. Otherwise as LoadTeacher.
func (m *Model) LoadReference(path string) error {
	return m.in("Model.LoadReference", func() *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_load_reference(m.ptr, data, length)
	})
}

// RemoveReference frees the reference. ErrInvalidArgument: the model has no reference.
func (m *Model) RemoveReference() error {
	return m.in("Model.RemoveReference", func() *C.trafo_error {
		return C.trafo_model_remove_reference(m.ptr)
	})
}
