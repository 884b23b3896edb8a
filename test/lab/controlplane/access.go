// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
)

// URL returns the API server's address, reachable in the control plane's namespace.
func (c *ControlPlane) URL() string { return c.config.url() }

// EtcdURL returns what further control planes put into Config.Etcd to share this etcd.
func (c *ControlPlane) EtcdURL() string { return c.config.etcdURL() }

// EtcdPrefix returns the prefix of this control plane's keys in etcd.
func (c *ControlPlane) EtcdPrefix() string { return c.config.EtcdPrefix }

// AdminKubeconfig returns the path of a kubeconfig that may do everything.
func (c *ControlPlane) AdminKubeconfig() string { return c.config.path(adminFile) }

// Kubeconfig returns a self-contained kubeconfig for any user in any groups.
func (c *ControlPlane) Kubeconfig(user string, groups ...string) ([]byte, error) {
	return c.config.kubeconfig(c.ca, user, groups...)
}

// NodeKubeconfig returns the kubeconfig of a kubelet: the Node authorizer knows it as
// this node and lets it do what nodes do.
func (c *ControlPlane) NodeKubeconfig(node string) ([]byte, error) {
	return c.Kubeconfig("system:node:"+node, "system:nodes")
}

// RESTConfig returns the admin's client configuration, without client-side throttling.
// Its connections are made in the control plane's namespace, so it works from outside.
func (c *ControlPlane) RESTConfig() *rest.Config {
	config := &rest.Config{
		Host: c.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.ca.pem, CertData: c.admin.cert, KeyData: c.admin.key,
		},
		QPS: -1,
	}
	if c.config.Netns != "" {
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return netns.Dial(ctx, c.config.Netns, net.Dialer{}, network, address)
		}
	}
	return config
}
