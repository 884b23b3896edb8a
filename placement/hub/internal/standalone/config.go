// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Config configures a hub's API server.
type Config struct {
	// BinDir has the programs kube-apiserver, kube-controller-manager and etcd. Programs that it lacks are
	// looked up in the PATH.
	BinDir string
	// DataDir stores all data over restarts. A relative path is relative to the working folder.
	DataDir string
	// Address is the IP address at which agents dial the API server.
	Address net.IP
	// Listen is the IP address on which the API server listens, if it is not Address: in a container, or
	// behind NAT.
	Listen net.IP
	// Port of the API server.
	Port int
}

// Validate checks the flags, and that the programs exist.
func (c Config) Validate() error {
	switch {
	case c.Address == nil || c.Address.IsUnspecified():
		return errors.New("flag --address: must be the IP address at which agents dial the hub, such as 192.0.2.10")
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("flag --port: %d must be from 1 to 65535", c.Port)
	case c.DataDir == "":
		return errors.New("flag --data-dir: must be a folder for the hub's data")
	}
	for _, p := range programs(c) {
		if _, err := findBinary(c.BinDir, p.name); err != nil {
			return fmt.Errorf("flag --bin-dir: %s must be in %q or in the PATH: "+
				"give the folder with the program (`make packages kubernetes` installs the programs in bin/kubernetes and the PATH)", p.name, c.BinDir)
		}
	}
	return nil
}

// KubeconfigPath returns the path of the admin's kubeconfig.
func (c Config) KubeconfigPath() string { return c.dataPath("admin.kubeconfig") }

// HubRESTConfig returns the client configuration of patchbay-hub, which has the rights of its
// ServiceAccount only.
func (c Config) HubRESTConfig() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = nil, nil, c.dataPath("hub.crt"), c.dataPath("hub.key")
	return cfg, nil
}

// OpenLog creates the log file of a program, or truncates it.
func (c Config) OpenLog(program string) (*os.File, error) {
	f, err := os.Create(c.dataPath(program + ".log"))
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", program, err)
	}
	return f, nil
}

func (c Config) listenAddress() net.IP {
	if c.Listen != nil {
		return c.Listen
	}
	return c.Address
}

func (c Config) dataPath(name string) string { return filepath.Join(c.DataDir, name) }

func (c Config) serverURL() string {
	return "https://" + net.JoinHostPort(c.Address.String(), strconv.Itoa(c.Port))
}

// writeCredentials creates certificates and kubeconfig.
func (c Config) writeCredentials() error {
	a, err := loadOrCreateCA(c.DataDir, "ca", "patchbay-hub")
	if err != nil {
		return err
	}
	if _, err := loadOrCreateKey(c.dataPath("accounts.key")); err != nil {
		return err
	}
	err = a.issueCertificate(c.dataPath("server"), pkix.Name{CommonName: "patchbay-hub"}, x509.ExtKeyUsageServerAuth,
		[]net.IP{c.Address, net.IPv4(127, 0, 0, 1)}, []string{"localhost", "kubernetes.default.svc"})
	if err != nil {
		return err
	}
	for name, subject := range map[string]pkix.Name{
		"admin": {CommonName: "admin", Organization: []string{"system:masters"}},
		"hub":   {CommonName: serviceAccountPrefix + ":patchbay-hub", Organization: []string{"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.SystemNamespace}},
	} {
		if err := a.issueCertificate(c.dataPath(name), subject, x509.ExtKeyUsageClientAuth, nil, nil); err != nil {
			return err
		}
	}
	// A client with a certificate of the front proxy's CA can name any user to an aggregated API, so that no other
	// certificate is of this CA.
	front, err := loadOrCreateCA(c.DataDir, "front-proxy-ca", "patchbay-hub-front-proxy")
	if err != nil {
		return err
	}
	if err := front.issueCertificate(c.dataPath("front-proxy"), pkix.Name{CommonName: frontProxyName}, x509.ExtKeyUsageClientAuth, nil, nil); err != nil {
		return err
	}
	return c.writeKubeconfig()
}

// frontProxyName is the common name as which the API server authenticates itself at an aggregated API.
const frontProxyName = "front-proxy-client"

// serviceAccountPrefix is the prefix of the user names of the hub's ServiceAccounts.
const serviceAccountPrefix = "system:serviceaccount:" + v1alpha1.SystemNamespace

// writeKubeconfig writes the admin's kubeconfig with embedded certificates, so that it can be copied.
func (c Config) writeKubeconfig() error {
	k := api.NewConfig()
	cluster, user, context := api.NewCluster(), api.NewAuthInfo(), api.NewContext()
	var err error
	for name, to := range map[string]*[]byte{
		"ca.crt": &cluster.CertificateAuthorityData, "admin.crt": &user.ClientCertificateData, "admin.key": &user.ClientKeyData,
	} {
		if *to, err = os.ReadFile(c.dataPath(name)); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	cluster.Server, context.Cluster, context.AuthInfo = c.serverURL(), "hub", "admin"
	k.Clusters["hub"], k.AuthInfos["admin"], k.Contexts["hub"], k.CurrentContext = cluster, user, context, "hub"
	if err := clientcmd.WriteToFile(*k, c.KubeconfigPath()); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
