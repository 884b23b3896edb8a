// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

// The first plugin gets the host link of the network's VLAN as "master", on ADD and on DEL. The
// journalled configuration does not change.
func TestMaster(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, parent string
		want           []any
	}{
		"HostLink": {"The network names a VLAN.", "storage.500", []any{"storage.500", nil, nil, "storage.500"}},
		"Own":      {"Without a VLAN the configuration decides.", "", []any{"ens4", nil, nil, "ens4"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const config = `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge","master":"ens4"},{"type":"portmap"}]}`
			b := newBench(t, delegate.Options{})
			b.config("flat.conflist", config)
			for _, plugin := range []string{"bridge", "portmap"} {
				b.plugin(plugin, onAdd("echo '"+printed("1.0.0")+"'"))
			}
			rec, ifc := b.sandbox("bridge")
			if err := b.prepare(ifc); err != nil {
				t.Fatal(err)
			}
			ifc.Parent = tc.parent
			if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
				t.Fatal(err)
			}
			if err := b.backend.Detach(context.Background(), rec, ifc); err != nil {
				t.Fatal(err)
			}
			var got []any
			for _, in := range b.inputs() {
				got = append(got, in["master"])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s masters (-want +got):\n%s", tc.reason, diff)
			}
			if string(ifc.DelegateConfig) != config {
				t.Errorf("%s journalled %s", tc.reason, ifc.DelegateConfig)
			}
		})
	}
}
