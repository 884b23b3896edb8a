// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// kubeUser is somebody with a token of his own, and no other rights than his role's.
type kubeUser struct {
	c          *cluster
	namespace  string
	kubeconfig string
}

// netadmin has the ClusterRole that deployments/ hands out, in the whole cluster.
func (c *cluster) netadmin(t *testing.T, ns string) *kubeUser {
	t.Helper()
	p := c.newUser(t, ns, "netadmin")
	c.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-netadmin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-netadmin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "netadmin"}},
	})
	return p
}

// tenant may do in a namespace what Kubernetes' role edit says.
func (c *cluster) tenant(t *testing.T, ns string) *kubeUser {
	t.Helper()
	p := c.newUser(t, ns, "tenant")
	c.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "tenant"}},
	})
	return p
}

// newUser makes a service account and a kubeconfig with its token and nothing else: a
// certificate beside the token would be whom the API server sees.
func (c *cluster) newUser(t *testing.T, ns, name string) *kubeUser {
	t.Helper()
	c.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	token, err := c.lab.Kubectl(t.Context(), "create", "token", name, "--namespace", ns)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := c.lab.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: name, Namespace: ns}
	config.CurrentContext = "lab"
	p := &kubeUser{c: c, namespace: ns, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*config, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// kubectl runs kubectl as the person; an error has what it printed.
func (p *kubeUser) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return p.c.lab.KubectlInput(ctx, input, append([]string{"--kubeconfig", p.kubeconfig}, args...)...)
}

// apply creates what a manifest says, however long rights and admission take to be
// there.
func (p *kubeUser) apply(t *testing.T, manifest string) {
	t.Helper()
	p.c.await(t.Context(), t, "the manifest is taken", func(ctx context.Context) string {
		if _, err := p.kubectl(ctx, manifest, "apply", "--filename", "-"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// checkRefused checks that a command fails with these words.
func (p *kubeUser) checkRefused(t *testing.T, reason, input string, words []string, args ...string) {
	t.Helper()
	p.c.await(t.Context(), t, reason, func(ctx context.Context) string {
		_, err := p.kubectl(ctx, input, args...)
		if err == nil {
			return "it was accepted"
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				return err.Error() + " (no word of " + word + ")"
			}
		}
		return ""
	})
}

// network reads a TenantNetwork of the person's namespace.
func (p *kubeUser) network(t *testing.T, name string) *v1.TenantNetwork {
	t.Helper()
	n := &v1.TenantNetwork{}
	n.Namespace, n.Name = p.namespace, name
	if err := p.c.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatalf("read TenantNetwork %s/%s: %v", p.namespace, name, err)
	}
	return n
}
