package trafo

import (
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func encoded(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%+v: %v", value, err)
	}
	return string(data)
}

func decoded[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// Values that are unknown or not finite are missing, and the others keep their values.
func TestEventsAndMetricsAreJSON(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	event := Event{Kind: EventLog, Update: 20, Epoch: 1, Loss: 2.5, NLL: 2.25, GradNorm: 1.5, ETA: -1, BestMetric: nan, Message: "x"}
	text := encoded(t, event)
	for _, part := range []string{`"kind":"log"`, `"update":20`, `"loss":2.5`, `"nll":2.25`, `"message":"x"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s has no %s", text, part)
		}
	}
	for _, part := range []string{"best_metric", "metrics", "stop", "deciding_metric", "path"} {
		if strings.Contains(text, `"`+part+`"`) {
			t.Errorf("%s has %s, which is not known", text, part)
		}
	}
	event.BestMetric = 0
	if back := decoded[Event](t, text); !reflect.DeepEqual(back, event) {
		t.Errorf("%+v\n%+v", back, event)
	}
	validated := Event{Kind: EventValidated, Metrics: Metrics{MetricBLEU: 30, MetricCE: inf}, BestMetric: 31, DecidingMetric: MetricBLEU}
	text = encoded(t, validated)
	for _, part := range []string{`"metrics":{"bleu":30}`, `"best_metric":31`, `"deciding_metric":"bleu"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s has no %s", text, part)
		}
	}
	if back := decoded[Event](t, text); back.Metrics[MetricBLEU] != 30 || len(back.Metrics) != 1 {
		t.Errorf("%+v", back)
	}
	logged := encoded(t, Event{Kind: EventLog, ObjectiveMetrics: map[string]float64{"reward_margin": 0.5, "reward_accuracy": nan}})
	if !strings.Contains(logged, `"objective_metrics":{"reward_margin":0.5}`) {
		t.Error(logged)
	}
	if text := encoded(t, Event{Kind: EventSkipped, Loss: nan, NLL: inf, GradNorm: -inf}); strings.Contains(text, "loss") ||
		strings.Contains(text, "nll") || strings.Contains(text, "grad_norm") {
		t.Error(text)
	}
	if text := encoded(t, StepResult{Update: 3, Loss: nan, GradNorm: inf, Skipped: true}); text !=
		`{"update":3,"learning_rate":0,"labels":0,"skipped":true,"nll":0}` {
		t.Error(text)
	}
	none := ResampledScore{nan, nan, nan, nan}
	text = encoded(t, Evaluation{BLEU: ResampledScore{20, nan, nan, nan}, BaselineBLEU: none, BaselineChrF: none})
	if !strings.Contains(text, `"bleu":{"score":20}`) || strings.Contains(text, "baseline") {
		t.Error(text)
	}
	if text := encoded(t, ParameterInfo{Name: "w", DType: Int8, SignalToNoise: nan}); !strings.Contains(text, `"dtype":"int8"`) ||
		strings.Contains(text, "signal") {
		t.Error(text)
	}
}

// Nothing about options hides from JSON: zeros that are meant are kept, defaults are left out.
func TestOptionsComeBackFromJSON(t *testing.T) {
	trainer := TrainerOptions{
		LabelSmoothing: Some(0.0), ClipNorm: Some(0.0), KeepBest: Some(false), TeacherWeight: Some(0.0), Warmup: Some(0), Seed: Some(uint64(0)),
		ValidFreq: Every(0, Updates), LogFreq: Every(20000, Tokens), SaveFreq: Every(2, Epochs), Schedule: ScheduleConstant,
		ValidMetrics: MetricCE | MetricBLEU, FirstMetric: MetricCE, OptimizerStates: States8Bit, AfterUpdates: 100, RunDirectory: "run",
	}
	const text = `{"run_directory":"run","schedule":"constant","warmup":0,"label_smoothing":0,"clip_norm":0,"optimizer_states":"8bit",` +
		`"teacher_weight":0,"seed":0,"after_updates":100,"valid_freq":"0u","save_freq":"2e","log_freq":"20000t",` +
		`"valid_metrics":"bleu,ce-mean-words","first_metric":"ce-mean-words","keep_best":false}`
	if got := encoded(t, trainer); got != text {
		t.Errorf("%s\n%s", got, text)
	}
	back := decoded[TrainerOptions](t, text)
	if !reflect.DeepEqual(back, trainer) || *back.c() != *trainer.c() {
		t.Errorf("%+v\n%+v", back, trainer)
	}
	if c := back.c(); c.label_smoothing != 0 || c.keep_best != 0 || c.valid_freq.value != 0 || c.warmup != 0 || c.seed != 0 || c.clip_norm != 0 {
		t.Errorf("%+v", *c)
	}
	if encoded(t, TrainerOptions{}) != "{}" || *decodedPtr[TrainerOptions](t, "{}").c() != *(&TrainerOptions{}).c() {
		t.Error("options without a field are not the defaults")
	}
	for name, same := range map[string]bool{
		"trainer": comesBack(t, DefaultTrainerOptions(), (*TrainerOptions).c),
		"model":   comesBack(t, DefaultModelConfig(), (*ModelConfig).c),
		"search":  comesBack(t, DefaultTranslateOptions(), (*TranslateOptions).c),
		"adamw":   comesBack(t, DefaultAdamWOptions(), (*AdamWOptions).c),
	} {
		if !same {
			t.Errorf("the defaults of %s do not come back from JSON", name)
		}
	}
	for _, wrong := range []string{`{"schedule":"steep"}`, `{"valid_freq":"often"}`, `{"valid_freq":"5x"}`, `{"valid_metrics":"bleu,none"}`,
		`{"valid_freq":"5uu"}`} {
		var o TrainerOptions
		if err := json.Unmarshal([]byte(wrong), &o); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// Formats other than JSON, as YAML, read options that are not plain numbers by their text.
func TestOptionalValuesAreText(t *testing.T) {
	var share Optional[float64]
	if err := share.UnmarshalText([]byte("0")); err != nil || share != Some(0.0) {
		t.Error(share, err)
	}
	if text, err := share.MarshalText(); err != nil || string(text) != "0" || share.String() != "0" {
		t.Error(string(text), err)
	}
	if err := share.UnmarshalText(nil); err != nil || !share.IsZero() || share.String() != "default" {
		t.Error(share, err)
	}
	if err := share.UnmarshalText([]byte("much")); err == nil {
		t.Error(share)
	}
	if encoded(t, []Optional[bool]{Some(false), {}}) != "[false,null]" || decoded[[]Optional[bool]](t, "[false,null]")[0] != Some(false) {
		t.Error("a list of optional values")
	}
}

func decodedPtr[T any](t *testing.T, text string) *T { value := decoded[T](t, text); return &value }

// comesBack compares what C gets.
func comesBack[T any, C comparable](t *testing.T, options T, c func(*T) *C) bool {
	back := decoded[T](t, encoded(t, options))
	return *c(&options) == *c(&back)
}

// Every value of every enum has a name that is read back; numbers that are no value have none.
func TestEnumsAreText(t *testing.T) {
	enumIsText(t, wordsOfArchitecture, "Architecture")
	enumIsText(t, wordsOfActivation, "Activation")
	enumIsText(t, wordsOfSchedule, "Schedule")
	enumIsText(t, wordsOfOptimizerStates, "OptimizerStates")
	enumIsText(t, wordsOfBLEUTokenizer, "BLEUTokenizer")
	enumIsText(t, wordsOfEventKind, "EventKind")
	enumIsText(t, wordsOfStopReason, "StopReason")
	enumIsText(t, wordsOfExportFormat, "ExportFormat")
	enumIsText(t, wordsOfTransport, "Transport")
	enumIsText(t, wordsOfUnit, "Unit")
	enumIsText(t, wordsOfMetric, "Metric")
	enumIsText(t, wordsOfDType, "DType")
	enumIsText(t, wordsOfDevice, "Device")
	var schedule Schedule
	if err := schedule.UnmarshalText([]byte("inverse_sqrt")); err != nil || schedule != ScheduleInverseSqrt {
		t.Errorf("%v %v", schedule, err) // a name that the command line knows as well
	}
	if _, err := Schedule(77).MarshalText(); !errors.Is(err, ErrInvalidArgument) || Schedule(77).String() != "unknown" {
		t.Error(err)
	}
	if _, err := (Metric(1 << 20)).MarshalText(); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}

func enumIsText[T number](t *testing.T, all words[T], kind string) {
	seen := map[string]bool{}
	for _, each := range all {
		text, err := any(each.value).(encoding.TextMarshaler).MarshalText()
		back := new(T)
		if err != nil || seen[string(text)] || any(back).(encoding.TextUnmarshaler).UnmarshalText(text) != nil || *back != each.value {
			t.Errorf("%s %d: %q %v", kind, each.value, text, err)
		}
		seen[string(text)] = true
	}
}

// A validation by cross-entropy alone needs no second option, also in options that have the defaults.
func TestOneMetricDecidesAlone(t *testing.T) {
	defaults := DefaultTrainerOptions()
	defaults.ValidMetrics = MetricCE
	for _, options := range []TrainerOptions{{ValidMetrics: MetricCE}, defaults} {
		if c := options.c(); Metric(c.first_metric) != MetricCE || Metric(c.valid_metrics) != MetricCE {
			t.Errorf("%d of %d", c.first_metric, c.valid_metrics)
		}
		if _, err := PlanTraining(ModelConfig{Vocabulary: 100}, options, 2, 8, 8); err != nil {
			t.Error(err)
		}
	}
	both := TrainerOptions{ValidMetrics: MetricChrF | MetricCE, FirstMetric: MetricCE}
	if c := both.c(); Metric(c.first_metric) != MetricCE {
		t.Error(c.first_metric)
	}
}
