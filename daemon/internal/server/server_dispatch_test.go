// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// full is a result with everything that 1.1.0 knows.
func full() *types100.Result {
	one, ten := 1, 10
	return &types100.Result{
		CNIVersion: "1.1.0",
		Interfaces: []*types100.Interface{
			{Name: "eth0", Mac: "02:00:00:00:00:01", Sandbox: "/run/netns/x", Mtu: 1500, PciID: "0000:00:01.0"},
			{Name: "eth1", Sandbox: "/run/netns/x"},
		},
		IPs: []*types100.IPConfig{{
			Interface: &one, Address: net.IPNet{IP: net.IPv4(10, 0, 0, 5).To4(), Mask: net.CIDRMask(24, 32)},
		}},
		Routes: []*types.Route{{
			Dst: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, GW: net.IPv4(10, 0, 0, 1), Table: &ten, MTU: 1400,
		}},
	}
}

// The result is what the version that was asked for has, and no key more.
func TestResultByVersion(t *testing.T) {
	t.Parallel()
	h := &handler{add: func(context.Context, attach.Request) (*types100.Result, error) { return full(), nil }}
	d := start(t, prepare(t, h))
	const (
		before110 = `"interfaces":[{"mac":"02:00:00:00:00:01","name":"eth0","sandbox":"/run/netns/x"},{"name":"eth1","sandbox":"/run/netns/x"}],` +
			`"ips":[{%s"address":"10.0.0.5/24","interface":1}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]`
		in110 = `"interfaces":[{"mac":"02:00:00:00:00:01","mtu":1500,"name":"eth0","pciID":"0000:00:01.0","sandbox":"/run/netns/x"},{"name":"eth1","sandbox":"/run/netns/x"}],` +
			`"ips":[{"address":"10.0.0.5/24","interface":1}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400,"table":10}]`
	)
	old := fmt.Sprintf(before110, `"version":"4",`)
	for version, want := range map[string]string{
		"0.3.1": old + `,"dns":{}`, "0.4.0": old + `,"dns":{}`, "1.0.0": fmt.Sprintf(before110, ""), "1.1.0": in110,
	} {
		req := request("ADD", "c"+version)
		req.Config = config(version, "")
		res := d.call(req)
		if res.Error != nil {
			t.Errorf("%s: %v", version, res.Error)
			continue
		}
		var got, wanted map[string]any
		if err := json.Unmarshal(res.Result, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(fmt.Sprintf(`{"cniVersion":%q,%s}`, version, want)), &wanted); err != nil {
			t.Fatal(err)
		}
		delete(got, "dns")
		delete(wanted, "dns")
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", version, diff)
		}
	}
}

// The handler gets what request, configuration and arguments say together.
func TestRequestIsUnderstood(t *testing.T) {
	t.Parallel()
	got := make(chan attach.Request, 1)
	h := &handler{add: func(_ context.Context, req attach.Request) (*types100.Result, error) {
		got <- req
		return full(), nil
	}}
	d := start(t, prepare(t, h))
	req := request("ADD", "c1")
	req.Config = config("1.0.0", `"namingScheme":"legacy","cniDir":"/etc/cni/static",`)
	d.call(req)
	want := attach.Request{
		ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/x", Path: "/opt/cni/bin", NetName: "patchbay",
		NamingScheme: "legacy", CNIDir: "/etc/cni/static", PodNamespace: "ns", PodName: "web", PodUID: "u1",
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("attach.Request: -want +got:\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h := &handler{}
	d := start(t, prepare(t, h))
	cases := map[string]struct {
		reason string
		change func(*wire.Request)
		code   uint
		says   string
	}{
		"Command": {"not one", func(r *wire.Request) { r.Command = "PING" }, wire.CodeEnv, "PING"},
		"Check":   {"to come", func(r *wire.Request) { r.Command = "CHECK" }, wire.CodeNotImplemented, "CHECK"},
		"GC":      {"to come", func(r *wire.Request) { r.Command = "GC" }, wire.CodeNotImplemented, "GC"},
		"Env":     {"checked again: not only the plugin can open the socket", func(r *wire.Request) { r.ContainerID = "../x" }, wire.CodeEnv, `"../x"`},
		"Args":    {"the same", func(r *wire.Request) { r.Args = "x" }, wire.CodeEnv, `"x"`},
		"Config":  {"the same", func(r *wire.Request) { r.Config = config("1.1.0", `"cniDir":"x",`) }, wire.CodeConfig, "cniDir"},
		"Version": {"the same", func(r *wire.Request) { r.Config = config("0.2.0", "") }, wire.CodeVersion, "0.2.0"},
		"Chained": {"what another plugin made would be lost", func(r *wire.Request) { r.Config = config("1.1.0", `"prevResult":{},`) }, wire.CodeConfig, "first plugin"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request("ADD", "c")
			tc.change(req)
			res := d.call(req)
			if res.Error == nil || res.Error.Code != tc.code || !strings.Contains(res.Error.Msg, tc.says) {
				t.Errorf("%s: got %+v, want code %d that says %s", tc.reason, res.Error, tc.code, tc.says)
			}
		})
	}
	t.Cleanup(func() {
		if got := h.calls(); len(got) != 0 {
			t.Errorf("refused requests reached the handler: %v", got)
		}
	})
}

// An upgraded plugin must get rid of what its older self attached.
func TestDelNeedsNoConfiguration(t *testing.T) {
	t.Parallel()
	d := start(t, prepare(t, &handler{}))
	req := request("DEL", "c")
	req.Config, req.Args, req.Netns = []byte(`{"later":1}`), "???", ""
	if res := d.call(req); res.Error != nil {
		t.Errorf("DEL: %v", res.Error)
	}
}

func TestErrorCodes(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("attach eth0: %w", err) }
	cases := map[string]struct {
		reason string
		err    error
		code   uint
	}{
		"TryAgain":  {"waiting helps", wrap(attach.ErrTryAgain), wire.CodeTryAgain},
		"Deadline":  {"the API server did not answer", wrap(context.DeadlineExceeded), wire.CodeTryAgain},
		"Canceled":  {"the daemon stops", wrap(context.Canceled), wire.CodeTryAgain},
		"Both":      {"undoing failed too: DEL will do it", errors.Join(attach.ErrTryAgain, errors.New("x")), wire.CodeTryAgain},
		"Invalid":   {"a request that no runtime may send", wrap(attach.ErrInvalidRequest), wire.CodeEnv},
		"Ours":      {"an error that knows its code", wrap(&wire.Error{Code: 7, Msg: "x"}), wire.CodeConfig},
		"Busy":      {"a delegate says that waiting helps", wrap(types.NewError(types.ErrTryAgainLater, "x", "")), wire.CodeTryAgain},
		"Delegate":  {"its environment is not the runtime's", wrap(types.NewError(types.ErrInvalidEnvironmentVariables, "x", "")), wire.CodeFailed},
		"NotFound":  {"no such network", wrap(attach.ErrNotFound), wire.CodeFailed},
		"Deleted":   {"a DEL ended it", wrap(attach.ErrDeleted), wire.CodeFailed},
		"Otherwise": {"what the kernel said", wrap(errors.New("no such device")), wire.CodeFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &handler{
				add: func(context.Context, attach.Request) (*types100.Result, error) { return nil, tc.err },
				del: func(context.Context, attach.Request) error { return tc.err },
			}
			d := start(t, prepare(t, h))
			for _, command := range []string{"ADD", "DEL"} {
				res := d.call(request(command, "c"))
				if res.Error == nil || res.Error.Code != tc.code || strings.Contains(res.Error.Msg, "\n") {
					t.Errorf("%s: %s: got %+v, want code %d on one line", tc.reason, command, res.Error, tc.code)
				}
			}
		})
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	h := &handler{del: func(context.Context, attach.Request) error { return attach.ErrTryAgain }}
	c := prepare(t, h)
	var mu sync.Mutex
	seen := map[string]uint{}
	c.Observe = func(command string, code uint, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if took <= 0 {
			t.Errorf("%s took %v", command, took)
		}
		seen[command] = code
	}
	d := start(t, c)
	d.call(request("ADD", "c"))
	d.call(request("DEL", "c"))
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]uint{"STATUS": 0, "ADD": 0, "DEL": 11}, seen); diff != "" {
		t.Errorf("observed: -want +got:\n%s", diff)
	}
}
