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

// The next ADD replaces whatever a killed daemon left.
func TestAttachAgain(t *testing.T) {
	left := map[string]struct {
		reason string
		leave  func(t *testing.T, k *Host, path string)
	}{
		"Finished": {"The daemon ended before it answered.", func(t *testing.T, k *Host, pod string) {
			t.Helper()
			s := withDefaults(Slave{PodInterface: PodInterface{V4: prefix("10.0.0.99/24"), Table: 100, PolicyRoutes: routes("10.9.0.0/16", "10.0.0.1")}}, pod)
			if _, err := k.Slaves().Attach(context.Background(), s); err != nil {
				t.Fatal(err)
			}
		}},
		"Unfinished": {"The daemon ended before it set the alias.", func(t *testing.T, k *Host, path string) {
			t.Helper()
			if err := createUnfinished(k, path, "eth1"); err != nil {
				t.Fatal(err)
			}
		}},
		"AddedTwice": {"The runtime repeats the request.", func(t *testing.T, k *Host, pod string) {
			t.Helper()
			if _, err := k.Slaves().Attach(context.Background(), exampleSlave(pod)); err != nil {
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
			// The kernel keeps the rule of another address, which the new request does
			// not have.
			if diff := cmp.Diff(want, dropLine(got, "rule from 10.0.0.99/32 table 100")); diff != "" {
				t.Errorf("%s -new +used\n%s", tc.reason, diff)
			}
		})
	}
}

// createUnfinished creates an unfinished link.
func createUnfinished(k *Host, path, name string) error {
	return inPodNamespace(path, func(p *podNamespace) error {
		_, _, err := k.Slaves().create(p, withDefaults(Slave{PodInterface: PodInterface{Name: name}}, path))
		return err
	})
}

// DEL deletes a link with the temporary name.
func TestDetachTemporaryName(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	before := dump(t, pod)
	if err := createUnfinished(k, pod, temporaryName("eth1")); err != nil {
		t.Fatal(err)
	}
	if err := k.Slaves().Detach(context.Background(), withDefaults(Slave{}, pod)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("left behind: -before +after\n%s", diff)
	}
}

func attachDumpDetach(t *testing.T, k *Host, pod string) string {
	t.Helper()
	out, err := k.Slaves().Attach(context.Background(), exampleSlave(pod))
	if err != nil {
		t.Fatal(err)
	}
	sameOutcome(t, pod, "eth1", out)
	d := dump(t, pod)
	if err := k.Slaves().Detach(context.Background(), exampleSlave(pod)); err != nil {
		t.Fatal(err)
	}
	return d
}

func exampleSlave(pod string) *Slave {
	return withDefaults(Slave{
		PodInterface: PodInterface{
			V4:           prefix("10.0.0.5/24"),
			V6:           prefix("fd00::5/64"),
			Routes:       routes("0.0.0.0/0", "10.0.0.1"),
			Table:        100,
			PolicyRoutes: routes("10.9.0.0/16", "10.0.0.1"),
		},
	}, pod)
}

func TestDetachTwice(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	before := dump(t, pod)
	if _, err := k.Slaves().Attach(context.Background(), exampleSlave(pod)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.Slaves().Detach(context.Background(), exampleSlave(pod)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("left behind: -before +after\n%s", diff)
	}
}

// A link of the name that another plugin created stays on DEL.
func TestDetachKeepsUnmanagedLink(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	within(t, pod, func(h *netlink.Handle) { addBridge("eth1")(t, h) })
	before := dump(t, pod)
	if err := k.Slaves().Detach(context.Background(), withDefaults(Slave{}, pod)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("another plugin's link: -before +after\n%s", diff)
	}
}

// Many Pods attach at once to one parent. Nothing is left in the namespaces of Pods and host, and no
// descriptor stays open.
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
				s := withDefaults(Slave{PodInterface: PodInterface{V4: prefix(fmt.Sprintf("10.0.0.%d/24", i+1))}}, path)
				_, err := k.Slaves().Attach(context.Background(), s)
				errs[i] = errors.Join(err, k.Slaves().Detach(context.Background(), s))
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
