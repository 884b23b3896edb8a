// SPDX-License-Identifier: Apache-2.0

// Package logging sets the logs of our programs up: JSON lines on standard error,
// as Kubernetes' own components write with --logging-format=json.
package logging

import (
	"context"
	"io"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Into returns a context that carries a logger to out, and a function that ends
// that: afterwards nothing is written there any more, whoever still runs. The
// libraries log there, too, until then or until the next call. With debug it says
// more.
func Into(ctx context.Context, debug bool, out io.Writer) (context.Context, func()) {
	level := zapcore.InfoLevel
	if debug {
		level = zapcore.DebugLevel
	}
	own := &gate{out: out}
	libraries.follow(own, level)
	return logr.NewContext(ctx, newLogger(own, level)), func() {
		libraries.leave(own)
		own.to(nil)
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
