// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
)

// The list is what runtimes read with libcni, and what they derive from it is
// what the plugin takes.
func TestConflist(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		in     install.Settings
		want   conf.Config
	}{
		"Default": {
			"nothing chosen", install.Settings{},
			conf.Config{CNIVersion: "1.0.0", CNIDir: "/etc/cni/net.d", Socket: "/run/patchbay/patchbay.sock"},
		},
		"Chosen": {
			"everything chosen",
			install.Settings{CNIVersion: "1.1.0", NamingScheme: "legacy", CNIDir: "/etc/cni/static", Socket: "/run/p.sock"},
			conf.Config{CNIVersion: "1.1.0", NamingScheme: "legacy", CNIDir: "/etc/cni/static", Socket: "/run/p.sock"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc, err := install.Conflist(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			list, err := libcni.ConfListFromBytes(doc)
			if err != nil {
				t.Fatalf("%s: a runtime cannot read the list: %v\n%s", tc.reason, err, doc)
			}
			if list.Name != "patchbay" || !list.DisableCheck || len(list.Plugins) != 1 {
				t.Errorf("%s: list: got %+v", tc.reason, list)
			}
			derived, err := libcni.InjectConf(list.Plugins[0], map[string]any{
				"name": list.Name, "cniVersion": list.CNIVersion,
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := conf.ParseConfig(derived.Bytes)
			if err != nil {
				t.Fatalf("%s: the plugin refuses what a runtime derives: %v", tc.reason, err)
			}
			tc.want.Name, tc.want.Type = "patchbay", "patchbay"
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConflistRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []install.Settings{
		{CNIVersion: "0.1.0"}, {NamingScheme: "old"}, {CNIDir: "net.d"}, {Socket: "../s"},
	} {
		var e *wire.Error
		if _, err := install.Conflist(s); !errors.As(err, &e) {
			t.Errorf("Conflist(%+v): got %v, want the plugin's own error", s, err)
		}
	}
}
