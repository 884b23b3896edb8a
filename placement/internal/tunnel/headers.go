// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// requestHeaders are the headers of a client that a cluster's API server gets. All others are dropped: they could
// contain identities (Impersonate-User, X-Remote-User), credentials, or what only the two ends of the tunnel mean.
func requestHeaders() []string {
	return []string{
		"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "If-None-Match", "Kubectl-Command", "Kubectl-Session",
		"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "User-Agent",
		"X-Stream-Protocol-Version",
	}
}

// tokenProtocol begins a WebSocket protocol that is a bearer token for API servers.
const tokenProtocol = "base64url.bearer.authorization.k8s.io"

// RequestHeader returns those headers of a client's request that a cluster's API server gets.
func RequestHeader(from http.Header) http.Header {
	to := http.Header{}
	for _, name := range requestHeaders() {
		if values := from.Values(name); len(values) > 0 {
			to[name] = slices.Clone(values)
		}
	}
	protocols := to["Sec-Websocket-Protocol"]
	protocols = slices.DeleteFunc(protocols, func(v string) bool { return strings.Contains(strings.ToLower(v), tokenProtocol) })
	if len(protocols) == 0 {
		delete(to, "Sec-Websocket-Protocol")
	} else {
		to["Sec-Websocket-Protocol"] = protocols
	}
	return to
}

// responseHeaders are the headers of a cluster that a client at the hub gets. All others are dropped: they could make it
// send its credentials elsewhere, ask its user for new ones, or change what its browser does with the hub's pages.
func responseHeaders() []string {
	return []string{
		"Allow", "Audit-Id", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Expires",
		"Last-Modified", "Retry-After", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Vary", "Warning",
		"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "X-Stream-Protocol-Version",
	}
}

// CheckResponse returns an error for an answer of a cluster that a client at the hub would understand as the hub's own,
// and removes headers that do not concern such a client. Agent and hub call it, because a cluster may be hostile.
func CheckResponse(response *http.Response) error {
	if err := cleanHeader(response); err != nil {
		return err
	}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized:
		return errors.New("the cluster's API server does not accept the agent's credential")
	case code >= 300 && code < 400 && code != http.StatusNotModified:
		return errors.New("the cluster's API server answered with a redirection")
	case code < http.StatusOK || code > maxCode: // net/http panics when a handler writes some of these
		return fmt.Errorf("the code of the cluster's answer must be within 200–%d: it is %d", maxCode, code)
	}
	return nil
}

// maxCode is the highest code of an answer that HTTP defines.
const maxCode = 599

// cleanHeader removes headers that do not concern a client at the hub. A page of a cluster runs no scripts, because its
// origin would be the hub. It returns an error if the rest is so long that the hub would close the connection.
func cleanHeader(response *http.Response) error {
	header := http.Header{"X-Content-Type-Options": {"nosniff"}, "Content-Security-Policy": {"sandbox"}}
	for _, name := range responseHeaders() {
		if values := response.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	response.Header = header
	size := 0
	for name, values := range header {
		for _, value := range values {
			size += len(name) + len(value) + fieldOverhead
		}
	}
	if size > MaxHeaderBytes/2 {
		return fmt.Errorf("the headers of the cluster's answer must have at most %d bytes: they have %d", MaxHeaderBytes/2, size)
	}
	return nil
}

// fieldOverhead is what HTTP/2 adds for each header (RFC 9113, section 6.5.2).
const fieldOverhead = 32

// UpgradeOf returns the protocol that a request asks to switch to; "" for none.
func UpgradeOf(h http.Header) string {
	for _, value := range h.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(textproto.TrimString(token), "upgrade") {
				return h.Get("Upgrade")
			}
		}
	}
	return ""
}

func copyHeader(to, from http.Header) {
	for name, values := range from {
		to[name] = slices.Clone(values)
	}
}

// SilentLog is a log for net/http, whose errors are those of clients that end a connection.
func SilentLog() *log.Logger { return log.New(io.Discard, "", 0) }
