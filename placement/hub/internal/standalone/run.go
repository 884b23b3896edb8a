// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// Times of starting and ending.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 15 * time.Second
	pollInterval = 200 * time.Millisecond
)

// Run starts the API server, calls serve when it answers, and ends everything when serve
// returns, ctx ends or one of its programs does. That ctx has ended is no error, however far
// the start had come; serve is to return then.
func Run(ctx context.Context, c Config, serve func(context.Context) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	err := prepareAndRun(ctx, c, serve)
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// prepareAndRun takes the folder, prepares it and runs the programs.
func prepareAndRun(ctx context.Context, c Config, serve func(context.Context) error) error {
	lock, err := c.lockDataDir(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := errors.Join(c.checkPortFree(ctx), c.writeCredentials()); err != nil {
		return err
	}
	r := &programRunner{Config: c, lock: lock}
	if err := r.initializeEtcd(ctx); err != nil {
		return err
	}
	return r.run(ctx, serve)
}

// programRunner runs the programs of a hub whose folder is taken.
type programRunner struct {
	Config

	lock *os.File
}

// run starts the programs in order, and calls serve when the API server answers.
func (r *programRunner) run(ctx context.Context, serve func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	stopEtcd, err := r.startProgram(ctx, group, etcdProgram(etcdDir))
	if err != nil {
		return err
	}
	// Serve ends first: it has writes to finish, and a Lease to give back. Then each program
	// ends before that which it needs: without etcd, the API server takes 10 seconds.
	group.Go(func() error {
		defer stopEtcd()
		if err := r.waitForEtcd(ctx); err != nil {
			return err
		}
		stopServer, err := r.startProgram(ctx, group, apiServerProgram(r.Config))
		if err != nil {
			return err
		}
		defer stopServer()
		if err := r.waitForAPIServer(ctx); err != nil {
			return err
		}
		stopManager, err := r.startProgram(ctx, group, controllerManagerProgram())
		if err != nil {
			return err
		}
		defer stopManager()
		return serve(ctx)
	})
	return group.Wait()
}

// startProgram runs a program, which is not to end before stop, also when ctx does. Stop waits for
// the end.
func (r *programRunner) startProgram(ctx context.Context, group *errgroup.Group, p program) (stop func(), err error) {
	path, err := findBinary(r.BinDir, p.name)
	if err != nil {
		return nil, fmt.Errorf("find %s in %s or the PATH: %w", p.name, r.BinDir, err)
	}
	log, err := r.OpenLog(p.name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(ctx, path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.DataDir, log, log
	cmd.ExtraFiles = []*os.File{r.lock}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	// A group of its own: Ctrl-C is for us, and we end them in order. When we are killed
	// the kernel kills them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	group.Go(func() error {
		// The death signal follows the thread that forked: it stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		defer cancel()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return nil // who waits for the start reports it
		}
		err = cmd.Wait()
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("%s ended (%w): see %s", p.name, err, log.Name())
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return func() { cancel(); <-ended }, nil
}

// etcdDir has etcd's data. It is made under the other name.
const (
	etcdDir     = "etcd"
	etcdInitDir = "etcd.first"
)

// initializeEtcd makes etcd's folder at a hub's first start. An etcd that ends between its first
// files and its first entry has no member when it starts again, and never elects a leader:
// the hub could not start in that folder any more. So the folder gets its name when an etcd
// has answered with it, and what an earlier start has left under the other name goes. No API
// server has written there.
func (r *programRunner) initializeEtcd(ctx context.Context) error {
	if _, err := os.Stat(r.dataPath(etcdDir)); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(r.dataPath(etcdInitDir)); err != nil {
		return fmt.Errorf("remove an unfinished folder of etcd: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	stop, err := r.startProgram(ctx, group, etcdProgram(etcdInitDir))
	if err != nil {
		return err
	}
	group.Go(func() error {
		defer stop()
		return r.waitForEtcd(ctx)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := os.Rename(r.dataPath(etcdInitDir), r.dataPath(etcdDir)); err != nil {
		return fmt.Errorf("name etcd's folder: %w", err)
	}
	return errors.Join(r.removeStaleSockets(), r.syncDataDir())
}

// syncDataDir keeps the names in DataDir over a loss of power.
func (r *programRunner) syncDataDir() error {
	dir, err := os.Open(r.DataDir)
	if err != nil {
		return fmt.Errorf("sync the folder: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// waitForEtcd waits until etcd has a leader and answers reads.
func (r *programRunner) waitForEtcd(ctx context.Context) error {
	dir, err := os.Open(r.DataDir)
	if err != nil {
		return fmt.Errorf("open the folder of etcd's socket: %w", err)
	}
	defer dir.Close()
	// DataDir may be longer than the path of a socket may be (unix(7)).
	socket := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), etcdSocket)
	dialer := &net.Dialer{}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := checkEtcdHealth(ctx, client)
		if err == nil {
			return nil
		}
		if sleepPollInterval(ctx); ctx.Err() != nil {
			return fmt.Errorf("wait for etcd (see %s): %w", r.dataPath("etcd.log"), err)
		}
	}
}

// checkEtcdHealth asks etcd, which reads from a quorum before it answers.
func checkEtcdHealth(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask etcd for its health: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask etcd for its health: %w", err)
	}
	defer response.Body.Close()
	const most = 1 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd is not healthy: %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return err
}

// waitForAPIServer waits until the API server answers.
func (r *programRunner) waitForAPIServer(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.KubeconfigPath())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		if sleepPollInterval(ctx); ctx.Err() != nil {
			return fmt.Errorf("wait for the API server at %s: %w", r.serverURL(), err)
		}
	}
}
