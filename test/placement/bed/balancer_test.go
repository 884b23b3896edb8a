// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// echoes sends a line and tells whether it comes back within the time.
func echoes(c net.Conn, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	return err
}

// A connection that is silent for too long, or is to be forgotten, stays open and mute;
// one that is used goes on; a new one is as good as any.
func TestBalancer(t *testing.T) {
	t.Parallel()
	const limit, long, short = time.Minute, time.Minute, 300 * time.Millisecond
	var clock atomic.Int64
	b := newBalancer(listen(t), strings.TrimPrefix(startEchoServer(t), "https://"), limit, func() time.Time { return time.Unix(0, clock.Load()) })
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", b.Address())
		if err == nil {
			err = echoes(c, long)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	silent, used := dial(), dial()
	for range 3 {
		clock.Add(int64(limit * 2 / 3))
		if err := echoes(used, long); err != nil {
			t.Fatalf("a connection that is used: %v", err)
		}
	}
	if err := echoes(silent, short); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent connection: got %v, want no answer", err)
	}
	if got := b.IdleDrops(); got != 1 {
		t.Errorf("silent for too long: got %d connections, want 1", got)
	}
	b.DropFlows()
	if err := echoes(used, short); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a forgotten connection: got %v, want no answer", err)
	}
	dial()
	if got := b.Connections(); got != 3 {
		t.Errorf("connections: got %d, want 3", got)
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	p := NewProxy(listen(t), "u", "p@ss", map[string]string{"hub.example:80": strings.TrimPrefix(startEchoServer(t), "https://")})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	cases := map[string]struct {
		reason, password, host string
		want                   string
	}{
		"Known":    {"it alone knows where the hub is", "p@ss", "hub.example:80", "200"},
		"Password": {"nobody else's business", "pass", "hub.example:80", "407"},
		"Unknown":  {"there is no such name", "p@ss", "other.example:80", "502"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := connect(t, p.URL(tc.password), tc.host); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// connect opens a tunnel by hand and returns the proxy's answer.
func connect(t *testing.T, proxy, host string) string {
	t.Helper()
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	password, _ := u.User.Password()
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: host}, Host: host, Header: http.Header{}}
	r.SetBasicAuth(u.User.Username(), password)
	r.Header["Proxy-Authorization"] = r.Header["Authorization"]
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return fmt.Sprint(answer.StatusCode)
}
