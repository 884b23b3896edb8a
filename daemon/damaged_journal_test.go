// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/cluster"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// A record that cannot be read keeps the node from new Pods, and says what to do;
// the daemon stays for the DELs.
func TestDamagedJournalRefusesPods(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	corruptRecord(t, path, "sandbox\x00eth0")
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	d := &daemon{
		options: &options{journal: path}, log: logr.Discard(), journal: j,
		metrics: metrics.New("v1"), addresses: cluster.NewDeferredAllocator(),
	}
	if err := d.openFirewall(); err != nil {
		t.Fatalf("the daemon does not start: %v", err)
	}
	t.Cleanup(func() { _ = errors.Join(d.firewall.Close(), d.sourceGuard.Close()) })
	opened, err := d.openAllocator(t.Context())
	if err != nil || opened {
		t.Fatalf("the daemon ends with %v, or goes on without a record", err)
	}
	_, _, claim := d.addresses.Claim(t.Context(), &network.Network{}, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{})
	w := httptest.NewRecorder()
	d.healthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusServiceUnavailable || claim == nil {
		t.Fatalf("readyz answers %d, a claim %v", w.Code, claim)
	}
	for _, part := range []string{"sandbox/eth0", "drain the node", "remove " + path} {
		if !strings.Contains(w.Body.String(), part) || !strings.Contains(claim.Error(), part) {
			t.Errorf("%q is missing in the health check's %q or the claim's %q", part, w.Body, claim)
		}
	}
}

// corruptRecord makes a journal with a record of garbage.
func corruptRecord(t *testing.T, path, key string) {
	t.Helper()
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("records")).Put([]byte(key), []byte("garbage")) })
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
