// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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

// Times that a hub which was killed just now may still keep port and folder.
const (
	portTimeout = 5 * time.Second
	lockTimeout = 10 * time.Second
)

// Validate refuses what can be seen to be wrong from the flags alone.
func (c Config) Validate() error {
	switch {
	case c.Address == nil || c.Address.IsUnspecified():
		return errors.New("flag --address: want the IP address that agents dial the hub at, such as 192.0.2.10")
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("flag --port: got %d, want 1 to 65535", c.Port)
	case c.DataDir == "":
		return errors.New("flag --data-dir: want a folder for all that is stored")
	}
	for _, p := range programs(c) {
		if _, err := findBinary(c.BinDir, p.name); err != nil {
			return fmt.Errorf("flag --bin-dir: %s is neither in %q nor in the PATH: "+
				"give the folder that has it (`make packages kubernetes` puts them into bin/kubernetes and the PATH)", p.name, c.BinDir)
		}
	}
	return nil
}

// KubeconfigPath is where the admin's kubeconfig is.
func (c Config) KubeconfigPath() string { return c.dataPath("admin.kubeconfig") }

// HubRESTConfig is how the hub's program reaches the API server: with the rights of its service
// account, and no more.
func (c Config) HubRESTConfig() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = nil, nil, c.dataPath("hub.crt"), c.dataPath("hub.key")
	return cfg, nil
}

// OpenLog opens a file for the logs of a program, and empties it.
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

// lockDataDir makes the folder and takes it. It is free again when this process has ended and all
// that it started, which have the file, too: a new etcd finds none of before.
func (c Config) lockDataDir(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("flag --data-dir: make the folder (give one that can be written): %w", err)
	}
	f, err := os.OpenFile(c.dataPath("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("flag --data-dir: write in the folder (give one that can be written): %w", err)
	}
	for end := time.Now().Add(lockTimeout); ; sleepPollInterval(ctx) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, c.removeStaleSockets()
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("flag --data-dir: a hub runs on %s: end that, or give another folder: %w", c.DataDir, err), f.Close())
		}
	}
}

// removeStaleSockets removes what an etcd that was killed leaves: a new one cannot listen there.
func (c Config) removeStaleSockets() error {
	for _, name := range []string{etcdSocket, etcdPeerSocket} {
		if err := os.Remove(c.dataPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove socket of another life: %w", err)
		}
	}
	return nil
}

// checkPortFree makes sure that the API server can listen where it is to.
func (c Config) checkPortFree(ctx context.Context) error {
	address := net.JoinHostPort(c.listenAddress().String(), strconv.Itoa(c.Port))
	for end := time.Now().Add(portTimeout); ; sleepPollInterval(ctx) {
		l, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			return l.Close()
		case errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil && time.Now().Before(end):
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("flag --port: %s is taken by somebody else: give a free port: %w", address, err)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("flag --listen (default: --address): %s is no address of this machine: give one that is: %w", c.listenAddress(), err)
		default:
			return fmt.Errorf("flags --listen and --port: cannot listen on %s: %w", address, err)
		}
	}
}

// sleepPollInterval is that between two looks.
func sleepPollInterval(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pollInterval):
	}
}

// writeCredentials makes certificates and kubeconfig.
func (c Config) writeCredentials() error {
	a, err := loadOrCreateCA(c.DataDir)
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
	return c.writeKubeconfig()
}

// serviceAccountPrefix is what the names of our service accounts begin with.
const serviceAccountPrefix = "system:serviceaccount:" + v1alpha1.SystemNamespace

// writeKubeconfig has its certificates in it, so that it can be copied elsewhere.
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
