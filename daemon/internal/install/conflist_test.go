// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
)

// Runtimes read the list with libcni, and the plugin accepts the configuration that they derive from
// it.
func TestConflist(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		in     install.Settings
		want   config.Config
	}{
		"Default": {
			"All keys have their defaults.", install.Settings{},
			config.Config{CNIVersion: "1.0.0", CNIDir: "/etc/cni/net.d", Socket: "/run/patchbay/patchbay.sock"},
		},
		"Chosen": {
			"All keys are set.",
			install.Settings{CNIVersion: "1.1.0", NamingScheme: "legacy", CNIDir: "/etc/cni/static", Socket: "/run/p.sock"},
			config.Config{CNIVersion: "1.1.0", NamingScheme: "legacy", CNIDir: "/etc/cni/static", Socket: "/run/p.sock"},
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
				t.Fatalf("%s: libcni rejects the list: %v\n%s", tc.reason, err, doc)
			}
			if list.Name != "patchbay" || !list.DisableCheck || len(list.Plugins) != 1 {
				t.Errorf("%s: got list %+v, want one plugin named patchbay", tc.reason, list)
			}
			derived, err := libcni.InjectConf(list.Plugins[0], map[string]any{
				"name": list.Name, "cniVersion": list.CNIVersion,
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := config.ParseConfig(derived.Bytes)
			if err != nil {
				t.Fatalf("%s: the plugin rejects the derived configuration: %v", tc.reason, err)
			}
			tc.want.Name, tc.want.Type = "patchbay", "patchbay"
			tc.want.Capabilities = []byte(`{"bandwidth":true,"dns":true,"ipRanges":true,"portMappings":true}`)
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Conflist returns the plugin's error about an invalid setting.
func TestConflistRejectsInvalid(t *testing.T) {
	t.Parallel()
	for _, s := range []install.Settings{
		{CNIVersion: "0.1.0"}, {NamingScheme: "old"}, {CNIDir: "net.d"}, {Socket: "../s"},
	} {
		var e *wire.Error
		if _, err := install.Conflist(s); !errors.As(err, &e) {
			t.Errorf("Conflist(%+v): got %v, want a CNI error", s, err)
		}
	}
}
