// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// on returns a DanmNet on a VLAN of a device.
func on(ns, name, kind, device string) *v1.DanmNet {
	o := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	o.Spec = v1.NetworkSpec{NetworkID: name[:1] + device[1:8], NetworkType: kind, Options: v1.NetworkOptions{Device: device, VLAN: 5}}
	return o
}

// Of conflicting networks that are created at the same moment, one is admitted.
func TestConflictsAtTheSameMoment(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	for range 10 {
		device := apitest.Name("d")[:12]
		errs := make([]error, 4)
		var g errgroup.Group
		for i := range errs {
			g.Go(func() error {
				errs[i] = env.Client.Create(t.Context(), on(ns, string(rune('a'+i))+device, []string{v1.TypeIPVLAN, v1.TypeMACVLAN}[i%2], device))
				return nil
			})
		}
		_ = g.Wait()
		let := map[bool]int{}
		for i, err := range errs {
			if err == nil {
				let[i%2 == 0]++
			} else if !strings.Contains(err.Error(), "on the same parent") {
				t.Errorf("rejected: %v", err)
			}
		}
		if len(let) != 1 {
			t.Errorf("IPVLAN and MACVLAN on one parent: admitted %v of %v", let, errs)
		}
	}
}

// Two conflicting networks were created without admission: the younger one has the condition
// Conflict with the message of admission, until the older one is deleted.
func TestConflictCondition(t *testing.T) {
	env := apitest.New(t)
	ns := env.Namespace(t)
	older, younger := on(ns, "a"+ns[:8], v1.TypeIPVLAN, "ens4567890"), on(ns, "b"+ns[:8], v1.TypeMACVLAN, "ens4567890")
	older.Name, younger.Name = "a", "b"
	if err := env.Client.Create(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the younger one is younger by the second that the API server counts", func() bool {
		if err := env.Client.Create(t.Context(), younger); err != nil {
			t.Fatal(err)
		}
		if older.CreationTimestamp.Before(&younger.CreationTimestamp) {
			return true
		}
		if err := env.Client.Delete(t.Context(), younger); err != nil {
			t.Fatal(err)
		}
		younger = on(ns, "b"+ns[:8], v1.TypeMACVLAN, "ens4567890")
		younger.Name = "b"
		return false
	})
	stop, err := admissiontest.Serve(t.Context(), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	conflict := func(o *v1.DanmNet) *metav1.Condition {
		now := &v1.DanmNet{}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(now.Status.Conditions, v1.ConditionConflict)
	}
	eventually(t, "the younger network has the condition Conflict", func() bool { return conflict(younger) != nil })
	if c := conflict(younger); c.Reason != v1.ReasonParentShared || !strings.Contains(c.Message, "DanmNet/"+ns+"/a") {
		t.Errorf("condition: %+v", c)
	}
	third := on(ns, "c"+ns[:8], v1.TypeMACVLAN, "ens4567890")
	third.Name = "c"
	err = env.Client.Create(t.Context(), third)
	if want := strings.ReplaceAll(conflict(younger).Message, ns+"/b", ns+"/c"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("admission returns %v, the condition has %q", err, want)
	}
	if c := conflict(older); c != nil {
		t.Errorf("the older one has a condition: %+v", c)
	}
	if err := errors.Join(env.Client.Delete(t.Context(), older)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the condition goes with the older one", func() bool { return conflict(younger) == nil })
}
