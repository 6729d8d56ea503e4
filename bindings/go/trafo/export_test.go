package trafo

import "time"

// SetPatience changes how long a call waits for a callback of another goroutine until it is refused.
func SetPatience(duration time.Duration) (restore func()) {
	before := patience
	patience = duration
	return func() { patience = before }
}

// OpenTensors counts the open tensors of a context, and their bytes.
func (c *Context) OpenTensors() (count, bytes int) {
	defer c.core.leave(c.core.wait())
	return len(c.core.tensors.open), c.core.tensors.bytes
}
