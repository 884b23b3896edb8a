// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteInterceptor stands before an API server for one user. Requests and watches pass as they are;
// of each write that changed something it tells before the client hears of it. A write
// that was asked for is carried out, and is in the audit log, though who asked is dead.
type WriteInterceptor struct {
	// Kubeconfig is the file of the way through.
	Kubeconfig string

	listener net.Listener
	server   *http.Server
	onWrite  func(*http.Request)
	versions sync.Map // by path: the object's last resourceVersion
}

// NewWriteInterceptor opens a gate before the API server for the user of that name. Wrote is called
// from any goroutine; when it kills the client, the answer is lost.
func (p *Plane) NewWriteInterceptor(wrote func(*http.Request), user string, groups ...string) (*WriteInterceptor, error) {
	file, err := p.UserKubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	upstream, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the gate's transport: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's address: %w", err)
	}
	g := &WriteInterceptor{Kubeconfig: filepath.Join(p.dir, filepath.Base(file)+".gate"), onWrite: wrote}
	if g.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("open the gate's port: %w", err)
	}
	g.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Transport: upstream, FlushInterval: -1, // watches
		ErrorLog: log.New(io.Discard, "", 0), // clients that are killed
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if isPlacementWrite(r.Out) {
				r.Out = r.Out.WithContext(context.WithoutCancel(r.Out.Context()))
			}
		},
		ModifyResponse: g.inspectResponse,
	}}
	go func() { _ = g.server.Serve(g.listener) }() // it ends with Close
	return g, g.writeKubeconfig()
}

// inspectResponse tells of an answer if it is that to a write which changed something.
func (g *WriteInterceptor) inspectResponse(r *http.Response) error {
	if !isPlacementWrite(r.Request) || r.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	raw, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	var o metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &o) == nil && o.ResourceVersion != "" {
		if before, ok := g.versions.Swap(r.Request.URL.Path, o.ResourceVersion); ok && before == o.ResourceVersion {
			return nil
		}
	}
	g.onWrite(r.Request)
	return nil
}

// writeKubeconfig writes the kubeconfig.
func (g *WriteInterceptor) writeKubeconfig() error {
	config := clientcmdapi.NewConfig()
	config.Clusters["gate"] = &clientcmdapi.Cluster{Server: "http://" + g.listener.Addr().String()}
	config.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate"}
	config.CurrentContext = "gate"
	if err := clientcmd.WriteToFile(*config, g.Kubeconfig); err != nil {
		return fmt.Errorf("write the gate's kubeconfig: %w", err)
	}
	return nil
}

// Close ends the gate and all connections.
func (g *WriteInterceptor) Close() error {
	return errors.Join(g.server.Close(), os.Remove(g.Kubeconfig))
}

// isPlacementWrite tells whether a request writes what placement is about: no heartbeats, Events,
// questions, or what a program does for itself when it starts.
func isPlacementWrite(r *http.Request) bool {
	return slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, r.Method) &&
		!slices.ContainsFunc([]string{"/leases", "/events", "/apis/authorization.k8s.io/", "/namespaces/patchbay-system/", "dryRun="}, func(part string) bool {
			return strings.Contains(r.URL.String(), part)
		})
}
