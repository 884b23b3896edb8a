// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kube

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// node is the node that tests run as.
const node = "node-1"

// connect returns a client with the rights of the node daemon in deployments/.
func connect(t *testing.T, env *apitest.Env) client.Client {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(env.ConfigAs(apitest.NodeDaemon(node)), client.Options{Scheme: scheme, Mapper: NewMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clusterNetwork creates a network with a unique name and a /24.
func clusterNetwork(t *testing.T, env *apitest.Env) *v1.ClusterNetwork {
	t.Helper()
	name := apitest.Name("net")
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NetworkSpec{NetworkID: "n" + name[len(name)-8:], NetworkType: "macvlan",
			Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/24"}},
	}
	if err := env.Client.Create(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), cn) })
	return cn
}

// ref returns the reference of a ClusterNetwork.
func ref(cn *v1.ClusterNetwork) network.Ref {
	return network.Ref{Kind: v1.KindClusterNetwork, Name: cn.Name}
}
