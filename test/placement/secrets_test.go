// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/placement/render"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// minValue is how long a value in a Secret must be for the watcher to look for it: shorter
// ones are in other things by chance.
const minValue = 12

// secretValues are the values that the Secrets of the test's namespaces have had at the hub.
func (x *watcher) secretValues() [][]byte {
	found := map[string]bool{}
	for _, one := range x.all {
		if one.cluster != "" || one.Group != "" || one.Resource != "secrets" || !slices.Contains(x.namespaces, one.Namespace) {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(one.Object.Object, "data")
		for _, encoded := range data {
			if value, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(value) >= minValue {
				found[string(value)] = true
			}
		}
	}
	var values [][]byte
	for _, value := range slices.Sorted(maps.Keys(found)) {
		values = append(values, []byte(value))
	}
	return values
}

// forms are how a value may be written somewhere: as it is, and in base64, alone or in the
// middle of something longer, whatever stands before it.
func forms(value []byte) [][]byte {
	all := [][]byte{value}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
		first := (before*8 + 5) / 6           // the first character that the value alone decides
		last := (before + len(value)) * 8 / 6 // one behind the last
		all = append(all, []byte(encoded[first:last]))
	}
	return all
}

// has returns what tells whether a text has one of the values.
func (x *watcher) has() func(text []byte) bool {
	var wanted [][]byte
	for _, value := range x.secretValues() {
		wanted = append(wanted, forms(value)...)
	}
	return func(text []byte) bool {
		return slices.ContainsFunc(wanted, func(form []byte) bool { return bytes.Contains(text, form) })
	}
}

// brokenSecrets is I8, as far as writes tell: no value of a Secret is written into anything else.
func (x *watcher) brokenSecrets() (broken []string) {
	if len(x.secretValues()) == 0 {
		return nil
	}
	has := x.has()
	for _, one := range x.all {
		if one.Resource != "secrets" && (has(one.Request) || has(encoded(one.Object)) || has([]byte(one.URI))) {
			broken = append(broken, fmt.Sprintf("I8: %s in %q has a Secret's value", one, one.cluster))
		}
	}
	return broken
}

// leaks is I8 in all that the hub and the clusters have in etcd, raw, and in the logs of our
// programs: where values of Secrets are that is no Secret. Seen is how many Secrets in each etcd
// have a value.
func (x *watcher) leaks(ctx context.Context, w *world) (broken []string, seen map[string]int, err error) {
	seen = map[string]int{}
	if len(x.secretValues()) == 0 {
		return nil, seen, nil
	}
	has, planes := x.has(), map[string]*bed.Plane{"hub": w.Hub}
	for name, c := range w.Clusters {
		planes[name] = c.Plane
	}
	for name, p := range planes {
		if p.Control == nil {
			continue // a hub that was made by patchbay-hub up: its etcd is its own
		}
		err = errors.Join(err, p.Stored(ctx, func(key string, value []byte) {
			switch {
			case !has(value) && !has([]byte(key)):
			case strings.HasPrefix(key, "/secrets/"):
				seen[name]++
			default:
				broken = append(broken, fmt.Sprintf("I8: etcd of %s has a Secret's value in %s", name, key))
			}
		}))
	}
	logs, globErr := filepath.Glob(filepath.Join(w.Dir, "*", "patchbay-*.log"))
	if len(logs) == 0 {
		err = errors.Join(err, errors.New("our programs have no logs"))
	}
	err = errors.Join(err, globErr)
	for _, pattern := range x.logged {
		more, globErr := filepath.Glob(pattern)
		logs, err = append(logs, more...), errors.Join(err, globErr)
	}
	for _, log := range logs {
		raw, readErr := os.ReadFile(log)
		err = errors.Join(err, readErr)
		if has(raw) {
			broken = append(broken, fmt.Sprintf("I8: the log %s has a Secret's value", log))
		}
	}
	return broken, seen, err
}

// encoded is an object as JSON; nothing for a write whose answer was none.
func encoded(o unstructured.Unstructured) []byte {
	if len(o.Object) == 0 {
		return nil
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// Safety 7: the values of a Secret are in Secrets alone, at the hub and in clusters, whatever is done with
// it: made, changed, moved, with another agent, removed. This test restarts an agent.
func TestSafetySecrets(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	x := watch(t, w, ns)
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
		user.sh(w.Hub.Control.AdminKubeconfig(), "kubectl -n "+ns+" apply -f "+file)
		return text + data
	}
	await := func(cluster, want string) {
		t.Helper()
		eventually(t, cluster+" has the values", func() error {
			o := &corev1.Secret{}
			if err := w.Clusters[cluster].Client.Get(t.Context(), client.ObjectKeyFromObject(secret), o); err != nil {
				return err
			}
			return unless(string(o.Data["password"])+string(o.Data["token"]) == want, "it has others")
		})
	}
	check := func(step string, want ...string) {
		t.Helper()
		x.read(t)
		broken, seen, err := x.leaks(t.Context(), w)
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
	w.awaitWhere(t, secret, "west")
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
	w.awaitWhere(t, secret, "")
	eventually(t, "no Work is left", func() error { return w.unworked(t, ns) })
	check("removed")
	beside := object("v1", "Secret", "", "")
	for _, cluster := range []string{"east", "west"} {
		beside.SetNamespace("cluster-" + cluster)
		beside.SetName(render.Name("", "Secret", ns, "db"))
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(beside), beside); !apierrors.IsNotFound(err) {
			t.Errorf("removed: the Secret beside the Work in %s: got %v, want it gone", beside.GetNamespace(), err)
		}
	}
}

// What the search for values finds, and what not.
func TestForms(t *testing.T) {
	t.Parallel()
	value := []byte("a-secret-value-27")
	found := func(text string) bool {
		return slices.ContainsFunc(forms(value), func(form []byte) bool { return strings.Contains(text, string(form)) })
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
