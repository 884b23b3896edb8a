// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// startEchoServer answers each line with itself.
func startEchoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return "https://" + l.Addr().String()
}

// What passes, what does not, and that a mended link is as good as new.
func TestLink(t *testing.T) {
	t.Parallel()
	l, err := NewLink(startEchoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", strings.TrimPrefix(l.URL(), "https://"))
		if err != nil {
			t.Fatal(err)
		}
		return c, bufio.NewReader(c)
	}
	say := func(c net.Conn, r *bufio.Reader, patience time.Duration) error {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("line\n")); err != nil {
			return err
		}
		got, err := r.ReadString('\n')
		if err == nil && got != "line\n" {
			t.Errorf("got %q", got)
		}
		return err
	}
	const long, short = 30 * time.Second, 200 * time.Millisecond
	c, r := dial()
	defer c.Close()
	if err := say(c, r, long); err != nil {
		t.Fatal(err)
	}
	l.Freeze()
	if err := say(c, r, short); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("frozen: got %v, want nothing at all", err)
	}
	l.Heal()
	if err := c.SetDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadString('\n'); err != nil || got != "line\n" {
		t.Errorf("mended: got %q, %v, want what was held back", got, err)
	}
	l.Cut()
	if err := say(c, r, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cut: got %v, want an end", err)
	}
	d, s := dial()
	defer d.Close()
	if err := say(d, s, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("new while cut: got %v, want an end", err)
	}
	l.Heal()
	e, u := dial()
	defer e.Close()
	if err := say(e, u, long); err != nil {
		t.Errorf("new after mending: %v", err)
	}
}

// What the watcher needs of an audit log's line.
func TestParseAudit(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, line string
		wrote        bool
		check        func(Write) bool
	}{
		"Created": {
			"An apply that made something.",
			`{"stage":"ResponseComplete","verb":"patch","user":{"username":"a"},"objectRef":{"apiGroup":"apps","resource":"deployments","namespace":"n","name":"x"},"responseStatus":{"code":201},"responseObject":{"kind":"Deployment","metadata":{"uid":"u"}}}`,
			true, func(w Write) bool { return w.Created && w.Key() == "apps/deployments n/x" && w.Object.GetUID() == "u" },
		},
		"Deleted": {
			"The UID that was asked for.",
			`{"stage":"ResponseComplete","verb":"delete","objectRef":{"resource":"pods","name":"x"},"responseStatus":{"code":200},"requestObject":{"preconditions":{"uid":"u"}}}`,
			true, func(w Write) bool { return w.Precondition == "u" && !w.Created },
		},
		"Impersonated": {
			"Who is acted for counts.",
			`{"stage":"ResponseComplete","verb":"create","user":{"username":"admin"},"impersonatedUser":{"username":"dev"},"responseStatus":{"code":201}}`,
			true, func(w Write) bool { return w.User == "dev" },
		},
		"Refused": {"Nothing was written.", `{"stage":"ResponseComplete","verb":"patch","responseStatus":{"code":409}}`, false, nil},
		"Panic":   {"Nor here.", `{"stage":"Panic","verb":"patch","responseStatus":{"code":500}}`, false, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ok, err := parseAuditLine([]byte(tc.line))
			if err != nil || ok != tc.wrote || ok && !tc.check(w) {
				t.Errorf("%s\ngot %+v, %t, %v", tc.reason, w, ok, err)
			}
		})
	}
}
