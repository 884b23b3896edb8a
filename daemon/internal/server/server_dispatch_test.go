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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// fullResult returns a result with all keys of CNI 1.1.0.
func fullResult() *types100.Result {
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

// The result has only keys of the requested version.
func TestResultByVersion(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{add: func(context.Context, attach.Request) (*types100.Result, error) { return fullResult(), nil }}
	d := start(t, newConfig(t, h))
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
		req := newRequest("ADD", "c"+version)
		req.Config = newNetConf(version, "")
		res := d.call(req)
		if res.Error != nil {
			t.Errorf("%s: %v", version, res.Error)
			continue
		}
		var got, expected map[string]any
		if err := json.Unmarshal(res.Result, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(fmt.Sprintf(`{"cniVersion":%q,%s}`, version, want)), &expected); err != nil {
			t.Fatal(err)
		}
		delete(got, "dns")
		delete(expected, "dns")
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", version, diff)
		}
	}
}

// The handler receives the values of request, configuration and arguments.
func TestRequestIsParsed(t *testing.T) {
	t.Parallel()
	got := make(chan attach.Request, 1)
	h := &fakeHandler{add: func(_ context.Context, req attach.Request) (*types100.Result, error) {
		got <- req
		return fullResult(), nil
	}}
	d := start(t, newConfig(t, h))
	req := newRequest("ADD", "c1")
	req.Config = newNetConf("1.0.0", `"namingScheme":"legacy","cniDir":"/etc/cni/static","runtimeConfig":{"dns":{}},`)
	d.call(req)
	want := attach.Request{
		ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/x", Path: "/opt/cni/bin", NetName: "patchbay",
		NamingScheme: "legacy", CNIDir: "/etc/cni/static", PodNamespace: "ns", PodName: "web", PodUID: "u1",
		RuntimeConfig: []byte(`{"dns":{}}`),
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("attach.Request: -want +got:\n%s", diff)
	}
}

// An invalid request does not reach the handler.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{}
	d := start(t, newConfig(t, h))
	cases := map[string]struct {
		reason string
		change func(*wire.Request)
		code   uint
		want   string
	}{
		"Command": {"The command does not exist.", func(r *wire.Request) { r.Command = "PING" }, wire.CodeEnv, "PING"},
		"Check":   {"CHECK is not implemented yet.", func(r *wire.Request) { r.Command = "CHECK" }, wire.CodeNotImplemented, "CHECK"},
		"GC":      {"GC is not implemented yet.", func(r *wire.Request) { r.Command = "GC" }, wire.CodeNotImplemented, "GC"},
		"Env":     {"Other programs than the plugin can open the socket.", func(r *wire.Request) { r.ContainerID = "../x" }, wire.CodeEnv, `"../x"`},
		"Args":    {"The arguments are validated again.", func(r *wire.Request) { r.Args = "x" }, wire.CodeEnv, `"x"`},
		"Config":  {"The configuration is validated again.", func(r *wire.Request) { r.Config = newNetConf("1.1.0", `"cniDir":"x",`) }, wire.CodeConfig, "cniDir"},
		"Version": {"The version is validated again.", func(r *wire.Request) { r.Config = newNetConf("0.2.0", "") }, wire.CodeVersion, "0.2.0"},
		"Chained": {"The result of an earlier plugin would be lost.", func(r *wire.Request) { r.Config = newNetConf("1.1.0", `"prevResult":{},`) }, wire.CodeConfig, "first plugin"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := newRequest("ADD", "c")
			tc.change(req)
			res := d.call(req)
			if res.Error == nil || res.Error.Code != tc.code || !strings.Contains(res.Error.Msg, tc.want) {
				t.Errorf("%s: got %+v, want code %d with %s", tc.reason, res.Error, tc.code, tc.want)
			}
		})
	}
	t.Cleanup(func() {
		if got := h.calls(); len(got) != 0 {
			t.Errorf("invalid requests reached the handler: %v", got)
		}
	})
}

// An upgraded plugin must be able to delete sandboxes of the older one.
func TestDelNeedsNoConfiguration(t *testing.T) {
	t.Parallel()
	d := start(t, newConfig(t, &fakeHandler{}))
	req := newRequest("DEL", "c")
	req.Config, req.Args, req.Netns = []byte(`{"later":1}`), "???", ""
	if res := d.call(req); res.Error != nil {
		t.Errorf("DEL: %v", res.Error)
	}
}

// Each error has the CNI code that tells the runtime whether a retry helps.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("attach eth0: %w", err) }
	cases := map[string]struct {
		reason string
		err    error
		code   uint
	}{
		"TryAgain": {"A retry may help.", wrap(attach.ErrTryAgain), wire.CodeTryAgain},
		"Deadline": {"The API server did not answer in time.", wrap(context.DeadlineExceeded), wire.CodeTryAgain},
		"Canceled": {"The daemon stops.", wrap(context.Canceled), wire.CodeTryAgain},
		"Both":     {"The roll-back failed as well.", errors.Join(attach.ErrTryAgain, errors.New("x")), wire.CodeTryAgain},
		"Invalid":  {"A field of the request is invalid.", wrap(attach.ErrInvalidRequest), wire.CodeEnv},
		"Own":      {"The error has a code.", wrap(&wire.Error{Code: 7, Msg: "x"}), wire.CodeConfig},
		"Busy":     {"The delegate reports that a retry may help.", wrap(types.NewError(types.ErrTryAgainLater, "x", "")), wire.CodeTryAgain},
		"Delegate": {"The delegate's input is not the runtime's.", wrap(types.NewError(types.ErrInvalidEnvironmentVariables, "x", "")), wire.CodeFailed},
		"NotFound": {"The network does not exist.", wrap(attach.ErrNotFound), wire.CodeFailed},
		"Deleted":  {"A DEL canceled the ADD.", wrap(attach.ErrDeleted), wire.CodeFailed},
		"Other":    {"The kernel returned an error.", wrap(errors.New("no such device")), wire.CodeFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fakeHandler{
				add: func(context.Context, attach.Request) (*types100.Result, error) { return nil, tc.err },
				del: func(context.Context, attach.Request) error { return tc.err },
			}
			d := start(t, newConfig(t, h))
			for _, command := range []string{"ADD", "DEL"} {
				res := d.call(newRequest(command, "c"))
				if res.Error == nil || res.Error.Code != tc.code || strings.Contains(res.Error.Msg, "\n") {
					t.Errorf("%s: %s: got %+v, want code %d on one line", tc.reason, command, res.Error, tc.code)
				}
			}
		})
	}
}

// kubelet repeats the message in its Event, where the word leads to the Pod's other Event and to the
// catalogue of reasons.
func TestErrorHasTheReasonOfTheEvent(t *testing.T) {
	t.Parallel()
	failure := &attach.PodError{Reason: v1.ReasonAddressesExhausted, Err: fmt.Errorf("network lan: %w", attach.ErrTryAgain)}
	cases := map[string]struct {
		reason string
		err    error
		want   wire.Error
	}{
		"Failure": {
			"The Pod has an Event.", errors.Join(failure, errors.New("roll-back failed")),
			wire.Error{Code: wire.CodeTryAgain, Msg: "AddressesExhausted: network lan: try again later; roll-back failed"},
		},
		"NoEvent": {
			"There is no Pod that could have an Event.", fmt.Errorf("find Pod: %w", attach.ErrNotFound),
			wire.Error{Code: wire.CodeFailed, Msg: "find Pod: not found"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fakeHandler{add: func(context.Context, attach.Request) (*types100.Result, error) { return nil, tc.err }}
			d := start(t, newConfig(t, h))
			if diff := cmp.Diff(&tc.want, d.call(newRequest("ADD", "c")).Error); diff != "" {
				t.Errorf("%s: CNI error: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Observe receives the command, the code and the duration of each request.
func TestObserve(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{del: func(context.Context, attach.Request) error { return attach.ErrTryAgain }}
	c := newConfig(t, h)
	var mu sync.Mutex
	observed := map[string]uint{}
	c.Observe = func(command string, code uint, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if took <= 0 {
			t.Errorf("duration of %s: got %v, want more than 0", command, took)
		}
		observed[command] = code
	}
	d := start(t, c)
	d.call(newRequest("ADD", "c"))
	d.call(newRequest("DEL", "c"))
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]uint{"STATUS": 0, "ADD": 0, "DEL": 11}, observed); diff != "" {
		t.Errorf("observed codes: -want +got:\n%s", diff)
	}
}
