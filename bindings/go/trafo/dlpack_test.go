package trafo_test

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// managedTensor is DLManagedTensorVersioned.
type managedTensor struct {
	major, minor     uint32
	managerCtx       unsafe.Pointer
	deleter          unsafe.Pointer
	flags            uint64
	data             unsafe.Pointer
	device, deviceID int32
	ndim             int32
	code, bits       uint8
	lanes            uint16
	shape, strides   *int64
	byteOffset       uint64
}

func TestDLPack(t *testing.T) {
	c := newContext(t)
	x := tensor(t, c, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	lent, err := x.ToDLPack()
	if err != nil {
		t.Fatal(err)
	}
	m := (*managedTensor)(lent)
	if m.major != 1 || m.ndim != 2 || m.code != 2 || m.bits != 32 || m.device != 1 {
		t.Fatalf("the struct says %+v", *m)
	}
	if s := unsafe.Slice(m.strides, 2); !slices.Equal(s, []int64{3, 1}) {
		t.Errorf("strides %v", s)
	}
	*(*float32)(m.data) = 10

	same, err := c.TensorFromDLPack(lent, trafo.CopyNever)
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	wantValues(t, "shared memory", values(t, same), []float64{10, 2, 3, 4, 5, 6})

	lent, err = same.ToDLPack()
	if err != nil {
		t.Fatal(err)
	}
	(*managedTensor)(lent).major = 2
	if _, err := c.TensorFromDLPack(lent, trafo.CopyIfNeeded); !errors.Is(err, trafo.ErrVersion) {
		t.Errorf("another major version: %v", err)
	}
	trafo.FreeDLPack(lent)
	same.Close()
	if _, err := same.ToDLPack(); err == nil {
		t.Error("a closed tensor was lent")
	}
	if _, err := c.TensorFromDLPack(nil, trafo.CopyIfNeeded); !errors.Is(err, trafo.ErrInvalidArgument) {
		t.Errorf("nil: %v", err)
	}
}
