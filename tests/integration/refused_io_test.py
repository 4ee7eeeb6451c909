"""What containers and file systems refuse (design 07 #18): io_uring, O_DIRECT, locked memory. The server starts, says in
one line what it uses instead and why, and keeps conversations all the same."""

import os
import re
import shutil
import unittest

import harness
import machine
import strata_process

FALLBACK = re.compile(r"conversation disk: .*; using (io_\w+) with (.+)$")


class RefusedIo(harness.StrataTest):
    def setUp(self):
        machine.own_mounts_if_allowed()
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def keep_and_find(self, folder, prefix=(), options=()):
        """Seven conversations over a RAM tier of four, each continued, then once more after a restart: from the disk, every
        answer compared. Returns the first server's lines."""
        first = self.server(self.model, harness.cache_options(folder), options, prefix=prefix)
        conversations = [harness.Conversation(f"{self.id()}/{n}") for n in range(7)]
        for conversation in conversations:
            self.compare(first, self.uncached, conversation)
        tiers = [self.compare(first, self.uncached, conversation).tier for conversation in conversations]
        self.assertIn("disk", tiers)
        self.route = [name for name, value in first.metrics().items() if name.startswith("strata_disk_route") and value == 1]
        self.assertEqual(first.metric("strata_skips_total"), 0, first.output.text())
        self.assertEqual(first.stop(), 0, first.output.text())
        second = self.server(self.model, harness.cache_options(folder), options, prefix=prefix)
        self.assert_says(second, r"took in 7 conversations")
        self.assertEqual(self.compare(second, self.uncached, conversations[0]).tier, "disk")
        return first.output.text().splitlines()

    def assert_fell_back(self, lines, queue, way, why):
        """One line says so, and why; the metric says what is used."""
        found = [line for line in lines if FALLBACK.search(line)]
        self.assertEqual(len(found), 1, "\n".join(lines))
        self.assertEqual(FALLBACK.search(found[0]).groups(), (queue, way))
        self.assertRegex(found[0], why)
        caching = "direct" if way == "O_DIRECT" else "buffered"
        self.assertEqual(self.route, [f'strata_disk_route{{io="{queue}",caching="{caching}"}}'])

    def test_io_uring_refused_as_in_a_container(self):
        lines = self.keep_and_find(self.folder(), machine.refusing("io_uring"))
        self.assert_fell_back(lines, "io_posix", "O_DIRECT", r"io_uring: .*(not permitted|refused)")

    def test_io_uring_asked_for_and_refused_is_an_error(self):
        server = strata_process.Server(harness.BINARY, [*map(str, self.model), "--io", "uring",
                                                        *harness.cache_options(self.folder())],
                                       prefix=machine.refusing("io_uring"))
        with self.assertRaises(strata_process.Died) as refusal:
            server.start()
        self.assertNotEqual(server.process.returncode, 0)
        self.assertRegex(str(refusal.exception), r"uring.*not permitted")

    def test_o_direct_refused_at_opening(self):
        lines = self.keep_and_find(self.folder(), machine.refusing("O_DIRECT"))
        self.assert_fell_back(lines, "io_uring", "the page cache", "O_DIRECT")

    def test_both_refused(self):
        lines = self.keep_and_find(self.folder(), machine.refusing("io_uring", "O_DIRECT"))
        self.assert_fell_back(lines, "io_posix", "the page cache", "not permitted.*O_DIRECT")

    def test_o_direct_that_opens_and_fails_at_the_first_write(self):
        if not shutil.which("strace"):
            raise unittest.SkipTest("no strace to let a write fail")
        folder = self.folder()
        # The first write of each thread to the trial's file fails: that of the io_uring trial, then that of a worker of
        # io_posix. Both have opened it with O_DIRECT.
        prefix = ("strace", "-DD", "-f", "-qq", "-o", os.devnull, "-P", os.path.join(folder, ".strata-probe"),
                  "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=EINVAL:when=1")
        lines = self.keep_and_find(folder, prefix)
        self.assert_fell_back(lines, "io_uring", "the page cache",
                              "io_uring with O_DIRECT: write.*Invalid argument.*io_posix with O_DIRECT: write")

    def test_no_memory_may_be_locked(self):
        """Kernels differ in whether a ring counts as locked memory."""
        lines = self.keep_and_find(self.folder(), machine.refusing("memlock"))
        said = [line for line in lines if FALLBACK.search(line)]
        if said:
            self.assert_fell_back(lines, "io_posix", "O_DIRECT", "io_uring: .*Cannot allocate memory")

    def test_no_memory_may_be_locked_and_no_io_uring(self):
        self.keep_and_find(self.folder(), machine.refusing("memlock", "io_uring", "O_DIRECT"))

    def test_a_memory_file_system(self):
        """Whether O_DIRECT works there depends on the kernel; that conversations are kept does not."""
        self.keep_and_find(machine.memory_file_system(self, 64))

    def test_nothing_to_say_where_everything_works(self):
        lines = self.keep_and_find(self.folder())
        if not os.path.exists("/proc/sys/kernel/io_uring_disabled"):
            self.skipTest("a kernel before 6.6: whether io_uring may be used is not said")
        with open("/proc/sys/kernel/io_uring_disabled", encoding="ascii") as file:
            if file.read().strip() != "0":
                self.skipTest("io_uring is switched off on this machine")
        self.assertEqual([line for line in lines if FALLBACK.search(line)], [])


if __name__ == "__main__":
    harness.main()
