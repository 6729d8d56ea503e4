package main

import "testing"

func TestHeldOutSentencesAreTranslated(t *testing.T) {
	bleu, err := run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if bleu < 70 {
		t.Errorf("BLEU %.1f", bleu)
	}
}
