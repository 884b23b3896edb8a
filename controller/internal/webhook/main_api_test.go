// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apitest.Main(m)
}

// shared is the API server with admission of most tests.
var shared struct {
	sync.Once
	env *apitest.Env
	err error
}

// start returns the shared API server, with admission served by this process.
func start(t *testing.T) *apitest.Env {
	t.Helper()
	shared.Do(func() {
		shared.env = apitest.Start(t)
		_, shared.err = admissiontest.Serve(context.Background(), shared.env, nil) // it outlives this test
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.env
}

// kubectl runs kubectl with a manifest as a user, and returns its output.
func kubectl(t *testing.T, env *apitest.Env, manifest string, args ...string) (string, error) {
	t.Helper()
	bin, err := source.Path("bin", "kubernetes", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.ControlPlane.AdminKubeconfig(), "HOME="+home)
	cmd.Stdin = strings.NewReader(manifest)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return strings.ReplaceAll(out.String(), filepath.Clean(home), "~"), err
}

// object parses one object from YAML.
func object(tb testing.TB, kind, namespace, name, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		tb.Fatalf("object of the test: %v\n%s", err, text)
	}
	u.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
