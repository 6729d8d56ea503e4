//go:build cgo

package trafo

import (
	"encoding/json"
	"fmt"
)

// Optional is the type of options for which zero or false is another choice than the default. Its zero value is
// the default, and [Some] makes one that is given. It is comparable, and in JSON and text it is the value itself.
type Optional[T bool | int | int64 | uint64 | float64] struct {
	value T
	given bool
}

// Some gives an option a value: a Dropout of Some(0.0) is no dropout, one that is left out is the default.
func Some[T bool | int | int64 | uint64 | float64](value T) Optional[T] {
	return Optional[T]{value, true}
}

// Get gives the value, and whether one was given.
func (o Optional[T]) Get() (value T, given bool) { return o.value, o.given }

// Or gives the value, or fallback if none was given.
func (o Optional[T]) Or(fallback T) T {
	if o.given {
		return o.value
	}
	return fallback
}

// IsZero says that no value was given: the tag omitzero leaves such an option out.
func (o Optional[T]) IsZero() bool { return !o.given }

// String gives the value as text; "default" if none was given.
func (o Optional[T]) String() string {
	if !o.given {
		return "default"
	}
	return fmt.Sprint(o.value)
}

// MarshalJSON gives the value, or null.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.given {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON reads a value; null means no value.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	var value *T
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	*o = Optional[T]{}
	if value != nil {
		*o = Some(*value)
	}
	return nil
}

// MarshalText gives the value as text for other formats than JSON; nothing if none was given.
func (o Optional[T]) MarshalText() ([]byte, error) {
	if !o.given {
		return nil, nil
	}
	return json.Marshal(o.value)
}

// UnmarshalText reads such a text.
func (o *Optional[T]) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		text = []byte("null")
	}
	return o.UnmarshalJSON(text)
}
