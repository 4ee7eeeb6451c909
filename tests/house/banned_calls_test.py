"""core/ and tiers/ neither sleep, lock, open, print nor ask the time: clock, files, memory and randomness come through
ports, so that everything can be stepped by hand. Only core/posix talks to the operating system."""

import re
import sys

import repository

HEADERS = ("thread", "mutex", "shared_mutex", "condition_variable", "future", "semaphore", "latch", "barrier",
           "stop_token", "fstream", "iostream", "filesystem", "ctime", "csignal", "regex")
STD = ("thread", "jthread", "mutex", "lock_guard", "unique_lock", "scoped_lock", "condition_variable", "async",
       "this_thread", "random_device", "ofstream", "ifstream", "cout", "cerr", "getenv", "system", "rand", "time",
       "filesystem", "exit")
# Free functions; a member of the same name (`files.open(…)`) is somebody's port and fine.
FREE = ("pread", "pwrite", "fsync", "fdatasync", "fopen", "mmap", "munmap", "mlock", "usleep", "nanosleep", "sleep",
        "gettimeofday", "clock_gettime", "getenv", "malloc", "fork", "pthread_create", "flock", "statvfs", "printf",
        "puts", "syscall", "ioctl")
GLOBAL = ("open", "read", "write", "close", "rename", "unlink", "time", "exit", "lseek", "fstat", "stat")

PATTERNS = [
    (re.compile(r"\bstd\s*::\s*(" + "|".join(STD) + r")\b"), "std::{}"),
    (re.compile(r"\b(?:system|steady|high_resolution)_clock\b()"), "a clock of <chrono>"),
    (re.compile(r"(?<![\w.:>])(?:::\s*)?(" + "|".join(FREE) + r")\s*\("), "{}()"),
    (re.compile(r"(?<![\w>])::\s*(" + "|".join(GLOBAL) + r")\s*\("), "::{}()"),
]

# A failed STRATA_CHECK ends the process and says so: the one place that may.
EXEMPT = {"core/check.cpp"}


def complaints_about(path, text):
    found = []
    for line, kind, target in repository.includes(text):
        if kind == "<" and target in HEADERS:
            found.append(f"{path}:{line}: may not include <{target}>")
    code = repository.code_only(text)
    for pattern, name in PATTERNS:
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: may not use {name.format(match.group(1))}")
    return found


class BannedCalls(repository.HouseTest):
    def test_decisions_make_no_system_call(self):
        found = []
        for path in repository.files("core", "tiers", ending=repository.HEADERS + repository.SOURCES):
            if not path.startswith("core/posix/") and path not in EXEMPT:
                found += complaints_about(path, repository.read(path))
        self.assert_clean(found)

    def test_each_kind_of_call_is_seen(self):
        for bad in ("#include <thread>", "#include <mutex>", "std::mutex m;", "std::this_thread::sleep_for(1ms);",
                    "auto t = std::chrono::steady_clock::now();", "int fd = ::open(path, 0);", "usleep(5);",
                    "auto p = malloc(3);", "if (getenv(\"X\")) {}", "std::random_device r;", "std::time(nullptr);"):
            with self.subTest(code=bad):
                self.assertTrue(complaints_about("tiers/x.cpp", bad + "\n"))

    def test_ports_comments_and_texts_pass(self):
        for good in ("files.open(path, mode);", "files_->rename(a, b);", "// std::mutex would be wrong here",
                     'log.write("std::thread");', "Result<FileHandle> open(const std::string& path) override;",
                     "FileSystem::open(path);", "clock.wall_ns();", "/* sleep(1) */", "uint64_t read_time(int);"):
            with self.subTest(code=good):
                self.assert_clean(complaints_about("tiers/x.cpp", good + "\n"))


if __name__ == "__main__":
    sys.exit(repository.main())
