// SPDX-License-Identifier: Apache-2.0

// Package delegate lets another CNI plugin make an interface: flannel or Calico
// for eth0, or any plugin that a network's type names. The network's ID names a
// configuration, or a list of them, in the CNI configuration folder. It is
// journalled before the first plugin runs, so that DEL runs with the same one.
package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// undoTimeout bounds the DEL after an ADD that failed.
const undoTimeout = 30 * time.Second

// Options are the choices of New; the zero value runs plugins as they are.
type Options struct {
	// HostRoot, such as /host, is where the host's files are: plugins run with
	// it as their root, since those on the host may need its libraries and
	// configuration. Empty or "/": the daemon's own root. CNI_PATH and the
	// network namespace are paths below it. Needs CAP_SYS_CHROOT.
	HostRoot string
	// Timeout bounds one execution of a plugin; 60 s when zero.
	Timeout time.Duration
}

// Delegate is the backend of networks whose type names another plugin. It has
// no state: what DEL needs is in the journal.
type Delegate struct {
	exec *executor
}

// New returns the backend.
func New(o Options) *Delegate {
	return &Delegate{exec: &executor{
		root:    cmp.Or(o.HostRoot, "/"),
		timeout: cmp.Or(o.Timeout, defaultTimeout),
	}}
}

// Prepare reads <CNIDir>/<NetworkID>.conflist or .conf into the interface. The
// network's type must be that of the (first) plugin: the network then tells who
// does the work, and a tenant that may use one plugin cannot name the file of
// another.
func (d *Delegate) Prepare(_ context.Context, req *attach.Request, ifc *attach.Interface) error {
	data, err := readConfig(req.CNIDir, ifc.Network.ID)
	if err != nil {
		return err
	}
	list, err := parseList(data)
	if err != nil {
		return fmt.Errorf("delegate's configuration %s in %s: %w", ifc.Network.ID, req.CNIDir, err)
	}
	if first := list.Plugins[0].Network.Type; first != ifc.Network.Type {
		return fmt.Errorf("delegate's configuration %s in %s is for plugin %q, and the network's NetworkType is %q: they must be the same",
			ifc.Network.ID, req.CNIDir, first, ifc.Network.Type)
	}
	ifc.DelegateConfig = data
	return nil
}

// Attach runs ADD with each plugin of the list and completes Result, MAC and
// MTU. On error it has run DEL.
func (d *Delegate) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	r, err := d.newInvocation(rec, ifc)
	if err != nil {
		return err
	}
	result, err := r.runAdd(ctx)
	if err == nil {
		err = setResult(ifc, result)
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if undo := r.runDel(ctx, result); undo != nil {
		return errors.Join(err, fmt.Errorf("undo: %w", undo))
	}
	return err
}

// setResult puts the outcome into the interface. MAC and MTU stay empty when the
// plugin does not tell: before CNI 1.1 a result has no MTU.
func setResult(ifc *attach.Interface, result *types100.Result) error {
	if err := validateResult(result); err != nil {
		return err
	}
	data, err := json.Marshal(result)
	if err == nil {
		// A route without a destination encodes to what cannot be read again.
		err = json.Unmarshal(data, &types100.Result{})
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	ifc.Result = data
	for _, link := range result.Interfaces {
		if link.Name == ifc.Name && link.Sandbox != "" {
			ifc.MAC, ifc.MTU = link.Mac, link.Mtu
		}
	}
	return nil
}

// validateResult checks what is left to check in a result in our own version: runtimes
// take the indexes as they are.
func validateResult(r *types100.Result) error {
	for i, ip := range r.IPs {
		if ip.Interface != nil && (*ip.Interface < 0 || *ip.Interface >= len(r.Interfaces)) {
			return fmt.Errorf("result: ips[%d] is of interface %d of %d", i, *ip.Interface, len(r.Interfaces))
		}
		if len(ip.Address.IP) == 0 {
			return fmt.Errorf("result: ips[%d] has no address", i)
		}
	}
	return nil
}

// Detach runs DEL with each plugin of the list, the last first. A plugin must
// take a DEL for what is gone already (CNI 1.1, section 2, DEL). Once the network
// namespace is gone too, one that is not installed any more is left out.
func (d *Delegate) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	r, err := d.newInvocation(rec, ifc)
	if err != nil {
		return err
	}
	var result *types100.Result
	if len(ifc.Result) > 0 {
		result = &types100.Result{}
		if err := json.Unmarshal(ifc.Result, result); err != nil {
			return fmt.Errorf("decode the journalled result: %w", err)
		}
	}
	return r.runDel(ctx, result)
}

// newInvocation is from the record alone.
func (d *Delegate) newInvocation(rec *attach.Record, ifc *attach.Interface) (*invocation, error) {
	list, err := parseList(ifc.DelegateConfig)
	if err != nil {
		return nil, fmt.Errorf("journalled configuration: %w", err)
	}
	return &invocation{exec: d.exec, list: list, args: newCNIArgs(rec, ifc), master: ifc.Parent}, nil
}

var (
	_ attach.Backend  = (*Delegate)(nil)
	_ attach.Preparer = (*Delegate)(nil)
)
