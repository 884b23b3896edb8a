// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/tenant"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// offer creates a TenantConfig for one namespace. A "%" in the text is replaced by a unique device
// name.
func offer(tb testing.TB, env *apitest.Env, ns, text string) (name, device string) {
	tb.Helper()
	name = apitest.Name("tc")
	device = "d" + name[len(name)-8:]
	u := object(tb, "TenantConfig", "", name, strings.ReplaceAll(text, "%", device))
	if ns != "" {
		u.Object["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": ns}}
	}
	if err := env.Client.Create(tb.Context(), u); err != nil {
		tb.Fatal(err)
	}
	return name, device
}

// tenantNetwork returns a TenantNetwork with this spec.
func tenantNetwork(tb testing.TB, ns, name, spec string) *v1.TenantNetwork {
	tb.Helper()
	tn := &v1.TenantNetwork{}
	tn.Namespace, tn.Name, tn.Spec.NetworkID = ns, name, "n"+ns[len(ns)-8:] // so that links have names of their own
	if err := yaml.UnmarshalStrict([]byte(spec), &tn.Spec); err != nil {
		tb.Fatalf("spec of the test: %v\n%s", err, spec)
	}
	return tn
}

func checkAnswer(t *testing.T, reason string, err error, refused []string) {
	t.Helper()
	if (err != nil) != (refused != nil) {
		t.Fatalf("%s\ngot %v, want a rejection with %q", reason, err, refused)
	}
	for _, part := range refused {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s\ngot %q, want %q in it", reason, err, part)
		}
	}
}

// The cases check what a tenant gets, and what it must not request.
func TestTenantRules(t *testing.T) {
	const (
		both   = `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`
		nics   = `{hostDevices: [{name: "%"}]}`
		pools  = `{hostDevices: [{name: "a.b/%", vniType: vlan, vniRange: "7-9"}]}`
		plugin = `{networkIds: {flannel: flan, macvlan: shared}, hostDevices: [{name: "%"}]}`
	)
	cases := map[string]struct {
		reason, config, spec, want string
		refused                    []string
	}{
		"VLAN":         {reason: "A device and a VLAN are assigned.", config: both, spec: `{}`, want: `host_device=% vlan=100`},
		"Asked":        {reason: "The tenant requests a device of the TenantConfig.", config: both, spec: `{Options: {host_device: "%"}}`, want: `host_device=% vlan=100`},
		"NIC":          {reason: "The device has no IDs.", config: nics, spec: `{}`, want: `host_device=%`},
		"Pool":         {reason: "A virtual function gets a VLAN.", config: pools, spec: `{NetworkType: sriov}`, want: `device_pool=a.b/% vlan=7`},
		"AskedPool":    {reason: "The tenant requests a pool of the TenantConfig.", config: pools, spec: `{NetworkType: SRIOV, Options: {device_pool: "a.b/%"}}`, want: `device_pool=a.b/% vlan=7`},
		"Plugin":       {reason: "networkIds permits the plugin and names its file.", config: plugin, spec: `{NetworkType: flannel, NetworkID: mine}`, want: `id=flan`},
		"PluginNoID":   {reason: "networkIds has the NetworkID.", config: plugin, spec: `{NetworkType: flannel, NetworkID: ""}`, want: `id=flan`},
		"NetworkID":    {reason: "networkIds overwrites the NetworkID.", config: plugin, spec: `{NetworkType: MACVLAN, NetworkID: mine}`, want: `id=shared host_device=%`},
		"Logical":      {reason: "Tenants choose logical attributes.", config: nics, spec: `{Options: {cidr: 10.0.0.0/24, container_prefix: blue, mtu: 1400, rt_tables: 7}}`, want: `host_device=%`},
		"SetVLAN":      {reason: "A tenant must not choose a VLAN.", config: both, spec: `{Options: {vlan: 105}}`, refused: []string{"spec.Options.vlan", "105", "Patchbay selects the ID", "leave it out"}},
		"SetVXLAN":     {reason: "A tenant must not choose a VXLAN.", config: both, spec: `{Options: {vxlan: 5000}}`, refused: []string{"spec.Options.vxlan", "5000", "leave it out"}},
		"OtherDevice":  {reason: "No TenantConfig offers the device to the tenant.", config: both, spec: `{Options: {host_device: eth0}}`, refused: []string{"spec.Options.host_device", "eth0", "use %"}},
		"OtherPool":    {reason: "No TenantConfig offers the pool to the tenant.", config: pools, spec: `{NetworkType: sriov, Options: {device_pool: c.d/e}}`, refused: []string{"spec.Options.device_pool", "c.d/e", "use a.b/%"}},
		"OtherPlugin":  {reason: "The plugin would run as root.", config: plugin, spec: `{NetworkType: bridge}`, refused: []string{"spec.NetworkType", "bridge", "networkIds"}},
		"Path":         {reason: "The NetworkID becomes a file name.", config: plugin, spec: `{NetworkType: flannel, NetworkID: ../../etc/passwd}`, refused: []string{"spec.NetworkID", "letters, digits"}},
		"TypePath":     {reason: "The type becomes a program name.", config: plugin, spec: `{NetworkType: ../sh}`, refused: []string{"spec.NetworkType", "letters, digits"}},
		"Tenants":      {reason: "A TenantNetwork cannot be shared.", config: both, spec: `{AllowedTenants: [other]}`, refused: []string{"spec.AllowedTenants", "ClusterNetwork"}},
		"LongID":       {reason: "The link name contains the NetworkID.", config: both, spec: `{NetworkID: elevenchars}`, refused: []string{"spec.NetworkID", "10 characters"}},
		"LongIDOnNIC":  {reason: "No link is created for a NIC.", config: nics, spec: `{NetworkID: elevenchars}`, want: `id=elevenchars host_device=%`},
		"BadSubnet":    {reason: "Nothing is reserved for an invalid network.", config: both, spec: `{Options: {cidr: 10.0.0.0}}`, refused: []string{"spec.Options.cidr"}},
		"SRIOVWithout": {reason: "The TenantConfig has no pool.", config: nics, spec: `{NetworkType: sriov}`, refused: []string{"spec.NetworkType", "device pool"}},
		"DeviceAndPool": {reason: "A network has one parent.", config: nics, spec: `{Options: {host_device: "%", device_pool: a/b}}`,
			refused: []string{"spec.Options.host_device", "leave"}},
	}
	env := start(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			config, device := offer(t, env, ns, tc.config)
			name := func(text string) string { return strings.ReplaceAll(text, "%", device) }
			tn := tenantNetwork(t, ns, "net", name(tc.spec))
			err := env.Client.Create(t.Context(), tn)
			for i := range tc.refused {
				tc.refused[i] = name(tc.refused[i])
			}
			checkAnswer(t, tc.reason, err, tc.refused)
			if err != nil {
				checkReserved(t, env, config, 0)
				return
			}
			if got := attributes(tn); !strings.HasSuffix(got, name(tc.want)) {
				t.Errorf("%s\nassigned: got %q, want %q", tc.reason, got, name(tc.want))
			}
			checkReserved(t, env, config, 1)
		})
	}
}

// attributes returns the physical attributes and the NetworkID.
func attributes(tn *v1.TenantNetwork) string {
	o := tn.Spec.Options
	parts := []string{"id=" + tn.Spec.NetworkID}
	for _, p := range []struct {
		key   string
		value any
		set   bool
	}{{"host_device", o.Device, o.Device != ""}, {"device_pool", o.DevicePool, o.DevicePool != ""}, {"vlan", o.VLAN, o.VLAN != 0}, {"vxlan", o.VXLAN, o.VXLAN != 0}} {
		if p.set {
			parts = append(parts, fmt.Sprintf("%s=%v", p.key, p.value))
		}
	}
	return strings.Join(parts, " ")
}

// checkReserved checks how many reservations a TenantConfig has.
func checkReserved(t *testing.T, env *apitest.Env, config string, want int) {
	t.Helper()
	if got := reserved(t, env, config); len(got) != want {
		t.Errorf("TenantConfig %s: %d reservations %v, want %d", config, len(got), got, want)
	}
}

func reserved(tb testing.TB, env *apitest.Env, config string) []string {
	tb.Helper()
	tc := &v1.TenantConfig{}
	if err := env.Client.Get(tb.Context(), client.ObjectKey{Name: config}, tc); err != nil {
		tb.Fatal(err)
	}
	var found []string
	for key, page := range tc.Status.Reservations {
		for entry := range strings.SplitSeq(page, ", ") {
			found = append(found, key+" "+entry)
		}
	}
	return found
}

func TestTenantChanges(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	config, device := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	tn := tenantNetwork(t, ns, "net", `{Options: {cidr: 10.0.0.0/24}}`)
	if err := env.Client.Create(t.Context(), tn); err != nil {
		t.Fatal(err)
	}
	want := attributes(tn)
	cases := map[string]struct {
		reason, patch string
		refused       []string
	}{
		"LeftOut":    {reason: "An update that leaves the attributes out keeps them.", patch: `{"spec": {"Options": {"vlan": null, "host_device": null, "mtu": 1400}}}`},
		"Empty":      {reason: "DANM's clients write empty strings.", patch: `{"spec": {"Options": {"host_device": "", "mtu": 1401}}}`},
		"VLAN":       {reason: "The VLAN may be another tenant's.", patch: `{"spec": {"Options": {"vlan": 101}}}`, refused: []string{"spec.Options.vlan", "101", "vlan/" + device + "/100", "never changes"}},
		"VXLAN":      {reason: "The VXLAN may be another tenant's.", patch: `{"spec": {"Options": {"vlan": null, "vxlan": 101}}}`, refused: []string{"spec.Options.vxlan", "never changes"}},
		"Device":     {reason: "The device may be another tenant's.", patch: `{"spec": {"Options": {"host_device": "eth0"}}}`, refused: []string{"spec.Options.host_device", "eth0"}},
		"Pool":       {reason: "The pool may be another tenant's.", patch: `{"spec": {"Options": {"device_pool": "a/b"}}}`, refused: []string{"spec.Options"}},
		"Plugin":     {reason: "The plugin would run as root.", patch: `{"spec": {"NetworkType": "bridge"}}`, refused: []string{"spec.NetworkType", "bridge"}},
		"Annotation": {reason: "A forged annotation is replaced.", patch: `{"metadata": {"annotations": {"danm.io/assigned": "vlan/x/5 0123456789abcdef"}}}`},
		"NoneLeft":   {reason: "A removed annotation is restored.", patch: `{"metadata": {"annotations": null}}`},
		"Labels":     {reason: "Labels are free.", patch: `{"metadata": {"labels": {"a": "b"}}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := tn.DeepCopy()
			err := env.Client.Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", []byte(tc.patch)))
			checkAnswer(t, tc.reason, err, tc.refused)
			got := &v1.TenantNetwork{}
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(tn), got); err != nil {
				t.Fatal(err)
			}
			if attributes(got) != want || got.Annotations[v1.AssignedAnnotation] != tn.Annotations[v1.AssignedAnnotation] {
				t.Errorf("%s\nstored: %s, %v", tc.reason, attributes(got), got.Annotations)
			}
		})
	}
	checkReserved(t, env, config, 1)
}

// A reservation ends with its network, and a dry run leaves none.
func TestReservationsDoNotLeak(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	config, _ := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-101"}]}`)
	for range 3 {
		if err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "dry", `{}`), client.DryRunAll); err != nil {
			t.Fatal(err)
		}
	}
	checkReserved(t, env, config, 0)
	for i := range 2 {
		tn := tenantNetwork(t, ns, "", `{}`)
		tn.GenerateName = "gen-"
		if err := env.Client.Create(t.Context(), tn); err != nil || tn.Spec.Options.VLAN != int32(100+i) {
			t.Fatalf("create: %v, VLAN %d", err, tn.Spec.Options.VLAN)
		}
	}
	err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "third", `{}`))
	checkAnswer(t, "two IDs, two networks", err, []string{"every ID", "100-101", "2 reserved"})
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("TenantNetworkList"))
	if err := env.Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), &list.Items[0]); err != nil {
		t.Fatal(err)
	}
	// The release is immediate, or follows later when no replica saw the deletion.
	eventuallyWithin(t, 2*tenant.GracePeriod+time.Minute, "the deleted network's VLAN is free", func() bool { return len(reserved(t, env, config)) == 1 })
	if err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "third", `{}`)); err != nil {
		t.Errorf("create after a deletion: %v", err)
	}
}
