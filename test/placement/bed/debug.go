// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// frontProxyName is the name in the certificate with which the hub's API server calls the debug API.
const frontProxyName = "front-proxy-client"

// frontProxyArgs makes the front proxy's authority and certificate in a folder, and returns the flags of an API server
// that calls aggregated APIs with it, by the name in a Service: no endpoint may be a loopback address.
func frontProxyArgs(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	ca, file := filepath.Join(dir, "front-proxy-ca.crt"), filepath.Join(dir, "front-proxy")
	keyText, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("make key of the front proxy: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyText)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("make key of the front proxy: got %T, %w", key, err)
	}
	// The certificate is its own authority: nothing else needs one.
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: frontProxyName}, signer)
	if err != nil {
		return nil, fmt.Errorf("make certificate of the front proxy: %w", err)
	}
	text, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return nil, fmt.Errorf("make certificate of the front proxy: %w", err)
	}
	if err := errors.Join(certutil.WriteCert(ca, text), certutil.WriteCert(file+".crt", text), keyutil.WriteKey(file+".key", keyText)); err != nil {
		return nil, fmt.Errorf("write certificate of the front proxy: %w", err)
	}
	return []string{
		"--requestheader-client-ca-file=" + ca, "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--proxy-client-cert-file=" + file + ".crt", "--proxy-client-key-file=" + file + ".key",
		"--enable-aggregator-routing=false",
	}, nil
}

// Kubelet is a fake kubelet. It returns each byte of an exec.
type Kubelet struct {
	listener net.Listener
	server   *http.Server
	all      sync.WaitGroup
}

// StartKubelet starts a fake kubelet for the cluster's first node.
func (c *Cluster) StartKubelet(ctx context.Context) (*Kubelet, error) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make certificate of a kubelet: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate of a kubelet: %w", err)
	}
	k := &Kubelet{}
	if k.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("open port of a kubelet: %w", err)
	}
	k.server = &http.Server{
		Handler: http.HandlerFunc(echo), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}
	k.all.Go(func() { _ = k.server.ServeTLS(k.listener, "", "") }) // it ends with Close
	node := &corev1.Node{}
	node.Name = c.Name + "-1"
	_, port, err := net.SplitHostPort(k.listener.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read address of a kubelet: %w", err), k.Close())
	}
	patch := fmt.Appendf(nil, `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
	if err := c.Client.Status().Patch(ctx, node, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return nil, errors.Join(fmt.Errorf("give Node %s a kubelet: %w", node.Name, err), k.Close())
	}
	return k, nil
}

// Close ends the kubelet. Its upgraded connections end with their clients.
func (k *Kubelet) Close() error {
	err := k.server.Close()
	k.all.Wait()
	return err
}

// echo switches protocols, and returns each byte.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade")); err == nil {
		_, _ = io.Copy(conn, buffered)
	}
}
