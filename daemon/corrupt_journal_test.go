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

	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// With a corrupt record the daemon attaches no Pod and reports the steps of a repair. It keeps
// running for DELs.
func TestDamagedJournalRefusesPods(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	corruptRecord(t, path, "sandbox\x00eth0")
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	d := &daemon{journal: j}
	if err := d.openFirewall(); err != nil {
		t.Fatalf("open the firewall: %v", err)
	}
	t.Cleanup(func() { _ = errors.Join(d.firewall.Close(), d.sourceGuard.Close()) })
	deferred := addresses.NewDeferredAllocator()
	a := &allocatorManager{options: &options{journal: path}, log: logr.Discard(), journal: j, deferred: deferred}
	opened, err := a.open()
	if err != nil || opened {
		t.Fatalf("open the allocator: got %t and error %v, want neither", opened, err)
	}
	_, _, claimErr := deferred.Claim(t.Context(), &network.Network{}, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{})
	w := httptest.NewRecorder()
	app.HealthHandler((&readiness{allocator: deferred}).check).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusServiceUnavailable || claimErr == nil {
		t.Fatalf("got status %d of readyz and error %v of a claim, want 503 and an error", w.Code, claimErr)
	}
	for _, part := range []string{"sandbox/eth0", "drain the node", "remove " + path} {
		if !strings.Contains(w.Body.String(), part) || !strings.Contains(claimErr.Error(), part) {
			t.Errorf("%q must be in the health check's %q and the claim's %q", part, w.Body, claimErr)
		}
	}
}

// corruptRecord creates a journal with a corrupt record.
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
