//go:build !race

package trafo_test

const raceDetector = false
