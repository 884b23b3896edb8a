// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Builds have the settings of Go's defaults, whatever is in the user's environment and in the file of `go env -w`. The
// places that modules come from and where files are stored are the user's.
func TestBuildEnvironment(t *testing.T) {
	dir := t.TempDir()
	settings := filepath.Join(dir, "env")
	const text = "GOEXPERIMENT=nogreenteagc\nGO_EXTLINK_ENABLED=1\nGOPROXY=off\nGOPRIVATE=git.example\nGOAMD64=v2\nGOFLAGS=-tags=other\nGODEBUG=panicnil=1\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", settings)
	t.Setenv("GOARM64", "v9.0")
	t.Setenv("GOFIPS140", "latest")
	t.Setenv("GOCACHE", filepath.Join(dir, "cache"))
	want := map[string]string{
		"GOENV": "", "GOOS": "linux", "GOARCH": "arm64", "GOARM64": "v8.0", "GOEXPERIMENT": "", "GO_EXTLINK_ENABLED": "", "GODEBUG": "",
		"GOFIPS140": "off", "GOFLAGS": "-buildvcs=false -trimpath", "GOWORK": "off", "CGO_ENABLED": "0",
		"GOPROXY": "off", "GOPRIVATE": "git.example", "GOCACHE": filepath.Join(dir, "cache"),
	}
	command := []string{"go", "env", "-json"}
	for name := range want {
		command = append(command, name)
	}
	var out bytes.Buffer
	if err := runBuild(command, dir, product.Platform{OS: "linux", Arch: "arm64"}, &out); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings of the build (-want +got):\n%s", diff)
	}
}

// A program of an earlier build is used again only if it was built with the same settings.
func TestBuildAgain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    string
		builds int
	}{
		"Same":       {reason: "nothing changed", env: "GOEXPERIMENT=", builds: 1},
		"Flags":      {reason: "the caller's flags do not reach the build", env: "GOFLAGS=-tags=other", builds: 1},
		"Experiment": {reason: "experiments change the program", env: "GOEXPERIMENT=nogreenteagc", builds: 2},
		"Link":       {reason: "the external linker writes another program", env: "GO_EXTLINK_ENABLED=1", builds: 2},
		"FIPS":       {reason: "the program has another cryptography", env: "GOFIPS140=latest", builds: 2},
		"Processor":  {reason: "the program has other instructions", env: "GOAMD64=v3", builds: 2},
	}
	for name, tc := range cases {
		for _, script := range []string{"build-kubernetes", "build-etcd"} {
			t.Run(name+"/"+script, func(t *testing.T) {
				t.Parallel()
				dir := scriptFolder(t, script)
				runScript(t, dir, script)
				runScript(t, dir, script, tc.env)
				if got := strings.Count(readString(t, dir, "builds"), "build with flags []\n"); got != tc.builds {
					t.Errorf("%s: got %d builds without flags, want %d; all builds:\n%s", tc.reason, got, tc.builds, readString(t, dir, "builds"))
				}
			})
		}
	}
}

// scriptFolder returns a folder with a script that builds programs, and with a go command that counts its builds.
func scriptFolder(t *testing.T, script string) string {
	t.Helper()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"scripts/" + script:      readString(t, root, "scripts/"+script),
		"scripts/progress":       "#!/bin/sh\nshift 4\nexec \"$@\"\n",
		"scripts/content-times":  "#!/bin/sh\n",
		"test/etcd/go.mod":       "",
		"test/etcd/go.sum":       "",
		"test/kubernetes/go.mod": "",
		"test/kubernetes/go.sum": "",
		"path/go": `#!/bin/sh
case "$1 $2" in
"list tool") echo k8s.io/kubernetes/cmd/kubelet ;;
"list -m") echo v1.2.3 ;;
env\ *) shift && for name; do eval "echo \"\${$name-}\""; done ;;
build\ *)
	echo "build with flags [$GOFLAGS]" >>"$BUILDS"
	while [ "$1" != -o ]; do shift; done
	case "$2" in */) out=$2/kubelet ;; *) out=$2 ;; esac
	echo '#!/bin/sh' >"$out" && chmod +x "$out"
	;;
esac
`,
	})
	return dir
}

// runScript runs a script in its folder, with more variables in its environment.
func runScript(t *testing.T, dir, script string, env ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "scripts", script))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"), "BUILDS="+filepath.Join(dir, "builds"))
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}
