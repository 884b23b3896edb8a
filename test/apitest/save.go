// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"errors"
	"os"
	"testing"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// Save keeps what the API server has stored by now, as a backup of etcd does. What it
// returns puts that back. Both end the API server for a while. It is for tests with an
// API server of their own.
func (e *Env) Save(tb testing.TB) (restore func()) {
	tb.Helper()
	data, backup := e.Plane.EtcdData(), tb.TempDir()
	e.offline(tb, func() error { return os.CopyFS(backup, os.DirFS(data)) })
	return func() {
		tb.Helper()
		e.offline(tb, func() error {
			return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
		})
	}
}

// offline does something while neither etcd nor the API server run.
func (e *Env) offline(tb testing.TB, do func() error) {
	tb.Helper()
	err := e.Plane.Kill(tb.Context(), controlplane.APIServer, controlplane.Etcd)
	if err == nil {
		err = do()
	}
	for _, part := range []controlplane.Part{controlplane.Etcd, controlplane.APIServer} {
		err = errors.Join(err, e.Plane.StartPart(tb.Context(), part))
	}
	if err != nil {
		tb.Fatal(err)
	}
}
