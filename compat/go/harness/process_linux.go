package harness

import "syscall"

// dieWithParent makes the kernel end the server if the tests die without cleaning up.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
