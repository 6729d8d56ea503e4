package trafo

// #include "trafo.h"
import "C"

import (
	"strconv"
	"strings"
)

// ParseDevice reads "auto", "cpu", "cuda" or "cuda:1", for WithDevice.
func ParseDevice(text string) (device Device, index int, err error) {
	switch text {
	case "auto":
		return Auto, 0, nil
	case "cpu":
		return CPU, 0, nil
	case "cuda":
		return CUDA, 0, nil
	}
	if digits, found := strings.CutPrefix(text, "cuda:"); found {
		if number, err := strconv.ParseUint(digits, 10, 31); err == nil {
			return CUDA, int(number), nil
		}
	}
	return 0, 0, refuse("ParseDevice", "a device is auto, cpu, cuda or cuda:N, not %q", text)
}

// Info describes a CPU (index 0) or CUDA device without opening it.
func (d Device) Info(index int) (DeviceInfo, error) {
	var c C.trafo_device_info
	if err := check(C.trafo_device_get_info(C.int32_t(d), cInt(index), &c, C.sizeof_trafo_device_info)); err != nil {
		return DeviceInfo{}, err
	}
	return newDeviceInfo(&c), nil
}

// CUDADevices lists the CUDA devices of this machine. Without devices, the error says what is
// missing and where it was looked for.
func CUDADevices() ([]DeviceInfo, error) {
	var count C.int32_t
	var why *C.char
	if err := check(C.trafo_device_count(C.TRAFO_DEVICE_CUDA, &count, &why)); err != nil {
		return nil, err
	}
	if reason := takeCString(why); count == 0 {
		return nil, &Error{Code: ErrUnsupported, Origin: "CUDADevices", Message: reason}
	}
	devices := make([]DeviceInfo, count)
	for i := range devices {
		var err error
		if devices[i], err = CUDA.Info(i); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// Device is the device that computes, CPU or CUDA, and its index, also where Auto was asked for.
func (c *Context) Device() (device Device, index int, err error) {
	var kind, number C.int32_t
	err = c.call("Context.Device", func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_context_get_device(ptr, &kind, &number)
	})
	return Device(kind), int(number), err
}
