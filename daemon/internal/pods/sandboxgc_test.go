// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// podReader is an API server whose Pods all have one UID, or that returns an error.
type podReader struct {
	client.Reader
	uid string
	err error
}

func (p podReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if p.err == nil && p.uid == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	obj.SetUID(types.UID(p.uid))
	return p.err
}

// newRecord returns the record of an attached sandbox.
func newRecord() *attach.Record {
	return &attach.Record{
		ContainerID: "sandbox", IfName: "eth0", Netns: "/run/netns/x",
		PodNamespace: "ns", PodName: "pod", PodUID: "pod-uid", State: attach.Attached,
	}
}

// SandboxGC deletes a sandbox that has no network namespace in two sweeps, and whose Pod is gone.
func TestSandboxGCDeletesAtTheSecondSweep(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	cases := map[string]struct {
		reason  string
		exists  bool // the network namespace exists
		pods    podReader
		change  func(*attach.Record)
		deleted bool
		err     error
	}{
		"Gone":      {reason: "Neither the namespace nor the Pod exists.", deleted: true},
		"Replaced":  {reason: "Another Pod has the name.", pods: podReader{uid: "other"}, deleted: true},
		"Attaching": {reason: "The ADD was interrupted.", change: func(r *attach.Record) { r.State = attach.Attaching }, deleted: true},
		"Running":   {reason: "The sandbox of a force-deleted Pod still runs.", exists: true},
		"PodThere":  {reason: "Kubelet will send a DEL.", pods: podReader{uid: "pod-uid"}},
		"Released":  {reason: "The Publisher releases the sandbox already.", change: func(r *attach.Record) { r.State = attach.Released }},
		"NoAnswer":  {reason: "It is unknown whether the Pod is gone.", pods: podReader{err: unreachable}, err: attach.ErrTryAgain},
		"NoNetns":   {reason: "The record has no path to check.", change: func(r *attach.Record) { r.Netns = "" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := newRecord()
			if tc.change != nil {
				tc.change(rec)
			}
			var deleted []string
			gc := &SandboxGC{
				Records:     func() ([]*attach.Record, error) { return []*attach.Record{rec}, nil },
				NetnsExists: func(string) (bool, error) { return tc.exists, nil },
				Pods:        &Getter{Direct: tc.pods, Synced: func() bool { return false }},
				DeleteSandbox: func(_ context.Context, r *attach.Record) error {
					deleted = append(deleted, r.ContainerID)
					return nil
				},
			}
			if err := gc.Sweep(t.Context()); err != nil || len(deleted) > 0 {
				t.Errorf("%s: first sweep: got error %v and deleted %v, want neither", tc.reason, err, deleted)
			}
			if err := gc.Sweep(t.Context()); !errors.Is(err, tc.err) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.err)
			}
			var want []string
			if tc.deleted {
				want = []string{rec.ContainerID}
			}
			if diff := cmp.Diff(want, deleted); diff != "" {
				t.Errorf("%s: deleted sandboxes (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// SandboxGC reports a corrupt record and deletes the other sandboxes.
func TestSandboxGCContinuesPastCorruptRecords(t *testing.T) {
	t.Parallel()
	corrupt := errors.New("corrupt")
	deletions, rec := 0, newRecord()
	gc := &SandboxGC{
		Records:       func() ([]*attach.Record, error) { return []*attach.Record{rec}, corrupt },
		NetnsExists:   func(string) (bool, error) { return false, nil },
		Pods:          &Getter{Direct: podReader{}, Synced: func() bool { return false }},
		DeleteSandbox: func(context.Context, *attach.Record) error { deletions++; return nil },
	}
	for range 2 {
		if err := gc.Sweep(t.Context()); !errors.Is(err, corrupt) {
			t.Errorf("got error %v, want the journal's", err)
		}
	}
	if deletions != 1 {
		t.Errorf("deleted %d sandboxes, want 1, whose record is readable", deletions)
	}
}
