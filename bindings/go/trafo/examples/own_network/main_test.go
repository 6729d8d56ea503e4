package main

import "testing"

func TestTheLossFalls(t *testing.T) {
	first, last, err := run("auto")
	if err != nil {
		t.Fatal(err)
	}
	if first < 3 || last > 0.1 {
		t.Errorf("the loss went from %v to %v", first, last)
	}
}
