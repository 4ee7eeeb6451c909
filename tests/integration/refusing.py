"""Runs a program under what containers and administrators forbid:  refusing.py WHAT… -- PROGRAM ARGUMENT…

    io_uring   io_uring_setup fails with EPERM, as under the seccomp profiles of container engines
    O_DIRECT   opening with O_DIRECT fails with EINVAL, as some file systems do
    memlock    no memory may be locked (RLIMIT_MEMLOCK 0, and no right to pass it)
    resource   no right to pass quotas and reserved space (CAP_SYS_RESOURCE)

The program keeps this process's id. Exit status 2 with one line when the machine does not allow the refusal.
"""

import ctypes
import os
import platform
import resource
import struct
import sys

PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
SECCOMP_MODE_FILTER = 2
CAP_IPC_LOCK, CAP_SYS_RESOURCE = 14, 24
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x45, 0x06
CALL_AT, THIRD_ARGUMENT_AT = 0, 16 + 2 * 8  # in struct seccomp_data; the low half of the argument
NUMBERS = {"x86_64": {"io_uring_setup": 425, "openat": 257}, "aarch64": {"io_uring_setup": 425, "openat": 56}}
EPERM, EINVAL = 1, 22

LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(*arguments):
    if LIBC.prctl(*[ctypes.c_ulong(a) for a in arguments]) != 0:
        sys.exit(f"prctl {arguments[0]}: {os.strerror(ctypes.get_errno())}")


def step(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def rules(what):
    numbers = NUMBERS.get(platform.machine())
    if numbers is None:
        sys.exit(f"no system call numbers for {platform.machine()}")
    program = [step(LOAD, CALL_AT)]
    if "io_uring" in what:
        program += [step(JUMP_EQUAL, numbers["io_uring_setup"], 0, 1), step(RETURN, RET_ERRNO | EPERM)]
    if "O_DIRECT" in what:
        program += [step(JUMP_EQUAL, numbers["openat"], 0, 3), step(LOAD, THIRD_ARGUMENT_AT),
                    step(JUMP_SET, os.O_DIRECT, 0, 1), step(RETURN, RET_ERRNO | EINVAL)]
    return program + [step(RETURN, RET_ALLOW)]


def install(program):
    code = b"".join(program)
    memory = ctypes.create_string_buffer(code, len(code))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    whole = Filter(len(program), ctypes.addressof(memory))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(whole))


def main():
    end = sys.argv.index("--")
    what, command = set(sys.argv[1:end]), sys.argv[end + 1:]
    unknown = what - {"io_uring", "O_DIRECT", "memlock", "resource"}
    if unknown or not command:
        sys.exit(f"unknown refusal: {unknown}")
    if "memlock" in what:
        if os.geteuid() == 0:
            prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    if "resource" in what and os.geteuid() == 0:
        prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0)
    if what & {"io_uring", "O_DIRECT"}:
        install(rules(what))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
