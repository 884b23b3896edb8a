// SPDX-License-Identifier: Apache-2.0

/*
 * Loaded into the lab's fallback kernel, Debian's User-Mode Linux, with LD_PRELOAD.
 *
 * Linux accepts a process's extended register state (NT_X86_XSTATE) only whole. Its size
 * depends on the processor: 11,008 bytes with AMX. User-Mode Linux before 6.13 (6.1 in
 * Debian 12, 6.12 in Debian 13) passes a buffer of a fixed, smaller size and panics: "ptrace
 * set fp regs failed, errno = 14". Later ones ask for the size. This wrapper reads the whole
 * state, replaces the part that the guest kernel knows, and writes the whole state back.
 */

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* More than any processor has today: AMX has the largest state, 11,008 bytes. */
enum { MAX_XSTATE = 32768 };

static long raw_ptrace(long request, pid_t pid, void *addr, void *data)
{
	return syscall(SYS_ptrace, request, pid, addr, data);
}

static long set_xstate(pid_t pid, const struct iovec *part)
{
	static __thread char state[MAX_XSTATE] __attribute__((aligned(64)));
	struct iovec whole = { state, sizeof state };

	if (raw_ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole) < 0)
		return -1;
	/* On an older processor the guest's buffer is the larger one. */
	memcpy(state, part->iov_base, part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len);
	return raw_ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &whole);
}

/* libc's wrapper returns the word that a PEEK request reads; the system call stores it. */
static long peek(long request, pid_t pid, void *addr)
{
	long word;

	if (raw_ptrace(request, pid, addr, &word) < 0)
		return -1;
	errno = 0;
	return word;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;

	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	switch ((long)request) {
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER:
		return peek(request, pid, addr);
	case PTRACE_SETREGSET:
		if ((long)addr == NT_X86_XSTATE)
			return set_xstate(pid, data);
	}
	return raw_ptrace(request, pid, addr, data);
}
