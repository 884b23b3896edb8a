// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// What a killed daemon leaves is replaced by the next ADD, whatever it was.
func TestAttachAgain(t *testing.T) {
	left := map[string]struct {
		reason string
		leave  func(t *testing.T, k *Kernel, path string)
	}{
		"Whole": {"died before it answered", func(t *testing.T, k *Kernel, pod string) {
			t.Helper()
			s := withDefaults(Slave{V4: prefix("10.0.0.99/24"), Table: 100, PolicyRoutes: routes("10.9.0.0/16", "10.0.0.1")}, pod)
			if _, err := k.Attach(context.Background(), s); err != nil {
				t.Fatal(err)
			}
		}},
		"Born": {"died before the link was marked", func(t *testing.T, k *Kernel, path string) {
			t.Helper()
			if err := bornAs(k, path, "eth1"); err != nil {
				t.Fatal(err)
			}
		}},
		"AddedTwice": {"the same request again", func(t *testing.T, k *Kernel, pod string) {
			t.Helper()
			if _, err := k.Attach(context.Background(), again(pod)); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for name, tc := range left {
		t.Run(name, func(t *testing.T) {
			host, _ := newHost(t, 1500)
			k := openKernel(t, host)
			fresh, used := newNamespace(t), newNamespace(t)
			want := attachDumpDetach(t, k, fresh)
			tc.leave(t, k, used)
			got := attachDumpDetach(t, k, used)
			// A rule from another address is the only thing that the kernel
			// keeps and that the new request does not know of.
			if diff := cmp.Diff(want, dropLine(got, "rule from 10.0.0.99/32 table 100")); diff != "" {
				t.Errorf("%s: -fresh +used\n%s", tc.reason, diff)
			}
		})
	}
}

// bornAs leaves a link of ours that was never finished.
func bornAs(k *Kernel, path, name string) error {
	return inPodNamespace(path, func(p *podNamespace) error {
		_, err := k.createSlave(p, withDefaults(Slave{Name: name}, path), &AttachResult{})
		return err
	})
}

// DEL also finds what died under the temporary name.
func TestDetachTemporaryName(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	before := dump(t, pod)
	if err := bornAs(k, pod, temporaryName("eth1")); err != nil {
		t.Fatal(err)
	}
	if err := k.Detach(context.Background(), withDefaults(Slave{}, pod)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("left behind: -before +after\n%s", diff)
	}
}

func attachDumpDetach(t *testing.T, k *Kernel, pod string) string {
	t.Helper()
	out, err := k.Attach(context.Background(), again(pod))
	if err != nil {
		t.Fatal(err)
	}
	sameOutcome(t, pod, "eth1", out)
	d := dump(t, pod)
	if err := k.Detach(context.Background(), again(pod)); err != nil {
		t.Fatal(err)
	}
	return d
}

func again(pod string) *Slave {
	return withDefaults(Slave{
		V4: prefix("10.0.0.5/24"), V6: prefix("fd00::5/64"), Routes: routes("0.0.0.0/0", "10.0.0.1"),
		Table: 100, PolicyRoutes: routes("10.9.0.0/16", "10.0.0.1"),
	}, pod)
}

func TestDetachTwice(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	before := dump(t, pod)
	if _, err := k.Attach(context.Background(), again(pod)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.Detach(context.Background(), again(pod)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("left behind: -before +after\n%s", diff)
	}
}

// DEL names a link that another plugin has made since: it stays.
func TestDetachLeavesOthers(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	within(t, pod, func(h *netlink.Handle) { addBridge("eth1")(t, h) })
	before := dump(t, pod)
	if err := k.Detach(context.Background(), withDefaults(Slave{}, pod)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("somebody else's link: -before +after\n%s", diff)
	}
}

// Many Pods at once on one parent; nothing is left, no descriptor leaks, and the
// machine's own namespace never sees a link.
func TestManyAtOnce(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	const pods, rounds = 16, 5
	var paths []string
	for range pods {
		paths = append(paths, newNamespace(t))
	}
	before, descriptorsBefore := dump(t, host), descriptors(t)
	for range rounds {
		var wg sync.WaitGroup
		errs := make([]error, pods)
		for i, path := range paths {
			wg.Go(func() {
				s := withDefaults(Slave{V4: prefix(fmt.Sprintf("10.0.0.%d/24", i+1))}, path)
				_, err := k.Attach(context.Background(), s)
				errs[i] = errors.Join(err, k.Detach(context.Background(), s))
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, dump(t, host)); diff != "" {
		t.Errorf("the host's links: -before +after\n%s", diff)
	}
	for _, path := range paths {
		if got := dump(t, path); got != "" {
			t.Errorf("left in a Pod:\n%s", got)
		}
	}
	if after := descriptors(t); after != descriptorsBefore {
		t.Errorf("%d descriptors before, %d after", descriptorsBefore, after)
	}
}
