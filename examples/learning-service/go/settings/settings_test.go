package settings

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestOptionsAreCheckedByName(t *testing.T) {
	for _, c := range []struct{ arguments, says string }{
		{"--beam 2 --train-share 0.5", ""},
		{"--beam x", "--beam"},
		{"--beam", "beam"},
		{"--bean 2", "--bean"},
		{"--device cuda:1", ""},
		{"--device gpu", "--device: "},
		{"--queue 0", "--queue must be at least 1"},
		{"--replay -1", "--replay must be at least 0"},
		{"--updates 20", "--updates must be above --warmup"},
		{"--train-share 0", "--train-share must be above 0"},
		{"--busy-share NaN", "--busy-share must be"},
		{"--share 1", "--share must be"},
		{"--time-limit 90000", "--time-limit must be"},
		{"more", `"more"`},
	} {
		_, err := Parse(strings.Fields(c.arguments), io.Discard)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.arguments, err)
		}
	}
}

func TestSettingsOfARoundHaveTheFormOfTheServiceInRust(t *testing.T) {
	const rust = `{"seed":1,"rank":8,"learning_rate":0.003,"warmup":20,"updates":400,"every":20,"patience":5,` +
		`"batch_tokens":1024,"replay":12000,"share":0.15,"per_person":200,"most":5000}`
	text, err := json.Marshal(Default().Learning)
	if err != nil || string(text) != rust {
		t.Errorf("%s, %v", text, err)
	}
	for _, c := range []struct{ text, says string }{
		{rust, ""},
		{strings.Replace(rust, `"rank":8,`, "", 1), "missing field `rank`"},
		{strings.Replace(rust, `"rank"`, `"form":1,"rank"`, 1), "form"},
		{strings.Replace(rust, "0.003", "1.0", 1), ""},
	} {
		var read Learning
		err := read.Read(c.text)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
	if text, _ := json.Marshal(Decimal(1)); string(text) != "1.0" {
		t.Errorf("%s", text)
	}
}
