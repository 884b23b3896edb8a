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

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// inert are the controllers that run no workloads.
const inert = "namespace-controller,garbage-collector-controller,serviceaccount-controller,serviceaccount-token-controller," +
	"ttl-after-finished-controller,bootstrap-signer-controller,token-cleaner-controller,root-ca-certificate-publisher-controller," +
	"certificatesigningrequest-cleaner-controller,certificatesigningrequest-signing-controller,clusterrole-aggregation-controller"

// Config says where a hub's API server is.
type Config struct {
	// BinDir has kube-apiserver and kube-controller-manager; etcd is there or in the
	// PATH.
	BinDir string
	// DataDir keeps everything, over restarts. Relative paths are the working folder's.
	DataDir string
	// Address and Port that the API server listens on. Agents dial them.
	Address net.IP
	// Port of the API server.
	Port int
}

// Kubeconfig is where the admin's kubeconfig is.
func (c Config) Kubeconfig() string { return c.path("admin.kubeconfig") }

func (c Config) path(name string) string { return filepath.Join(c.DataDir, name) }

func (c Config) url() string {
	return "https://" + net.JoinHostPort(c.Address.String(), strconv.Itoa(c.Port))
}

// prepare makes folder, certificates and kubeconfig.
func (c Config) prepare() error {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
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
	admin := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	if err := a.issue(c.path("admin"), admin, x509.ExtKeyUsageClientAuth, nil, nil); err != nil {
		return err
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
