package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesOfOtherSitesAndOtherNamesOfThisMachineAreRefused(t *testing.T) {
	for _, host := range []string{"localhost", "LOCALHOST:8080", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:8080"} {
		if checkSender(host, nil, false) != nil || checkSender(host, []string{"http://" + host}, false) != nil {
			t.Error(host)
		}
		if checkSender(host, []string{"http://example.com"}, false) == nil {
			t.Error(host)
		}
	}
	for _, host := range []string{"example.com:8080", "127.0.0.1.example.com", "localhost.example.com", "192.168.0.1", "", "[::1%lo]"} {
		if checkSender(host, nil, false) == nil || checkSender(host, nil, true) != nil {
			t.Error(host)
		}
	}
	if checkSender("example.com", []string{"https://example.com"}, true) != nil {
		t.Error("its own page is refused")
	}
	for _, origin := range []string{"", "null", "http://localhost:81", "file://", "http://https://localhost:8080", "http://localhost:8080.example.com"} {
		if checkSender("localhost:8080", []string{origin}, true) == nil {
			t.Error(origin)
		}
	}
}

func TestRoutesTokensAndForms(t *testing.T) {
	router := &Router{Token: "secret", Open: []string{"/"}}
	echo := func(w http.ResponseWriter, _ *http.Request, values []string) error {
		JSON(w, http.StatusOK, values)
		return nil
	}
	for _, route := range [][2]string{{"GET", "/"}, {"GET", "/people/*"}, {"DELETE", "/people/*"}, {"GET", "/v1/models/*"}} {
		router.Routes = append(router.Routes, Route{route[0], route[1], echo})
	}
	for _, c := range []struct {
		method, path, token string
		status              int
		says                string
	}{
		{"GET", "/", "", 200, "null"},
		{"HEAD", "/", "", 200, ""},
		{"GET", "/people/a%20b", "Bearer secret", 200, `["a b"]`},
		{"GET", "/people/a%2Fb", "bearer  secret", 200, `["a/b"]`},
		{"GET", "/people/..", "Bearer secret", 200, `[".."]`},
		{"GET", "/people/", "Bearer secret", 404, "no such path"},
		{"GET", "/people/%ff", "Bearer secret", 400, "UTF-8"},
		{"POST", "/people/a", "Bearer secret", 405, "method"},
		{"GET", "/people/a", "Bearer secre", 401, `{"error":"the bearer`},
		{"GET", "/people/a", "Basic secret", 401, "token"},
		{"GET", "/v1/models/a", "", 401, `"code":"invalid_api_key"`},
		{"GET", "/v1/nothing", "Bearer secret", 404, `"type":"invalid_request_error"`},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Authorization", c.token)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
		if c.status == 405 && w.Header().Get("Allow") != "GET, DELETE" {
			t.Error(w.Header())
		}
	}
}

func TestMembersAreExact(t *testing.T) {
	take := func(text string) (string, error) {
		fields, err := ParseFields([]byte(text))
		if err != nil {
			return "", err
		}
		name, err := Need[string](fields, "name", "a string")
		if err != nil {
			return "", err
		}
		list, err := TakeOr(fields, "list", "a list", Texts{"none"})
		if err != nil {
			return "", err
		}
		count, err := TakeOr[int64](fields, "count", "an integer", 7)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(name, list, count), fields.End()
	}
	for text, says := range map[string]string{
		`{"name": "a"}`: "a[none] 7",
		`{"name": "a", "list": ["b"], "count": 8}`:   "a[b] 8",
		`{"name": "a", "list": null, "count": null}`: "a[none] 7",
		`{"name": "a", "list": [null]}`:              `"list"`,
		`{"name": "a", "count": 1.5}`:                `"count"`,
		`{"name": "a", "count": 1e3}`:                `"count"`,
		`{"Name": "a"}`:                              `"name" is missing`,
		`{"name": null}`:                             `"name" is missing`,
		`{"name": "a", "more": 1}`:                   `"more" is no member`,
		`[]`:                                         "no JSON object",
		`null`:                                       "no JSON object",
		`{"name": "a"} {}`:                           "the request:",
		"{\"name\": \"\xff\"}":                       "UTF-8",
		`{"name": "a", "list": "` + string([]byte{'b', '"'}) + `}`: "a[b] 7",
	} {
		found, err := take(text)
		if err != nil {
			found = err.Error()
		}
		if !strings.Contains(found, says) {
			t.Errorf("%s: %s", text, found)
		}
	}
	if body, _ := json.Marshal(OpenAIForm(&Refusal{Status: 500})); !strings.Contains(string(body), "server_error") {
		t.Errorf("%s", body)
	}
}
