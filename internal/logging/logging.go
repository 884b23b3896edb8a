// SPDX-License-Identifier: Apache-2.0

// Package logging configures the logs of our programs: JSON lines on standard error, as Kubernetes'
// components write with --logging-format=json.
package logging

import (
	"context"
	"io"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// NewContext returns a context with a logger to out, and a function that ends it: afterwards
// nothing is written to out, even if goroutines still run. The logs of libraries go to out too,
// until then or until the next call. With debug, debug messages are logged.
func NewContext(ctx context.Context, debug bool, out io.Writer) (context.Context, func()) {
	level := zapcore.InfoLevel
	if debug {
		level = zapcore.DebugLevel
	}
	own := &switchableWriter{out: out}
	libraryOutput.redirectTo(own, level)
	return logr.NewContext(ctx, newLogger(own, level)), func() {
		libraryOutput.detach(own)
		own.setOutput(nil)
	}
}

// newLogger returns a logger of JSON lines.
func newLogger(out io.Writer, level zapcore.LevelEnabler) logr.Logger {
	encoder := zap.NewProductionEncoderConfig()
	encoder.TimeKey = "time"
	encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.AddSync(out), level)
	return zapr.NewLogger(zap.New(core))
}

// libraryOutput is the output of the libraries' loggers. A process has one such logger, which must
// not be replaced while a library runs, and a library may outlive the program when a test has
// started that. So the first logger stays, and its output changes.
var libraryOutput = &libraryLog{level: zap.NewAtomicLevel()}

// libraryLog is an output that can be redirected.
type libraryLog struct {
	switchableWriter

	level zap.AtomicLevel
	once  sync.Once
}

// redirectTo makes the libraries log to out.
func (s *libraryLog) redirectTo(out *switchableWriter, level zapcore.Level) {
	s.level.SetLevel(level)
	s.setOutput(out)
	s.once.Do(func() {
		log := newLogger(&s.switchableWriter, s.level)
		klog.SetLogger(log.WithName("client-go"))
		ctrllog.SetLogger(log.WithName("controller-runtime"))
	})
}

// detach makes the libraries log nowhere, if they log to out.
func (s *libraryLog) detach(out *switchableWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == out {
		s.out = nil
	}
}

// switchableWriter writes to another writer; without one it discards.
type switchableWriter struct {
	mu  sync.Mutex
	out io.Writer
}

// Write implements io.Writer.
func (g *switchableWriter) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out == nil {
		return len(p), nil
	}
	return g.out.Write(p)
}

// setOutput changes the writer. When it returns, the old writer is not in use any more.
func (g *switchableWriter) setOutput(out io.Writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out = out
}
