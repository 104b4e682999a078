package tty

import "golang.org/x/sys/unix"

// inputCalls are the system calls that wait for input, by number. A poll that a
// signal has interrupted goes on as restart_syscall, with its own arguments.
var inputCalls = map[int]callKind{
	unix.SYS_READ: callRead, unix.SYS_READV: callRead, unix.SYS_PREADV2: callRead,
	unix.SYS_POLL: callPoll, unix.SYS_PPOLL: callPoll, unix.SYS_RESTART_SYSCALL: callPoll,
	unix.SYS_SELECT: callSelect, unix.SYS_PSELECT6: callSelect,
	unix.SYS_EPOLL_WAIT: callEpoll, unix.SYS_EPOLL_PWAIT: callEpoll, unix.SYS_EPOLL_PWAIT2: callEpoll,
}
