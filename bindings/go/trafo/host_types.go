package trafo

// #include "trafo.h"
import "C"

import "unsafe"

// Integer is any integer type.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// NewIntegers copies integers of any type, such as int64 labels or a uint8 mask, into a new tensor of Int32.
// ErrInvalidArgument names the first one that an int32 cannot hold.
func NewIntegers[T Integer](c *Context, data []T, shape ...int) (*Tensor, error) {
	narrow := make([]int32, len(data))
	for i, value := range data {
		narrow[i] = int32(value)
		if T(narrow[i]) != value || (narrow[i] < 0) != (value < 0) {
			return nil, refuse("NewIntegers", "data: element %d is %d, which an int32 cannot hold", i, value)
		}
	}
	return NewTensor(c, narrow, shape...)
}

// Integers copies the elements of an Int32 tensor as another integer type. ErrInvalidArgument names the first one that it
// cannot hold.
func Integers[T Integer](t *Tensor) ([]T, error) {
	data, err := read[int32](t, "Integers")
	if err != nil {
		return nil, err
	}
	result := make([]T, len(data))
	for i, value := range data {
		result[i] = T(value)
		if int64(result[i]) != int64(value) || (result[i] < 0) != (value < 0) {
			return nil, refuse("Integers", "element %d is %d, which the type asked for cannot hold", i, value)
		}
	}
	return result, nil
}

// NewBFloat16 makes a tensor of BFloat16 with these bits, the upper halves of float32s.
func NewBFloat16(c *Context, bits []uint16, shape ...int) (*Tensor, error) {
	const origin = "NewBFloat16"
	if err := fits(origin, len(bits), shape); err != nil {
		return nil, err
	}
	return c.newTensor(origin, BFloat16, shape, unsafe.Pointer(first(bits)), 2*len(bits))
}

// BFloat16Bits copies the bits of a BFloat16 tensor, in row-major order.
func (t *Tensor) BFloat16Bits() ([]uint16, error) {
	const origin = "Tensor.BFloat16Bits"
	if t != nil && t.c != nil && t.dtype != BFloat16 {
		return nil, &Error{Code: ErrDTypeMismatch, Origin: origin, Message: "the tensor is of " + t.dtype.String()}
	}
	var bits []uint16
	err := t.in(origin, func() *C.trafo_error {
		bits = make([]uint16, t.Len())
		return C.trafo_tensor_read(t.ptr, unsafe.Pointer(first(bits)), C.size_t(2*len(bits)))
	})
	if err != nil {
		return nil, err
	}
	return bits, nil
}
