// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// The node that has a daemon.
const (
	firstNode   = "node-00000"
	hostDevice  = "ens4"
	hostAddress = "10.89.0.1"
	hostPrefix  = 16
)

// patchbaySystem is the namespace of the daemon and the controller.
const patchbaySystem = "patchbay-system"

// cluster is an API server with the objects of many nodes, and the programs.
type cluster struct {
	options

	dir, auditFile               string
	env                          *apitest.Env
	daemon, controller, operator *program
	// sandbox is a process in the network namespace of the attached Pod.
	sandbox *exec.Cmd
}

// newCluster starts the API server, and installs what a user of the operator applies first.
func newCluster(ctx context.Context, o options) (_ *cluster, err error) {
	c := &cluster{options: o}
	if c.dir, err = os.MkdirTemp("", "capacity"); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(context.WithoutCancel(ctx)))
		}
	}()
	if err := errors.Join(createHost(), build(ctx, c.dir)); err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(c.dir, name) }
	c.daemon = &program{name: "patchbayd", namespace: patchbaySystem, folder: "daemon", kind: "DaemonSet", port: 9640, flags: []string{
		"--host-root=/", "--socket=" + in("socket"), "--pending-del-dir=" + in("pending"), "--journal=" + in("journal.db"),
		"--plugin=" + in("patchbay"), "--cni-bin-dir=" + in("cni-bin"), "--cni-conf-dir=" + in("cni-conf"),
	}}
	c.controller = &program{name: "patchbay-controller", namespace: patchbaySystem, folder: "controller", kind: "Deployment", port: 9641}
	c.operator = &program{name: "patchbay-operator", namespace: "patchbay-operator", folder: "operator", kind: "Deployment", port: 9647}
	users := fmt.Sprintf("%q, %q, %q", c.daemon.user(), c.controller.user(), c.operator.user())
	if err := errors.Join(
		os.WriteFile(in("audit.yaml"), fmt.Appendf(nil, auditPolicy, users), 0o600),
		os.Mkdir(in("cni-bin"), 0o700), os.Mkdir(in("cni-conf"), 0o700),
		// Another plugin, which is never called, for Pods without an annotation.
		os.Symlink("/bin/true", in("cni-bin/bridge")),
		os.WriteFile(in("cni-conf/10-bridge.conflist"), []byte(`{"cniVersion":"1.0.0","name":"bridge","plugins":[{"type":"bridge"}]}`), 0o600),
	); err != nil {
		return nil, fmt.Errorf("write files: %w", err)
	}
	c.auditFile = in("audit.log")
	if c.env, err = apitest.LaunchWithFlags(ctx, "--audit-policy-file="+in("audit.yaml"), "--audit-log-path="+c.auditFile); err != nil {
		return nil, err
	}
	return c, c.installOperator(ctx)
}

// createHost creates the NIC of the node. It is one end of a veth pair, because not all kernels have dummy links.
func createHost() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: hostDevice}, PeerName: hostDevice + "-peer"}); err != nil {
		return fmt.Errorf("add %s: %w", hostDevice, err)
	}
	for _, name := range []string{"lo", hostDevice, hostDevice + "-peer"} {
		link, err := netlink.LinkByName(name)
		if err == nil && name == hostDevice {
			address, parseErr := netlink.ParseAddr(fmt.Sprintf("%s/%d", hostAddress, hostPrefix))
			err = errors.Join(parseErr, netlink.AddrAdd(link, address))
		}
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	return nil
}

// installOperator creates what deployments/operator has, apart from the Deployment: its program is a process here.
// The API server calls the webhooks of the controller, which is one, too, by an EndpointSlice.
func (c *cluster) installOperator(ctx context.Context) error {
	folder, err := source.Path("deployments", "operator")
	if err != nil {
		return err
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		return err
	}
	order := []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
	for _, kind := range order {
		for _, o := range objects {
			if o.GetKind() != kind {
				continue
			}
			if err := client.IgnoreAlreadyExists(c.env.Client.Create(ctx, o)); err != nil {
				return fmt.Errorf("create %s %s: %w", kind, o.GetName(), err)
			}
		}
	}
	const service, port = "patchbay-webhook", 9642
	endpoints := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: patchbaySystem, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{hostAddress}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(port))}},
	}
	if err := c.env.Client.Create(ctx, endpoints); err != nil {
		return fmt.Errorf("create endpoints of the webhooks: %w", err)
	}
	return await(ctx, "the kind Installation", func(ctx context.Context) error { return c.env.Client.List(ctx, installations()) })
}

var installationKind = schema.GroupVersionKind{Group: "operator.patchbay.io", Version: "v1alpha1", Kind: "Installation"}

func installations() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(installationKind)
	return list
}

// programs returns the programs in the order in which they start.
func (c *cluster) programs() []*program { return []*program{c.daemon, c.controller, c.operator} }

// start starts all programs.
func (c *cluster) start(ctx context.Context) error {
	for _, p := range c.programs() {
		if err := p.start(ctx, c.dir); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all programs.
func (c *cluster) stop(ctx context.Context) error {
	var errs []error
	for _, p := range slices.Backward(c.programs()) {
		if p != nil {
			errs = append(errs, p.stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// close ends all processes, and removes all files.
func (c *cluster) close(ctx context.Context) error {
	err := c.stop(ctx)
	if c.sandbox != nil {
		err = errors.Join(err, c.sandbox.Process.Kill())
		_ = c.sandbox.Wait() // it was killed
	}
	if c.env != nil {
		err = errors.Join(err, c.env.Close(ctx))
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
