//go:build cgo

package trafo

import "strings"

type number interface{ ~int | ~int32 }

// word is a value of an enum and its names; the first one is printed, all are read.
type word[T number] struct {
	value T
	names []string
}

type words[T number] []word[T]

func (w words[T]) find(value T) (name string, found bool) {
	for _, each := range w {
		if each.value == value {
			return each.names[0], true
		}
	}
	return "unknown", false
}

func (w words[T]) name(value T) string {
	name, _ := w.find(value)
	return name
}

func (w words[T]) marshal(value T) ([]byte, error) {
	name, found := w.find(value)
	if !found {
		return nil, refuse("MarshalText", "%d is no %T", value, value)
	}
	return []byte(name), nil
}

func (w words[T]) unmarshal(to *T, text []byte) error {
	var known []string
	for _, each := range w {
		for _, name := range each.names {
			if name == string(text) {
				*to = each.value
				return nil
			}
		}
		if each.names[0] != "" {
			known = append(known, each.names[0])
		}
	}
	return refuse("UnmarshalText", "%q is no %T: it is one of %s", text, *to, strings.Join(known, ", "))
}
