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

// lines returns a result in short form: interfaces, then addresses.
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

// An ADD returns the merged result, a repeated one the same result, and a DEL removes all.
func TestAdd(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	result, err := d.Add(context.Background(), env.sandbox("a"))
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
	again, err := d.Add(context.Background(), env.sandbox("a"))
	if err != nil {
		t.Fatalf("repeated ADD: %v", err)
	}
	if diff := cmp.Diff(result, again); diff != "" {
		t.Errorf("repeated ADD: -first +second:\n%s", diff)
	}
	rec := decode(env.records["a/eth0"])
	if diff := cmp.Diff(map[string]string{"app": "web"}, rec.Labels); diff != "" {
		t.Errorf("labels: -want +got:\n%s", diff)
	}
	if rec.Interfaces[1].Parent != "ens4" || rec.Interfaces[0].Parent != "" {
		t.Errorf("got parents %q and %q, want none for a delegate and ens4", rec.Interfaces[0].Parent, rec.Interfaces[1].Parent)
	}
	if err := d.Del(context.Background(), request("a")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Detach net2", "Detach eth1", "Detach eth0"}, d.callsWithPrefix("Detach")); diff != "" {
		t.Errorf("order of DEL: -want +got:\n%s", diff)
	}
	d.runPublisher()
	env.mustBeEmpty(t, "after DEL")
}

// The record is on disk before the first side effect, with the delegate's configuration, and again
// before ADD returns.
func TestAddJournalsFirst(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	d.hook = func(_ context.Context, call string) {
		if !strings.HasPrefix(call, "Attach") {
			return
		}
		env.mu.Lock()
		defer env.mu.Unlock()
		if data := env.records["a/eth0"]; data == nil || decode(data).Interfaces[0].DelegateConfig == nil {
			t.Errorf("%s: got record %s, want one with the delegate's configuration", call, data)
		}
	}
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	rec := decode(env.records["a/eth0"])
	if rec.State != attach.Attached || rec.Interfaces[0].Result == nil || rec.Interfaces[1].MAC == "" {
		t.Errorf("got record %+v, want state, result and MAC address of the attached interfaces", rec)
	}
}
