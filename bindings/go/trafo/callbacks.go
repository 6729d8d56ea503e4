package trafo

// #include "trafo.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

//export trafoGoRegion
func trafoGoRegion(handle C.uintptr_t, inputs **C.trafo_tensor, inputCount C.size_t, outputs **C.trafo_tensor, outputCount C.size_t) C.int32_t {
	body := cgo.Handle(handle).Value().(*regionBody)
	return body.run(unsafe.Slice(inputs, inputCount), unsafe.Slice(outputs, outputCount))
}

//export trafoGoCustom
func trafoGoCustom(handle C.uintptr_t, backward C.int32_t, inputs **C.trafo_tensor, inputCount C.size_t, outputs **C.trafo_tensor, outputCount C.size_t) C.int32_t {
	body := cgo.Handle(handle).Value().(*customBody)
	half := &body.forward
	if backward != 0 {
		half = &body.backward
	}
	return half.run(unsafe.Slice(inputs, inputCount), unsafe.Slice(outputs, outputCount))
}

//export trafoGoFree
func trafoGoFree(handle C.uintptr_t) { cgo.Handle(handle).Delete() }

//export trafoGoEvent
func trafoGoEvent(handle C.uintptr_t, event *C.trafo_event) C.int32_t {
	return cgo.Handle(handle).Value().(*eventBody).run(event)
}
