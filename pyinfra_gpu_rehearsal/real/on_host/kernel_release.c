// Tells every program of a host another release of the kernel than the one that runs: the one whose
// packages are installed there, so that modules are built and looked for as on a machine of its own.
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

int uname(struct utsname *name) {
	int status = syscall(SYS_uname, name);
	if (status == 0) strncpy(name->release, RELEASE, sizeof name->release - 1);
	return status;
}
