// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Safety 7: the values of a Secret are in Secrets alone, at the hub and in clusters, whatever is done with
// it: made, changed, moved, with another agent, removed. This test restarts an agent.
func TestSafetySecrets(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	secret := object("v1", "Secret", ns, "db")
	user := &terminal{t: t, dir: t.TempDir()}
	file := filepath.Join(user.dir, "secret.yaml")
	apply := func(clusters string) string { // as people do, who leave the values in an annotation of kubectl, too
		t.Helper()
		text, data := rand.Text(), rand.Text()
		manifest := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: db, annotations: {placement.patchbay.io/clusters: %q}}\n"+
			"stringData: {password: %s}\ndata: {token: %s}\n", clusters, text, base64.StdEncoding.EncodeToString([]byte(data)))
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		user.run(w.Hub.ControlPlane.AdminKubeconfig(), "kubectl -n "+ns+" apply -f "+file)
		return text + data
	}
	await := func(cluster, want string) {
		t.Helper()
		eventually(t, cluster+" has the values", func() error {
			o := &corev1.Secret{}
			if err := w.Clusters[cluster].Client.Get(t.Context(), client.ObjectKeyFromObject(secret), o); err != nil {
				return err
			}
			return errorUnless(string(o.Data["password"])+string(o.Data["token"]) == want, "it has others")
		})
	}
	check := func(step string, want ...string) {
		t.Helper()
		x.read(t)
		broken, seen, err := x.secretLeaks(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range broken {
			t.Errorf("%s: %s", step, what)
		}
		for _, name := range append(want, "hub") {
			if seen[name] == 0 {
				t.Errorf("%s: no Secret in the etcd of %s has a value: the search is blind", step, name)
			}
		}
	}

	values := apply("east")
	await("east", values)
	check("made", "east")
	values = apply("east")
	await("east", values)
	check("changed", "east")
	values = apply("east")
	w.annotate(t, object("v1", "Secret", ns, "db"), "west")
	await("west", values)
	w.awaitClustersWith(t, secret, "west")
	check("moved", "west")
	if err := w.agents["west"].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := w.Clusters["west"].Client.Delete(t.Context(), object("v1", "Secret", ns, "db"))
	agent, startErr := w.StartAgent(t.Context(), "west")
	if err := errors.Join(err, startErr); err != nil {
		t.Fatal(err)
	}
	w.agents["west"] = agent
	await("west", values)
	check("repaired", "west")
	values = apply("west")
	await("west", values)
	check("with another agent", "west")
	w.annotate(t, object("v1", "Secret", ns, "db"), "")
	w.awaitClustersWith(t, secret, "")
	eventually(t, "no Work is left", func() error { return w.checkNoWorks(t, ns) })
	check("removed")
	beside := object("v1", "Secret", "", "")
	for _, cluster := range []string{"east", "west"} {
		beside.SetNamespace("cluster-" + cluster)
		beside.SetName(v1alpha1.WorkName("", "Secret", ns, "db"))
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(beside), beside); !apierrors.IsNotFound(err) {
			t.Errorf("removed: the Secret beside the Work in %s: got %v, want it gone", beside.GetNamespace(), err)
		}
	}
}

// What the search for values finds, and what not.
func TestEncodings(t *testing.T) {
	t.Parallel()
	value := []byte("a-secret-value-27")
	found := func(text string) bool {
		return slices.ContainsFunc(encodings(value), func(form []byte) bool { return strings.Contains(text, string(form)) })
	}
	for before := range 7 {
		for after := range 7 {
			long := strings.Repeat("#", before) + string(value) + strings.Repeat("?", after)
			if !found(long) || !found(base64.StdEncoding.EncodeToString([]byte(long))) {
				t.Errorf("%q: it is not found, plain or in base64", long)
			}
		}
	}
	if other := "a-secret-valuE-27"; found(other) || found(base64.StdEncoding.EncodeToString([]byte(other))) {
		t.Errorf("%q: it is found, and is another value", other)
	}
}
