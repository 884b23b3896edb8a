// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Of names the process that has the number now. The error is ErrGone when none has.
func Of(pid int) (ID, error) {
	start, _, err := readStat(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) { // the latter when it ends while it is read
		err = ErrGone
	}
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return ID{PID: pid, Start: start}, nil
}

// All names the processes that have the numbers now, without those that have ended.
func All(pids []int) ([]ID, error) {
	var ids []ID
	for _, pid := range pids {
		id, err := Of(pid)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func readStat(pid int) (start uint64, state byte, err error) {
	return readStatFile("/proc/" + strconv.Itoa(pid) + "/stat")
}

// stopped tells whether all threads of the process are stopped (state T of proc(5)).
func (id ID) stopped() (bool, error) {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(id.PID) + "/task/[0-9]*/stat")
	if err != nil {
		return false, fmt.Errorf("list threads of process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		return false, fmt.Errorf("stop process %d: %w", id.PID, ErrGone)
	}
	for _, thread := range threads {
		if stateOf(thread) != 'T' {
			return false, nil
		}
	}
	return len(threads) > 0, nil
}

// stateOf returns the state of a thread, 0 of one that has ended meanwhile.
func stateOf(stat string) byte {
	_, state, err := readStatFile(stat)
	if err != nil {
		return 0
	}
	return state
}

func readStatFile(file string) (start uint64, state byte, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	return parseStat(raw)
}

// parseStat reads field 3 (state) and field 22 (start time). Field 2, the program's
// name, may hold spaces and parentheses, so counting begins after the last one.
func parseStat(raw []byte) (start uint64, state byte, err error) {
	const startField = 22 - 3
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("parse stat: %d fields", len(fields))
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("parse start time: %w", err)
	}
	return start, fields[0][0], nil
}
