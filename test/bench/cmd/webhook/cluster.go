// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/services/scene"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Names in deployments/webhooks.
const (
	serviceName       = "patchbay-webhook"
	configurationName = "patchbay"
	podWebhook        = "pods.danm.io"
)

// clientCount is the number of connections over which Pods are created.
const clientCount = 8

// cluster is an API server with the controller, and the networks that Pods name.
type cluster struct {
	options

	env        *apitest.Env
	controller *scene.Controller
	// configuration is the webhooks' as the controller has completed it.
	configuration *admissionregv1.ValidatingWebhookConfiguration
	// clients create Pods.
	clients []client.Client
	prober  *prober
	// profiler profiles the controller; nil for no profile.
	profiler *profiler
}

// newCluster starts the controller and creates the networks.
func newCluster(ctx context.Context, env *apitest.Env, o options, program string) (_ *cluster, err error) {
	c := &cluster{options: o, env: env, configuration: &admissionregv1.ValidatingWebhookConfiguration{}}
	address, err := controlplane.FreeAddress()
	if err != nil {
		return nil, err
	}
	if err := c.installWebhooks(ctx, address.Addr().String(), int64(address.Port())); err != nil {
		return nil, err
	}
	// Without an election, because a replica that a busy API server does not answer for ten seconds ends.
	flags := []string{"--webhook-address=" + address.String(), "--leader-elect=false"}
	if o.profile != "" {
		flags = append(flags, "--profiles")
	}
	if c.controller, err = scene.Run(ctx, env, program, flags...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.controller.Kill(context.WithoutCancel(ctx)))
		}
	}()
	if err := errors.Join(admissiontest.Await(ctx, env), c.createNetworks(ctx)); err != nil {
		return nil, err
	}
	if err := env.Client.Get(ctx, client.ObjectKey{Name: configurationName}, c.configuration); err != nil {
		return nil, fmt.Errorf("read webhook configuration: %w", err)
	}
	if c.prober, err = newProber(c.configuration, address.String()); err != nil {
		return nil, err
	}
	if o.profile != "" {
		if c.profiler, err = newProfiler(ctx, env, c.controller); err != nil {
			return nil, err
		}
	}
	return c, c.connect()
}

// installWebhooks creates the configurations of deployments/, which name a Service. No program serves
// cluster IPs here, so the Service leads to an address, and the port is that of the controller.
func (c *cluster) installWebhooks(ctx context.Context, host string, port int64) error {
	folder, err := source.Path("deployments", "webhooks")
	if err != nil {
		return err
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: scene.Namespace, Name: serviceName},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: host},
	}
	install := []client.Object{service}
	for _, u := range objects {
		if !strings.HasSuffix(u.GetKind(), "WebhookConfiguration") {
			continue
		}
		if err := setPort(u, port); err != nil {
			return err
		}
		install = append(install, u)
	}
	for _, o := range install {
		if err := c.env.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("install webhooks: %w", err)
		}
	}
	return nil
}

// setPort sets the Service's port in all webhooks of a configuration.
func setPort(u *unstructured.Unstructured, port int64) error {
	hooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("read %s: %w", u.GetKind(), err)
	}
	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("read %s: webhook %d must be an object", u.GetKind(), i)
		}
		if err := unstructured.SetNestedField(hook, port, "clientConfig", "service", "port"); err != nil {
			return fmt.Errorf("set port: %w", err)
		}
	}
	return unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
}

// createNetworks creates the namespaces, a TenantConfig for each half of them, and the networks: three
// ClusterNetworks for every two TenantNetworks, which take turns in the namespaces.
func (c *cluster) createNetworks(ctx context.Context) error {
	var all []client.Object
	for i := range c.namespaces {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i), Labels: map[string]string{"half": half(i)}}})
	}
	for i, ids := range []string{"1-1000", "2001-3000"} {
		config := &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: "tenants-" + half(i)}}
		config.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"half": half(i)}}
		config.HostDevices = []v1.HostDevice{{Name: fmt.Sprintf("ens%d", 5+i), VNIType: "vxlan", VNIRange: ids}}
		all = append(all, config)
	}
	for i := range c.clusterNetworks() {
		n := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: clusterNetwork(i)}}
		n.Spec = v1.NetworkSpec{NetworkID: fmt.Sprintf("c%d", i), NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{
			Device: "ens4", VLAN: int32(i + 1), CIDR: fmt.Sprintf("10.%d.0.0/16", i%256),
		}}
		all = append(all, n)
	}
	for i := range c.networks - c.clusterNetworks() {
		n := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i % c.namespaces), Name: tenantNetwork(i / c.namespaces)}}
		n.Spec = v1.NetworkSpec{NetworkID: fmt.Sprintf("t%d", i), Options: v1.NetworkOptions{CIDR: fmt.Sprintf("192.168.%d.0/24", i%256)}}
		all = append(all, n)
	}
	for _, o := range all {
		if err := c.env.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// connect makes the clients that create Pods, each with a connection of its own. They have the account
// that creates Pods in a cluster: the API server limits it when it is busy, unlike an administrator's.
func (c *cluster) connect() error {
	const namespace = "kube-system"
	creator := apitest.Identity{
		UserName: "system:serviceaccount:" + namespace + ":replicaset-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	for range clientCount {
		config := c.env.ConfigAs(creator)
		config.Dial = (&net.Dialer{}).DialContext // a new function, so that client-go shares no connection
		one, err := client.New(config, client.Options{Scheme: c.env.Client.Scheme(), Mapper: c.env.Client.RESTMapper()})
		if err != nil {
			return fmt.Errorf("make client: %w", err)
		}
		c.clients = append(c.clients, one)
	}
	return nil
}

// configure creates or removes the configuration of the webhooks, and waits until the API server acts
// on that.
func (c *cluster) configure(ctx context.Context, configured bool) error {
	var err error
	if configured {
		next := c.configuration.DeepCopy()
		next.ResourceVersion, next.UID = "", ""
		err = client.IgnoreAlreadyExists(c.env.Client.Create(ctx, next))
	} else {
		err = client.IgnoreNotFound(c.env.Client.Delete(ctx, c.configuration.DeepCopy()))
	}
	if err != nil {
		return fmt.Errorf("change webhook configuration: %w", err)
	}
	wrong := c.pod("wrong", 0, true)
	wrong.Annotations[v1.InterfacesAnnotation] = `[{"clusterNetwork": "` + clusterNetwork(0) + `", "ip": "203.0.113.1"}]`
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for began := time.Now(); ; {
		err := c.env.Client.Create(ctx, wrong.DeepCopy(), client.DryRunAll)
		if rejected := err != nil && strings.Contains(err.Error(), podWebhook); rejected == configured && (rejected || err == nil) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await the webhook configuration: %w (last: %w)", ctx.Err(), err)
		case <-time.After(apitest.Pause(began)):
		}
	}
}
