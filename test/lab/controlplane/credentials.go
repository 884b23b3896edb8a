// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// mastersGroup may do everything, past all authorizers.
const mastersGroup = "system:masters"

// writeCredentials fills the folder with what the parts need to trust each other.
func (c Config) writeCredentials() error {
	ca, err := newAuthority(c.path(caName))
	if err != nil {
		return err
	}
	serving, err := ca.server("kube-apiserver", c.servingIPs(), []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	})
	if err != nil {
		return err
	}
	if err := serving.save(c.path(servingName)); err != nil {
		return err
	}
	toKubelet, err := ca.client("kube-apiserver-kubelet-client", mastersGroup)
	if err != nil {
		return err
	}
	if err := toKubelet.save(c.path(kubeletName)); err != nil {
		return err
	}
	_, accounts, err := newKey()
	if err != nil {
		return err
	}
	if err := writeFile(c.path(accountKey), accounts, 0o600); err != nil {
		return err
	}
	if err := c.writeTokens(); err != nil {
		return err
	}
	return c.writeKubeconfigs(ca)
}

func (c Config) servingIPs() []net.IP {
	service := c.ServiceCIDR.Masked().Addr().Next() // the address of the Service "kubernetes"
	return []net.IP{c.Address.AsSlice(), service.AsSlice(), net.IPv4(127, 0, 0, 1), net.IPv6loopback}
}

func (c Config) writeTokens() error {
	f, err := os.OpenFile(c.path(tokenFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	defer f.Close()
	w := csv.NewWriter(f)
	for _, t := range c.Tokens {
		uid := t.UID
		if uid == "" {
			uid = t.User
		}
		if err := w.Write([]string{t.Token, t.User, uid, strings.Join(t.Groups, ",")}); err != nil {
			return fmt.Errorf("write tokens: %w", err)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	return nil
}

func (c Config) writeKubeconfigs(ca *authority) error {
	for _, u := range []struct {
		file, user string
		groups     []string
	}{
		{adminFile, "admin", []string{mastersGroup}},
		{ControllerManager.kubeconfig(), "system:kube-controller-manager", nil},
		{Scheduler.kubeconfig(), "system:kube-scheduler", nil},
	} {
		raw, err := c.kubeconfig(ca, u.user, u.groups...)
		if err != nil {
			return err
		}
		if err := writeFile(c.path(u.file), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig returns a self-contained kubeconfig with a fresh client certificate.
func (c Config) kubeconfig(ca *authority, user string, groups ...string) ([]byte, error) {
	p, err := ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	const cluster = "lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: c.url(), CertificateAuthorityData: ca.pem}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	return raw, nil
}
