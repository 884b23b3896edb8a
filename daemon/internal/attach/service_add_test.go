// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// lines is a result in short: interfaces, then addresses.
func lines(r *types100.Result) []string {
	var list []string
	for _, i := range r.Interfaces {
		list = append(list, strings.TrimSpace(i.Name+" "+i.Sandbox))
	}
	for _, ip := range r.IPs {
		list = append(list, r.Interfaces[*ip.Interface].Name+" "+ip.Address.String())
	}
	return list
}

func TestAdd(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	result, err := l.Add(context.Background(), w.sandbox("a"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"veth0", "eth0 /run/netns/a", "eth1 /run/netns/a", "net2 /run/netns/a",
		"eth1 10.0.0.1/29", "eth1 fd00::1/125",
	}
	if diff := cmp.Diff(want, lines(result)); diff != "" {
		t.Errorf("result: -want +got:\n%s", diff)
	}
	again, err := l.Add(context.Background(), w.sandbox("a"))
	if err != nil {
		t.Fatalf("repeated ADD: %v", err)
	}
	if diff := cmp.Diff(result, again); diff != "" {
		t.Errorf("repeated ADD: -first +second:\n%s", diff)
	}
	rec := decode(w.records["a/eth0"])
	if diff := cmp.Diff(map[string]string{"app": "web"}, rec.Labels); diff != "" {
		t.Errorf("labels: -want +got:\n%s", diff)
	}
	if rec.Interfaces[1].Parent != "ens4" || rec.Interfaces[0].Parent != "" {
		t.Errorf("parents: %q and %q, want none for a delegate and ens4", rec.Interfaces[0].Parent, rec.Interfaces[1].Parent)
	}
	if err := l.Del(context.Background(), request("a")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Detach net2", "Detach eth1", "Detach eth0"}, l.made("Detach")); diff != "" {
		t.Errorf("DEL is not in reverse order: -want +got:\n%s", diff)
	}
	l.drain()
	w.mustBeEmpty(t, "after DEL")
}

// The record is on disk before the first side effect, with the delegate's
// configuration, and again before ADD answers.
func TestAddJournalsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	l.hook = func(_ context.Context, call string) {
		if !strings.HasPrefix(call, "Attach") {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if data := w.records["a/eth0"]; data == nil || decode(data).Interfaces[0].DelegateConfig == nil {
			t.Errorf("%s before its record with the delegate's configuration: %s", call, data)
		}
	}
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	rec := decode(w.records["a/eth0"])
	if rec.State != attach.Attached || rec.Interfaces[0].Result == nil || rec.Interfaces[1].MAC == "" {
		t.Errorf("the record lacks the outcome: %+v", rec)
	}
}
