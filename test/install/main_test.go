// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/test/lab"
)

// nodes is how many the lab has: a roll-out that stops at the first node leaves another one.
const nodes = 2

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	_, stop := lab.EndOnInterrupt()
	code := m.Run()
	stop()
	os.Exit(code)
}

// stage is a part of a test.
type stage struct {
	name string
	run  func(*bed)
}

func TestInstall(t *testing.T) {
	runStages(t, []stage{
		{"Kustomize", kustomize},
		{"Operator", operator},
		{"BadImage", badImage},
		{"Uninstall", uninstall},
		{"Chart", chart},
	})
}

// It needs the version in previous.txt, which scripts/build-previous builds.
func TestUpgrade(t *testing.T) {
	runStages(t, []stage{
		{"Kustomize", upgrade},
		{"Operator", upgradeByOperator},
	})
}

// runStages runs stages in one lab. Each begins and ends with a cluster without Patchbay, so that it can run alone,
// such as with -run 'TestInstall/Operator'. LAB names a lab that is up and stays.
func runStages(t *testing.T, stages []stage) {
	t.Helper()
	b := start(t)
	for _, s := range stages {
		ok := t.Run(s.name, func(t *testing.T) {
			b := b.with(t)
			b.checkNothingInstalled()
			s.run(b)
			b.checkClean()
		})
		if !ok {
			t.FailNow() // the next stage would begin with what this one has left
		}
	}
}
