// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Namespace is where the controller is installed.
const Namespace = "patchbay-system"

// startTimeout bounds the start and the end of a controller on a busy machine.
const startTimeout = 2 * time.Minute

// Build compiles the controller into a folder and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := source.Path()
	if err != nil {
		return "", err
	}
	if err := source.Inputs(); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "patchbay-controller")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/patchbay-controller")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the controller: %w\n%s", err, out)
	}
	return program, nil
}

// Controller is a running replica.
type Controller struct {
	process.ID

	url, log string
	// metrics is where they are, and scraper reads them.
	metrics string
	scraper *apitest.Scraper
}

// Run starts a replica and waits until it could lead. Flags are added to those that it needs.
func Run(ctx context.Context, env *apitest.Env, program string, flags ...string) (*Controller, error) {
	dir := filepath.Dir(program)
	kubeconfig, err := env.ControlPlane.Kubeconfig("system:serviceaccount:"+Namespace+":patchbay-controller", "system:serviceaccounts")
	if err != nil {
		return nil, fmt.Errorf("make kubeconfig: %w", err)
	}
	file := filepath.Join(dir, apitest.Name("kubeconfig"))
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	scraper, err := env.Scraper(ctx)
	if err != nil {
		return nil, err
	}
	c := &Controller{url: "http://" + address, metrics: metrics, scraper: scraper, log: filepath.Join(dir, apitest.Name("controller.log"))}
	c.ID, err = process.Start(process.Spec{
		Args: append([]string{
			program, "--kubeconfig=" + file, "--namespace=" + Namespace, "--health-address=" + address, "--metrics-address=" + metrics,
		}, flags...),
		Log: c.log, DieWithParent: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	if err := c.ready(ctx); err != nil {
		return nil, errors.Join(err, c.Kill(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// Log returns what the replica has written so far.
func (c *Controller) Log() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Memory returns the resident memory in bytes, now and at its peak.
func (c *Controller) Memory() (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID))
	if err != nil {
		return 0, 0, fmt.Errorf("read the controller's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak, nil
}

// Metrics returns all metrics of the replica.
func (c *Controller) Metrics(ctx context.Context) (string, error) {
	return c.scraper.Metrics(ctx, c.metrics)
}

// Scrape reads a path beside the metrics with the rights of a scraper.
func (c *Controller) Scrape(ctx context.Context, as *apitest.Scraper, path string) (text string, status int, err error) {
	return as.Get(ctx, c.metrics, path)
}

// Metric returns a counter of the replica by the start of its line in /metrics, or the
// sum of those that start so.
func (c *Controller) Metric(ctx context.Context, prefix string) (float64, error) {
	text, err := c.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return sumOf(text, prefix), nil
}

func sumOf(text, prefix string) float64 {
	sum := 0.0
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); strings.HasPrefix(line, prefix) && len(fields) > 1 {
			value, _ := strconv.ParseFloat(fields[len(fields)-1], 64)
			sum += value
		}
	}
	return sum
}

// Writes is how many writes for Services the API server has taken from the replica, as
// soon as none is under way. Those that it refused, as they were planned from an older
// version, are not among them: watches of different kinds may show what happened in
// another order.
func (c *Controller) Writes(ctx context.Context) (float64, error) {
	for last := -1.0; ; {
		text, err := c.Metrics(ctx)
		if err != nil {
			return 0, err
		}
		taken := sumOf(text, "patchbay_service_writes_total") - sumOf(text, "patchbay_service_write_conflicts_total")
		busy := sumOf(text, `controller_runtime_active_workers{controller="services"}`) > 0
		switch {
		case busy:
			last = -1
		case taken == last: // one number of the text may be a moment older than another
			return taken, nil
		default:
			last = taken
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("await the end of the controller's writes: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Controller) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := c.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		if !c.Alive() {
			return fmt.Errorf("the controller ended:\n%s", c.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await the controller: %w\n%s", err, c.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Controller) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return "", fmt.Errorf("ask the controller: %w", err)
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask the controller: %w", err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask the controller for %s: %s %s: %w", path, reply.Status, text, errors.Join(errUnexpectedStatus, err))
	}
	return string(text), nil
}

var errUnexpectedStatus = errors.New("no answer of use")

// freeAddress is an address on the loopback that nobody listens on. It is none that others
// look for a free port at: one of theirs may not come between this and its use.
func freeAddress(ctx context.Context) (string, error) {
	host := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
