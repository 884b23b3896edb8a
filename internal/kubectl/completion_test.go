// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// The hidden verb __complete answers shells. Its last line is the directive.
func TestCompletionWithoutACluster(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := "{apiVersion: v1, kind: Config, contexts: [{name: west, context: {}}, {name: hub, context: {}}]}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Verbs":    {reason: "verbs are known", args: []string{"hub", "re"}, want: "remove-finalizers\t"},
		"Contexts": {reason: "contexts are in the kubeconfig", args: []string{"cluster", "list", "--context", ""}, want: "hub\nwest\n:4\n"},
		"Kinds":    {reason: "kinds of networks are known", args: []string{"ipam", "rebuild", ""}, want: "clusternetwork/\ntenantnetwork/\ndanmnet/\n:4\n"},
		"Kind":     {reason: "the name follows the slash", args: []string{"ipam", "rebuild", "cl"}, want: "clusternetwork/\n:6\n"},
		"Answers":  {reason: "the answers are known", args: []string{"hub", "resume", "--take", ""}, want: "cluster\nhub\n:4\n"},
		"Formats":  {reason: "the formats are known", args: []string{"cluster", "list", "-o", "js"}, want: "json\n"},
		"Minors":   {reason: "the last of several versions is completed", args: []string{"crd", "compile", "--kubernetes", "1.31,1.36"}, want: "1.31,1.36\n:6\n"},
		"Rules":    {reason: "the rules are known", args: []string{"crd", "compile", "--recursive-types", ""}, want: "refuse\ncut\n:4\n"},
		"Away":     {reason: "a shell cannot show errors", args: []string{"cluster", "accept", "--server=http://127.0.0.1:1", ""}, want: ":1\n"},
		"Importer": {reason: "a context of the kubeconfig leads to the cluster", args: []string{"import", "--in-context", "w"}, want: "west\n:4\n"},
		"Exported": {reason: "a shell cannot show errors", args: []string{"export", "--server=http://127.0.0.1:1", "shop/"}, want: ":1\n"},
		"Second":   {reason: "the verb takes one argument", args: []string{"cluster", "accept", "east", ""}, want: ":4\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			args := append([]string{"__complete", "--kubeconfig=" + kubeconfig}, tc.args...)
			if err := Run(t.Context(), args, &out, &bytes.Buffer{}); err != nil || !strings.HasPrefix(out.String(), tc.want) {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, out.String(), err, tc.want)
			}
		})
	}
}

func TestFirstArgument(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	complete := firstArgument(func(context.Context, string) ([]string, error) { return []string{"east", "west", "eastern"}, nil })
	got, directive := complete(cmd, nil, "ea")
	if diff := cmp.Diff([]string{"east", "eastern"}, got); diff != "" || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("directive %d, -want +got\n%s", directive, diff)
	}
	failed := firstArgument(func(context.Context, string) ([]string, error) { return nil, errors.New("no API server") })
	if got, directive := failed(cmd, nil, ""); len(got) > 0 || directive != cobra.ShellCompDirectiveError {
		t.Errorf("failed list: got %q, directive %d", got, directive)
	}
}

func TestListNames(t *testing.T) {
	t.Parallel()
	east := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	got, err := listNames(t.Context(), fakeHub(t, interceptor.Funcs{}, east), v1alpha1.SchemeGroupVersion().WithKind("Cluster"), "")
	if diff := cmp.Diff([]string{"east"}, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// Only placed objects can be removed, so only these are completed.
func TestListPlaced(t *testing.T) {
	t.Parallel()
	assignment := func(in, name string, o v1alpha1.ObjectReference) *v1alpha1.Assignment {
		return &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}, Spec: v1alpha1.AssignmentSpec{Object: o}}
	}
	c := fakeHub(t, interceptor.Funcs{},
		assignment("shop", "a", v1alpha1.ObjectReference{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}),
		assignment("shop", "b", v1alpha1.ObjectReference{Kind: "ConfigMap", Namespace: "shop", Name: "web"}),
		assignment("bank", "c", v1alpha1.ObjectReference{Kind: "ConfigMap", Namespace: "bank", Name: "rates"}),
		assignment(v1alpha1.SystemNamespace, "d", v1alpha1.ObjectReference{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "viewer"}),
	)
	got, err := listPlaced(t.Context(), c, "shop")
	want := []string{"clusterrole.rbac.authorization.k8s.io/viewer", "configmap/web", "deployment.apps/web"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := newRoot(streams)
	cmd.SetArgs([]string{"version"})
	if err := cmd.Execute(); err != nil || out.String() != version.String()+"\n" {
		t.Errorf("got %q, %v, want %q", out.String(), err, version.String())
	}
}
