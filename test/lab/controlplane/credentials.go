// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/csv"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

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

// authority signs all certificates of one control plane, servers' and clients'.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // the certificate
}

// keyPair is a certificate with its key, both in PEM.
type keyPair struct{ cert, key []byte }

// newAuthority makes an authority and stores it as base.crt and base.key.
func newAuthority(base string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "patchbay-lab"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	p, err := issueCertificate(template, nil)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	if err := p.save(base); err != nil {
		return nil, err
	}
	return loadAuthority(base)
}

func loadAuthority(base string) (*authority, error) {
	certPEM, err := os.ReadFile(base + ".crt")
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	keyPEM, err := os.ReadFile(base + ".key")
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("read authority: no PEM in %s.crt or .key", base)
	}
	a := &authority{pem: certPEM}
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return nil, fmt.Errorf("parse authority: %w", err)
	}
	if a.key, err = x509.ParseECPrivateKey(keyBlock.Bytes); err != nil {
		return nil, fmt.Errorf("parse authority's key: %w", err)
	}
	return a, nil
}

// client issues a client certificate: Kubernetes takes the common name as the user
// and the organizations as the groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return issueCertificate(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a)
}

func (a *authority) server(name string, ips []net.IP, names []string) (keyPair, error) {
	return issueCertificate(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: ips,
		DNSNames:    names,
	}, a)
}

// issueCertificate makes a key and a certificate for it; without an issuer it signs itself.
func issueCertificate(template *x509.Certificate, issuer *authority) (keyPair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return keyPair{}, fmt.Errorf("make serial number: %w", err)
	}
	// A node of the lab may have a clock of its own.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func (p keyPair) save(base string) error {
	if err := writeFile(base+".crt", p.cert, 0o644); err != nil {
		return err
	}
	return writeFile(base+".key", p.key, 0o600)
}
