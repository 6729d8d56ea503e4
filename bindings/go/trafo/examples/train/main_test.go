package main

import "testing"

func TestHeldOutSentencesAreTranslated(t *testing.T) {
	for _, preset := range []string{"tiny", "lm"} {
		bleu, err := run(t.Context(), "auto", preset)
		if err != nil {
			t.Fatal(err)
		}
		if bleu < 70 {
			t.Errorf("%s: BLEU %.1f", preset, bleu)
		}
	}
}
