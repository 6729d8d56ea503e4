package serving

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Metrics counts requests and sentences for /metrics, in Prometheus' text format.
type Metrics struct {
	lock      sync.Mutex
	requests  map[int]int64 // of /translate, by status
	sentences int64
	truncated int64
	queued    int
	latency   histogram
	batches   histogram
}

// histogram counts observations up to each bound.
type histogram struct {
	bounds []float64
	counts []int64 // one more than bounds
	sum    float64
}

func newHistogram(bounds ...float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) observe(value float64) {
	i, _ := slices.BinarySearch(h.bounds, value)
	h.counts[i]++
	h.sum += value
}

func (h *histogram) write(w io.Writer, name, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name)
	var total int64
	for i, bound := range h.bounds {
		total += h.counts[i]
		fmt.Fprintf(w, "%s_bucket{le=%q} %d\n", name, strconv.FormatFloat(bound, 'g', -1, 64), total)
	}
	total += h.counts[len(h.bounds)]
	fmt.Fprintf(w, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", name, total, name, h.sum, name, total)
}

// NewMetrics begins with zeros.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: map[int]int64{},
		latency:  newHistogram(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
		batches:  newHistogram(1, 2, 4, 8, 16, 32, 64, 128, 256),
	}
}

// Answered counts a request to /translate.
func (m *Metrics) Answered(status int, took time.Duration) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.requests[status]++
	m.latency.observe(took.Seconds())
}

func (m *Metrics) queue(lines int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.queued = lines
}

func (m *Metrics) batch(lines int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.batches.observe(float64(lines))
}

func (m *Metrics) translated(lines, truncated int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.sentences += int64(lines)
	m.truncated += int64(truncated)
}

// Write gives all numbers.
func (m *Metrics) Write(w io.Writer) {
	m.lock.Lock()
	defer m.lock.Unlock()
	fmt.Fprint(w, "# HELP translate_requests_total Requests to /translate, by status.\n# TYPE translate_requests_total counter\n")
	statuses := make([]int, 0, len(m.requests))
	for status := range m.requests {
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	for _, status := range statuses {
		fmt.Fprintf(w, "translate_requests_total{code=\"%d\"} %d\n", status, m.requests[status])
	}
	for _, v := range []struct {
		name, kind, help string
		value            int64
	}{
		{"translate_sentences_total", "counter", "Sentences translated.", m.sentences},
		{"translate_truncated_total", "counter", "Sentences cut because they are longer than the model takes.", m.truncated},
		{"translate_queue_sentences", "gauge", "Sentences that wait for their batch.", int64(m.queued)},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", v.name, v.help, v.name, v.kind, v.name, v.value)
	}
	m.latency.write(w, "translate_request_seconds", "Time from a request to its answer.")
	m.batches.write(w, "translate_batch_sentences", "Sentences translated together.")
}
