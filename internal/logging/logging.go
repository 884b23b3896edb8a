// SPDX-License-Identifier: Apache-2.0

// Package logging sets the logs of our programs up: JSON lines on standard error,
// as Kubernetes' own components write with --logging-format=json.
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

// NewContext returns a context that carries a logger to out, and a function that ends
// that: afterwards nothing is written there any more, whoever still runs. The
// libraries log there, too, until then or until the next call. With debug it says
// more.
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

// libraryOutput is where the libraries log. They have one logger per process, which must
// not be exchanged while anything of theirs runs, and some of it outlives the program
// that started it, if that is called from a test. So they keep the first.
var libraryOutput = &libraryLog{level: zap.NewAtomicLevel()}

// libraryLog is a gate for a logger that stays.
type libraryLog struct {
	switchableWriter

	level zap.AtomicLevel
	once  sync.Once
}

// redirectTo has the libraries log to out.
func (s *libraryLog) redirectTo(out *switchableWriter, level zapcore.Level) {
	s.level.SetLevel(level)
	s.setOutput(out)
	s.once.Do(func() {
		log := newLogger(&s.switchableWriter, s.level)
		klog.SetLogger(log.WithName("client-go"))
		ctrllog.SetLogger(log.WithName("controller-runtime"))
	})
}

// detach has them log nowhere, if that is to out.
func (s *libraryLog) detach(out *switchableWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == out {
		s.out = nil
	}
}

// switchableWriter passes on what is written, until it is told of no writer.
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

// setOutput changes the writer; when it returns, the one before is not in use.
func (g *switchableWriter) setOutput(out io.Writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out = out
}
