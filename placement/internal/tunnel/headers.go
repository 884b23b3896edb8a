// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
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

// droppedHeaders belong to one connection, or could make a client at the hub send its credentials elsewhere, or ask its
// user for new ones.
func droppedHeaders() []string {
	return []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Location", "Set-Cookie", "Www-Authenticate", "Alt-Svc", "Strict-Transport-Security", UpgradedHeader,
	}
}

// CheckResponse returns an error for an answer of a cluster that a client at the hub would understand as the hub's own,
// and removes headers that do not concern such a client. Agent and hub call it, because a cluster may be hostile.
func CheckResponse(response *http.Response) error {
	for _, name := range droppedHeaders() {
		response.Header.Del(name)
	}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized:
		return errors.New("the cluster's API server does not accept the agent's credential")
	case code >= 300 && code < 400 && code != http.StatusNotModified:
		return errors.New("the cluster's API server answered with a redirection")
	}
	return nil
}

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
