// SPDX-License-Identifier: Apache-2.0

package debugproxy

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Requests of hub users share no connection with the agent's controllers, nor with one another.
func TestTransportIsSeparate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]string{} // protocols by the client's address
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.RemoteAddr] = r.Proto
		mu.Unlock()
		_, _ = fmt.Fprint(w, r.Header.Get("Authorization"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	local := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate(server)}, BearerToken: "agent"}
	controllers, err := rest.TransportFor(local)
	if err != nil {
		t.Fatal(err)
	}
	users, err := newTransport(local)
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []http.RoundTripper{controllers, users, users} {
		response, err := get(t, transport, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		token := make([]byte, len("Bearer agent"))
		if _, err := response.Body.Read(token); err != nil || string(token) != "Bearer agent" {
			t.Errorf("got %q, %v", token, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	count := map[string]int{}
	for _, protocol := range seen {
		count[protocol]++
	}
	if count["HTTP/2.0"] != 1 || count["HTTP/1.1"] != 2 {
		t.Errorf("got the connections %v, want one of HTTP/2 and two of HTTP/1.1", seen)
	}
}

// A new connection trusts the certificate authority that is in the file now.
func TestTransportReadsFiles(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, certificate(server), 0o600); err != nil {
		t.Fatal(err)
	}
	users, err := newTransport(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}})
	if err != nil {
		t.Fatal(err)
	}
	response, err := get(t, users, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	if response, err := get(t, users, server.URL); err == nil {
		_ = response.Body.Close()
		t.Error("a connection was made without the file")
	}
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func get(t *testing.T, transport http.RoundTripper, address string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return transport.RoundTrip(r)
}
