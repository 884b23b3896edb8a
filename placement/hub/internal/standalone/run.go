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
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// Timeouts of start and stop.
const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 15 * time.Second
	pollInterval = 200 * time.Millisecond
)

// Run starts the API server and calls serve when the API server answers. It stops all programs when serve
// returns, ctx ends or one of the programs ends. serve must return when its context ends. Run returns nil
// when ctx has ended, also during the start.
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

// prepareAndRun locks and prepares the folder, and runs the programs.
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

// How long a hub that was killed may still use the port and the folder.
const (
	portTimeout = 5 * time.Second
	lockTimeout = 10 * time.Second
)

// lockDataDir creates the folder and locks it. The programs inherit the file of the lock: it is free when
// this process and all its programs have ended, so that a new etcd finds no old one.
func (c Config) lockDataDir(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("flag --data-dir: create the folder (give one that can be written): %w", err)
	}
	f, err := os.OpenFile(c.dataPath("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("flag --data-dir: write in the folder (give one that can be written): %w", err)
	}
	err = poll(ctx, lockTimeout, func(context.Context) error {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("flag --data-dir: a hub runs on %s: stop that hub, or give another folder: %w", c.DataDir, err), f.Close())
	}
	return f, c.removeStaleSockets()
}

// removeStaleSockets removes the sockets of an etcd that was killed: a new etcd cannot listen on them.
func (c Config) removeStaleSockets() error {
	for _, name := range []string{etcdSocket, etcdPeerSocket} {
		if err := os.Remove(c.dataPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove stale socket: %w", err)
		}
	}
	return nil
}

// checkPortFree checks that the API server can listen on its address and port.
func (c Config) checkPortFree(ctx context.Context) error {
	address := net.JoinHostPort(c.listenAddress().String(), strconv.Itoa(c.Port))
	var listenErr error // other than a port in use, which may become free
	err := poll(ctx, portTimeout, func(context.Context) error {
		l, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			return l.Close()
		case errors.Is(err, syscall.EADDRINUSE):
			return err
		}
		listenErr = err
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("flag --port: %s must not be in use: give a free port: %w", address, err)
	case errors.Is(listenErr, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("flag --listen (default: --address): %s must be an address of this machine: %w", c.listenAddress(), listenErr)
	case listenErr != nil:
		return fmt.Errorf("flags --listen and --port: listen on %s: %w", address, listenErr)
	}
	return nil
}

// poll calls try every pollInterval until it succeeds. When timeout has passed, or ctx has ended, it returns
// the last error of try.
func poll(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// programRunner runs the programs of a hub whose folder is locked.
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
	// serve ends first, because it has writes to finish and a Lease to release. Then each program ends before
	// the one that it needs: without etcd, the API server takes 10 seconds to end.
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

// startProgram runs a program until stop is called, also after ctx has ended. stop waits for the end of the
// program, whose earlier end is an error of the group.
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
	// A process group of its own: Ctrl-C is for this process, which ends the programs in order. When this
	// process is killed, the kernel kills the programs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	group.Go(func() error {
		// The kernel sends Pdeathsig when the thread that forked ends: it must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		defer cancel()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return nil // startProgram returns the error
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

// etcdDir has etcd's data; initializeEtcd creates it as etcdInitDir.
const (
	etcdDir     = "etcd"
	etcdInitDir = "etcd.first"
)

// initializeEtcd creates etcd's folder at a hub's first start. An etcd that is killed between its first
// files and its first entry has no member when it starts again, and never elects a leader. Therefore the
// folder gets its final name after an etcd has answered with it, and an unfinished folder of an earlier
// start is removed: no API server has written to it.
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
		return fmt.Errorf("rename etcd's folder: %w", err)
	}
	return errors.Join(r.removeStaleSockets(), r.syncDataDir())
}

// syncDataDir writes the directory entries of DataDir to the disk, so that they survive a power failure.
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
	// DataDir may be longer than the maximum path of a socket (unix(7)).
	socket := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), etcdSocket)
	dialer := &net.Dialer{}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	err = poll(ctx, startTimeout, func(ctx context.Context) error { return checkEtcdHealth(ctx, client) })
	if err != nil {
		return fmt.Errorf("wait for etcd (see %s): %w", r.dataPath("etcd.log"), err)
	}
	return nil
}

// checkEtcdHealth returns an error unless etcd is healthy. etcd reads from a quorum before it answers.
func checkEtcdHealth(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", http.NoBody)
	if err != nil {
		return fmt.Errorf("check etcd's health: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("check etcd's health: %w", err)
	}
	defer response.Body.Close()
	const maxBytes = 1 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd is not healthy: %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return err
}

// waitForAPIServer waits until the API server is ready.
func (r *programRunner) waitForAPIServer(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.KubeconfigPath())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	err = poll(ctx, startTimeout, func(ctx context.Context) error {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the API server at %s: %w", r.serverURL(), err)
	}
	return nil
}
