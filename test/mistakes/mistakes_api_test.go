// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package mistakes_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/mistakes"
	"github.com/patchbay-cni/patchbay/test/source"
)

// update makes the test write the answers that it gets into testdata, to be read and judged.
var update = flag.Bool("update", false, "write the answers into testdata")

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apitest.MainParallel(m, 8) // kubectl and the API server take turns
}

// Each mistake is answered with the exact text of its file. They run at the same time, so that each has
// names of its own.
func TestMistakes(t *testing.T) {
	env := apitest.Start(t)
	stop, err := admissiontest.Serve(context.Background(), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	grantNetadmin(t, env)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got files %q, %v", files, err)
	}
	home := t.TempDir() // of all, so that kubectl asks for the API's kinds once
	t.Run("all", func(t *testing.T) {
		for i, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			suffix := fmt.Sprintf("-%02d", i)
			m, err := mistakes.Parse([]byte(ownNames(suffix).Replace(string(data))))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if m.Test != "" {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
				t.Parallel()
				user{env: env, home: home, suffix: suffix}.try(t, &m, file)
			})
		}
	})
}

// ownNames gives the names in a file a suffix. Those of clusters, devices and namespaces must differ.
func ownNames(suffix string) *strings.Replacer {
	pairs := []string{"storage: true", "storage: true"} // a field of CustomResourceDefinitions
	for _, name := range []string{"team-a", "team-b", "storage", "backup", "stor", "ens4", "ens5"} {
		pairs = append(pairs, name, name+suffix)
	}
	return strings.NewReplacer(pairs...)
}

// grantNetadmin gives the user netadmin its rights.
func grantNetadmin(t *testing.T, env *apitest.Env) {
	t.Helper()
	create(t, env, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "netadmin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-netadmin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: mistakes.Netadmin}},
	})
}

func create(t *testing.T, env *apitest.Env, o client.Object) {
	t.Helper()
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// behindLimit is how long the answer may be another one, because a cache is behind.
const behindLimit = 4 * time.Second

// user makes a mistake.
type user struct {
	env          *apitest.Env
	home, suffix string
}

func (u user) try(t *testing.T, m *mistakes.Mistake, file string) {
	t.Helper()
	u.prepare(t, m)
	want := strings.ReplaceAll(m.Answer, u.suffix, "")
	var got string
	for deadline := time.Now().Add(behindLimit); got != want; time.Sleep(100 * time.Millisecond) {
		var err error
		if got, err = u.kubectl(t, m); err == nil || time.Now().After(deadline) { // a cache may be behind
			break
		}
	}
	if *update {
		writeAnswer(t, file, got)
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s\nanswer (-want +got):\n%s", m.Who, m.Title, diff)
	}
}

// prepare creates the user's namespace and rights, and the objects that exist.
func (u user) prepare(t *testing.T, m *mistakes.Mistake) {
	t.Helper()
	ns := "team-a" + u.suffix
	create(t, u.env, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	create(t, u.env, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})
	for _, role := range []string{"system:aggregate-to-edit", "patchbay-tenant"} { // these make up the role edit
		create(t, u.env, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: "User", Name: mistakes.Engineer}, {APIGroup: rbacv1.GroupName, Kind: "User", Name: mistakes.Tenant},
			},
		})
	}
	for _, given := range m.Given {
		create(t, u.env, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(given)})
	}
}

// kubectl does what is wrong, and returns what the user reads.
func (u user) kubectl(t *testing.T, m *mistakes.Mistake) (string, error) {
	t.Helper()
	bin, err := source.Path("bin", "kubernetes", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	args := m.Command
	dir := t.TempDir()
	if m.Create != nil {
		text, err := yaml.Marshal(m.Create)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mistake.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = []string{"create", "-f", "mistake.yaml"}
	}
	if m.Who != mistakes.Admin {
		args = append([]string{"--as", m.Who}, args...)
	}
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.env.ControlPlane.AdminKubeconfig(), "HOME="+u.home)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return strings.TrimSpace(strings.ReplaceAll(out.String(), u.suffix, "")), err
}

// writeAnswer replaces the answer in a file, which is its last field.
func writeAnswer(t *testing.T, file, answer string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(data), "\nanswer:")
	text := head + "\nanswer: |\n  " + strings.ReplaceAll(answer, "\n", "\n  ") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
