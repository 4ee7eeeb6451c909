"""File systems and refusals that a test needs from its machine: small loop-mounted and memory file systems in a mount
namespace of the test's own, and programs run under what containers and administrators forbid. What the machine does not
allow is a SkipTest that says so. Everything goes with the test's process: mounts live in its namespace only."""

import ctypes
import os
import shutil
import subprocess
import sys
import unittest

CLONE_NEWNS = 0x00020000
_LIBC = ctypes.CDLL(None, use_errno=True)
_own_mounts = None  # None: not asked for yet; "": there; else why not


def own_mounts():
    """A mount namespace of this process. Call before threads are started: they and children made later are in it."""
    global _own_mounts
    if _own_mounts is None:
        _own_mounts = _try_own_mounts()
    if _own_mounts:
        raise unittest.SkipTest(_own_mounts)


def own_mounts_if_allowed():
    """For tests of which only some mount: the others run all the same."""
    try:
        own_mounts()
    except unittest.SkipTest:
        pass


def _try_own_mounts():
    if _LIBC.unshare(CLONE_NEWNS) != 0:
        return f"no mount namespace of one's own: {os.strerror(ctypes.get_errno())}"
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"mounts cannot be made private: {done.stderr.strip()}"


def mount(test, *arguments):
    """Mounts on the last argument, a new folder; goes with the test. Skips the test where that is refused."""
    own_mounts()
    place = arguments[-1]
    os.makedirs(place, exist_ok=True)
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(f"mount {' '.join(arguments[:-1])} is refused: {done.stderr.strip().splitlines()[0]}")
    test.addCleanup(subprocess.run, ["umount", "--lazy", place], capture_output=True, check=False)
    return place


def memory_file_system(test, mib):
    return mount(test, "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", os.path.join(test.folder(), "tmpfs"))


def small_file_system(test, mib, *mkfs_options, options="errors=remount-ro"):
    """ext4 in a file, mounted through a loop device."""
    if not shutil.which("mkfs.ext4"):
        raise unittest.SkipTest("no mkfs.ext4")
    folder = test.folder()
    image = os.path.join(folder, "image")
    with open(image, "wb") as file:
        file.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", *mkfs_options, image], check=True, capture_output=True)
    return mount(test, "-o", f"loop,{options}", image, os.path.join(folder, "mounted"))


def device_of(place):
    """The block device that is mounted there."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return next(words[0] for words in map(str.split, file) if words[1] == os.path.realpath(place))


def fill(path, place, leave_bytes):
    """A file that leaves so many bytes free."""
    space = os.statvfs(place)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - leave_bytes)


def refusing(*what):
    """Prefix of a command line that runs it under refusals: see refusing.py."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refusing.py")
    probe = subprocess.run([sys.executable, "-B", program, *what, "--", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise unittest.SkipTest(f"refusing {', '.join(what)}: {probe.stderr.strip()}")
    return (sys.executable, "-B", program, *what, "--")
