// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// inert are the controllers that run no workloads.
const inert = "namespace-controller,garbage-collector-controller,serviceaccount-controller,serviceaccount-token-controller," +
	"ttl-after-finished-controller,bootstrap-signer-controller,token-cleaner-controller,root-ca-certificate-publisher-controller," +
	"certificatesigningrequest-cleaner-controller,certificatesigningrequest-signing-controller,clusterrole-aggregation-controller," +
	"persistentvolumeclaim-protection-controller"

// account is what the names of our service accounts begin with.
const account = "system:serviceaccount:" + v1alpha1.SystemNamespace

// Config says where a hub's API server is.
type Config struct {
	// BinDir has kube-apiserver and kube-controller-manager; etcd is there or in the
	// PATH.
	BinDir string
	// DataDir keeps everything, over restarts. Relative paths are the working folder's.
	DataDir string
	// Address and Port are where agents dial the API server.
	Address net.IP
	// Listen is the address that the API server listens on, if it is not Address: in a
	// container, or behind NAT.
	Listen net.IP
	// Port of the API server.
	Port int
}

// Kubeconfig is where the admin's kubeconfig is.
func (c Config) Kubeconfig() string { return c.path("admin.kubeconfig") }

// Hub is how the hub's program reaches the API server: with the rights of its service
// account, and no more.
func (c Config) Hub() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = nil, nil, c.path("hub.crt"), c.path("hub.key")
	return cfg, nil
}

// Log opens a file for the logs of a program, and empties it.
func (c Config) Log(program string) (*os.File, error) {
	f, err := os.Create(c.path(program + ".log"))
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", program, err)
	}
	return f, nil
}

func (c Config) listen() net.IP {
	if c.Listen != nil {
		return c.Listen
	}
	return c.Address
}

func (c Config) path(name string) string { return filepath.Join(c.DataDir, name) }

func (c Config) url() string {
	return "https://" + net.JoinHostPort(c.Address.String(), strconv.Itoa(c.Port))
}

// prepare makes certificates and kubeconfig.
func (c Config) prepare() error {
	a, err := loadAuthority(c.DataDir)
	if err != nil {
		return err
	}
	if _, err := loadKey(c.path("accounts.key")); err != nil {
		return err
	}
	err = a.issue(c.path("server"), pkix.Name{CommonName: "patchbay-hub"}, x509.ExtKeyUsageServerAuth,
		[]net.IP{c.Address, net.IPv4(127, 0, 0, 1)}, []string{"localhost", "kubernetes.default.svc"})
	if err != nil {
		return err
	}
	for name, subject := range map[string]pkix.Name{
		"admin": {CommonName: "admin", Organization: []string{"system:masters"}},
		"hub":   {CommonName: account + ":patchbay-hub", Organization: []string{"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.SystemNamespace}},
	} {
		if err := a.issue(c.path(name), subject, x509.ExtKeyUsageClientAuth, nil, nil); err != nil {
			return err
		}
	}
	return c.writeKubeconfig()
}

// writeKubeconfig has its certificates in it, so that it can be copied elsewhere.
func (c Config) writeKubeconfig() error {
	k := api.NewConfig()
	cluster, user, context := api.NewCluster(), api.NewAuthInfo(), api.NewContext()
	var err error
	for name, to := range map[string]*[]byte{
		"ca.crt": &cluster.CertificateAuthorityData, "admin.crt": &user.ClientCertificateData, "admin.key": &user.ClientKeyData,
	} {
		if *to, err = os.ReadFile(c.path(name)); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	cluster.Server, context.Cluster, context.AuthInfo = c.url(), "hub", "admin"
	k.Clusters["hub"], k.AuthInfos["admin"], k.Contexts["hub"], k.CurrentContext = cluster, user, context, "hub"
	if err := clientcmd.WriteToFile(*k, c.Kubeconfig()); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
}
