// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"errors"
	"fmt"
)

// check says what is wrong with the input, all at once.
func check(total int64, rows []Row) error {
	var errs []error
	if total < 0 || total > MaxTotal {
		errs = append(errs, fmt.Errorf("replicas %d: want 0 to %d", total, MaxTotal))
	}
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		if r.Name == "" || seen[r.Name] {
			errs = append(errs, fmt.Errorf("cluster %q: want a name that no other has", r.Name))
		}
		seen[r.Name] = true
		errs = append(errs, r.check()...)
	}
	return errors.Join(errs...)
}

// check says what is wrong with one row.
func (r Row) check() (errs []error) {
	wrong := func(field string, value int64, want string) {
		errs = append(errs, fmt.Errorf("cluster %q: %s %d: want %s", r.Name, field, value, want))
	}
	if r.Weight < 0 || r.Weight > MaxWeight {
		wrong("weight", r.Weight, fmt.Sprintf("0 to %d", MaxWeight))
	}
	if r.Min < 0 {
		wrong("min", r.Min, "0 or more")
	}
	if r.Max != nil && (*r.Max < 0 || *r.Max < r.Min) {
		wrong("max", *r.Max, fmt.Sprintf("at least its min of %d, and not less than 0", r.Min))
	}
	if r.Capacity != nil && *r.Capacity < 0 {
		wrong("capacity", *r.Capacity, "0 or more")
	}
	if r.Current < 0 {
		wrong("current", r.Current, "0 or more")
	}
	return errs
}
