// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package nodelabels

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// fixture is a labeller with the rights of the controller's ServiceAccount. Its cache is never behind.
type fixture struct {
	*testing.T
	env      *apitest.Env
	labeller *labeller
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	env := apitest.New(t)
	c := env.As(t, apitest.Controller())
	return &fixture{T: t, env: env, labeller: &labeller{
		cfg: Config{}.withDefaults(), cached: c, direct: c, limit: rate.NewLimiter(rate.Inf, 1),
	}}
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	if err := f.env.Client.Create(f.Context(), o); err != nil {
		f.Fatal(err)
	}
}

// compare compares all Nodes at a time, and returns one.
func (f *fixture) compare(name string, at time.Time) *corev1.Node {
	f.Helper()
	if err := f.labeller.compare(f.Context(), at); err != nil {
		f.Fatal(err)
	}
	n := &corev1.Node{}
	if err := f.env.Client.Get(f.Context(), client.ObjectKey{Name: name}, n); err != nil {
		f.Fatal(err)
	}
	return n
}

// setNICs creates or changes the report of a node.
func (f *fixture) setNICs(name string, nics ...string) {
	f.Helper()
	nn := &v1.NodeNetwork{}
	if f.env.Client.Get(f.Context(), client.ObjectKey{Name: name}, nn) != nil {
		nn = &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}}
		f.create(nn)
	}
	nn.Status = report(name, nics...).Status
	if err := f.env.Client.Status().Update(f.Context(), nn); err != nil {
		f.Fatal(err)
	}
}

// The labels of a Node follow its NodeNetwork, with the rights of the controller and under the policies.
func TestLabelsFollowNICs(t *testing.T) {
	t.Parallel()
	f, now := newFixture(t), time.Now()
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"zone": "x"}, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}}})
	before := f.compare("node-1", now)
	check := func(reason string, at time.Time, nics string) *corev1.Node {
		t.Helper()
		n := f.compare("node-1", at)
		want := map[string]string{"zone": "x"}
		for nic := range strings.FieldsSeq(nics) {
			want[v1.NICLabelPrefix+nic] = ""
		}
		if diff := cmp.Diff(want, n.Labels); diff != "" {
			t.Errorf("%s\nlabels (-want +got):\n%s", reason, diff)
		}
		return n
	}
	f.setNICs("node-1", "ens4", "ens5", "a+b")
	first := check("A name that is no label is left out.", now, "ens4 ens5")
	if diff := cmp.Diff(before.Spec, first.Spec); diff != "" {
		t.Errorf("the spec has changed (-want +got):\n%s", diff)
	}
	if again := check("Nothing has changed.", now, "ens4 ens5"); again.ResourceVersion != first.ResourceVersion {
		t.Errorf("a comparison without a change wrote version %s after %s", again.ResourceVersion, first.ResourceVersion)
	}
	f.setNICs("node-1", "ens5", "ens6")
	check("A new NIC counts at once, and a missing one later.", now, "ens4 ens5 ens6")
	check("A minute later, the NIC is still missing.", now.Add(time.Minute), "ens5 ens6")
	if err := f.env.Client.Delete(t.Context(), &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); err != nil {
		t.Fatal(err)
	}
	check("The report is gone, perhaps for a moment.", now.Add(2*time.Minute), "ens5 ens6")
	check("The report has been gone for a minute.", now.Add(3*time.Minute), "")
	f.setNICs("no-node", "ens4")
	f.compare("node-1", now) // a report without a Node is no error
	f.checkMissingNodes()
}

// checkMissingNodes checks that a Node that was created again under the same name, which is another machine, and
// one that is gone are no errors.
func (f *fixture) checkMissingNodes() {
	f.Helper()
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	value := ""
	for _, c := range []change{{name: "node-2", uid: "00000000-0000-0000-0000-000000000000"}, {name: "node-9", uid: "x"}} {
		c.labels = map[string]*string{"nics.danm.io/ens4": &value}
		if err := f.labeller.write(f.Context(), c); err != nil {
			f.Errorf("write %s with UID %s: %v, want no error", c.name, c.uid, err)
		}
	}
	if n := f.compare("node-2", time.Now()); len(n.Labels) > 0 {
		f.Errorf("the other Node has the labels %v", n.Labels)
	}
}

// withoutReports is a cache that has not seen the NodeNetworks yet.
type withoutReports struct{ client.Reader }

func (r withoutReports) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1.NodeNetworkList); ok {
		return nil
	}
	return r.Reader.List(ctx, list, opts...)
}

// A label is removed only if the API server's NodeNetwork lacks the NIC, too.
func TestRemovalReadsTheAPIServer(t *testing.T) {
	t.Parallel()
	f, now := newFixture(t), time.Now()
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	f.setNICs("node-1", "ens4", "ens5")
	f.compare("node-1", now)
	f.setNICs("node-1", "ens4") // ens5 is really gone
	f.labeller.cached = withoutReports{f.labeller.cached}
	f.compare("node-1", now.Add(time.Hour))
	n := f.compare("node-1", now.Add(time.Hour+f.labeller.cfg.RemovalDelay))
	if diff := cmp.Diff(map[string]string{v1.NICLabelPrefix + "ens4": ""}, n.Labels); diff != "" {
		t.Errorf("the cache is behind the API server\nlabels (-want +got):\n%s", diff)
	}
}

// A Node that the controller may not write does not keep others from their labels, and is not tried again and again.
func TestForbiddenNodeWaits(t *testing.T) {
	t.Parallel()
	f, now := newFixture(t), time.Now()
	var tried []string
	forbidden := "node-1"
	direct, ok := f.labeller.direct.(client.WithWatch)
	if !ok {
		t.Fatalf("the client is a %T, and a test of its errors needs one that watches", f.labeller.direct)
	}
	f.labeller.direct = interceptor.NewClient(direct, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			tried = append(tried, o.GetName())
			if o.GetName() == forbidden {
				return apierrors.NewForbidden(corev1.Resource("nodes"), o.GetName(), nil)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	for _, name := range []string{"node-1", "node-2"} {
		f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		f.setNICs(name, "ens4")
	}
	interval := f.labeller.cfg.Interval
	for _, step := range []struct {
		reason string
		after  time.Duration
		err    string
		tried  []string
	}{
		{"The other Node gets its label.", 0, "label Node node-1, and again in 30s", []string{"node-1", "node-2"}},
		{"A change of another Node starts a comparison.", time.Second, "", nil},
		{"The first delay is over.", interval, "label Node node-1, and again in 1m0s", []string{"node-1"}},
		{"The second delay is longer.", 2*interval + time.Second, "", nil},
		{"The second delay is over.", 3 * interval, "label Node node-1, and again in 2m0s", []string{"node-1"}},
	} {
		tried = nil
		err := f.labeller.compare(f.Context(), now.Add(step.after))
		slices.Sort(tried)
		if got := errorText(err); !strings.HasPrefix(got, step.err) || step.err == "" && got != "" || !slices.Equal(tried, step.tried) {
			t.Errorf("%s\ngot error %q after writes of %v, want %q after %v", step.reason, got, tried, step.err, step.tried)
		}
		if err != nil && !strings.Contains(err.Error(), "deployments/controller/rbac.yaml") {
			t.Errorf("%s\nthe error must name what to do, got: %v", step.reason, err)
		}
	}
	forbidden = ""
	for _, name := range []string{"node-1", "node-2"} {
		if n := f.compare(name, now.Add(time.Hour)); len(n.Labels) != 1 {
			t.Errorf("%s has the labels %v after the right was granted, want one", name, n.Labels)
		}
	}
	if len(f.labeller.retries) > 0 {
		t.Errorf("Nodes still wait: %v", f.labeller.retries)
	}
}

// errorText returns the text of an error; "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
