package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"unicode/utf8"
)

// Fields are the members of a request that were not taken yet. Their names have upper and lower case.
type Fields map[string]json.RawMessage

// ReadFields reads the body of a request, which must be an object.
func ReadFields(w http.ResponseWriter, r *http.Request, most int) (Fields, error) {
	body, err := ReadBody(w, r, most)
	if err != nil {
		return nil, err
	}
	return ParseFields(body)
}

// ParseFields reads an object.
func ParseFields(text []byte) (Fields, error) {
	if !utf8.Valid(text) {
		return nil, Refuse(http.StatusBadRequest, "the request is no UTF-8 text")
	}
	var fields Fields
	if err := json.Unmarshal(text, &fields); err != nil {
		var wrongKind *json.UnmarshalTypeError
		if errors.As(err, &wrongKind) {
			return nil, Refuse(http.StatusBadRequest, "the request is no JSON object")
		}
		return nil, Refuse(http.StatusBadRequest, "the request: %v", err)
	}
	if fields == nil {
		return nil, Refuse(http.StatusBadRequest, "the request is no JSON object")
	}
	return fields, nil
}

// Take takes a member. nil: it is missing or null. what: the values that it can have.
func Take[T any](f Fields, name, what string) (*T, error) {
	text, there := f[name]
	delete(f, name)
	if !there || bytes.Equal(text, []byte("null")) {
		return nil, nil
	}
	value := new(T)
	if err := json.Unmarshal(text, value); err != nil {
		return nil, About(name, "is %s", what)
	}
	return value, nil
}

// TakeOr is Take with a default.
func TakeOr[T any](f Fields, name, what string, otherwise T) (T, error) {
	value, err := Take[T](f, name, what)
	if value == nil {
		return otherwise, err
	}
	return *value, err
}

// Need is Take of a member that must be there.
func Need[T any](f Fields, name, what string) (T, error) {
	value, err := Take[T](f, name, what)
	if value == nil {
		var none T
		if err == nil {
			err = About(name, "is missing: it is %s", what)
		}
		return none, err
	}
	return *value, nil
}

// End refuses members that were not taken.
func (f Fields) End() error {
	for name := range f {
		return About(name, "is no member of this request")
	}
	return nil
}

// Texts is a string or a list of strings.
type Texts []string

// UnmarshalJSON reads both forms.
func (t *Texts) UnmarshalJSON(text []byte) error {
	var one string
	if text[0] == '"' {
		err := json.Unmarshal(text, &one)
		*t = Texts{one}
		return err
	}
	var many []*string
	if err := json.Unmarshal(text, &many); err != nil {
		return err
	}
	if slices.Contains(many, nil) {
		return errors.New("null is no string")
	}
	*t = Texts{}
	for _, each := range many {
		*t = append(*t, *each)
	}
	return nil
}
