package main

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const repository = "../../../../../"

// inFile is what the pattern's group has at its only place in the text.
func inFile(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%q is there %d times", pattern, len(found))
	}
	return found[0][1]
}

// serverStage is the stage of the Dockerfile that makes the server's image.
func serverStage(t *testing.T) string {
	t.Helper()
	image := string(value(os.ReadFile(repository + "Dockerfile"))(t))
	_, stage, found := strings.Cut(image, " AS server\n")
	if !found {
		t.Fatal("the Dockerfile has no stage server")
	}
	stage, _, _ = strings.Cut(stage, "\nFROM ")
	return stage
}

// The image, the manifest and the server must agree; a cluster would tell too late.
func TestImageAndManifestFitTheServer(t *testing.T) {
	stage := serverStage(t)
	manifest := string(value(os.ReadFile("kubernetes.yaml"))(t))
	_, command, _ := strings.Cut(stage, "ENTRYPOINT ")
	arguments := regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(command, -1)

	usage, _ := exec.Command(program(t), "-help").CombinedOutput()
	given := map[string]string{}
	for i := 1; i+1 < len(arguments); i += 2 {
		flag := arguments[i][1]
		if !strings.Contains(string(usage), "  "+flag+" ") {
			t.Errorf("the server has no %s", flag)
		}
		given[flag] = arguments[i+1][1]
	}
	if _, port, _ := strings.Cut(given["-listen"], ":"); port != inFile(t, stage, `EXPOSE (\d+)`) ||
		port != inFile(t, manifest, `containerPort: (\d+)`) || port != inFile(t, manifest, `prometheus.io/port: "(\d+)"`) {
		t.Error("ports differ: ", given["-listen"])
	}
	drain, grace := value(time.ParseDuration(given["-drain"]))(t), value(time.ParseDuration(given["-grace"]))(t)
	patience := value(strconv.Atoi(inFile(t, manifest, `terminationGracePeriodSeconds: (\d+)`)))(t)
	if time.Duration(patience)*time.Second <= drain+grace {
		t.Errorf("the cluster waits %d s for an end that may take %v", patience, drain+grace)
	}
	unready := regexp.MustCompile(`(?s)path: /readyz.*?periodSeconds: (\d+).*?failureThreshold: (\d+)`).FindStringSubmatch(manifest)
	period, misses := value(strconv.Atoi(unready[1]))(t), value(strconv.Atoi(unready[2]))(t)
	if time.Duration(period*misses)*time.Second >= drain {
		t.Errorf("a replica is not ready only after %d s, and accepts requests for %v", period*misses, drain)
	}
	user := inFile(t, stage, `USER (\d+):\d+`)
	if user == "0" || user != inFile(t, manifest, `runAsUser: (\d+)`) {
		t.Error("the image's user is ", user)
	}

	release := make(chan struct{})
	close(release)
	url, _ := start(t, t.Context(), testConfig(), held(release))
	for _, path := range regexp.MustCompile(`path: (/\w+)`).FindAllStringSubmatch(manifest, -1) {
		got := value(http.Get(url + path[1]))(t)
		got.Body.Close()
		if got.StatusCode != http.StatusOK {
			t.Error(path[1], " gives ", got.Status)
		}
	}
}

// The image has the packages of all libraries that the server asks for.
func TestImageHasTheServersLibraries(t *testing.T) {
	installed := strings.Fields(inFile(t, serverStage(t), `--no-install-recommends ([^&]*) &&`))
	needed := string(value(exec.Command("ldd", program(t)).Output())(t))
	for _, library := range regexp.MustCompile(`(?m)^\s*(lib\S+\.so\S*)`).FindAllStringSubmatch(needed, -1) {
		name := library[1]
		if regexp.MustCompile(`^lib(c|m|gcc_s|dl|pthread|resolv)\.so`).MatchString(name) {
			continue // of libc6 and libgcc-s1, which every image of Debian has
		}
		path := regexp.MustCompile(regexp.QuoteMeta(name) + ` => (\S+)`).FindStringSubmatch(needed)
		if path == nil {
			t.Errorf("%s is not found", name)
			continue
		}
		_, base, _ := strings.Cut(path[1], "/lib/")
		owner, err := exec.Command("dpkg-query", "-S", "*/"+base).Output()
		if err != nil {
			t.Errorf("no package has %s", path[1])
			continue
		}
		if of, _, _ := strings.Cut(string(owner), ":"); !strings.Contains(" "+strings.Join(installed, " ")+" ", " "+of+" ") {
			t.Errorf("%s is of the package %s, which the image does not install: %v", name, of, installed)
		}
	}
}
