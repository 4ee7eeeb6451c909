"""A disk that is full for real (design 07 #7, #8, invariant 9): on a small file system of the test's own every request is
answered, what could not be kept is counted with its reason, and nothing that was published is lost."""

import ctypes
import os
import struct
import unittest

import harness
import index_file
import machine

DROPPED = r"conversation disk: dropped \d+ tokens, [\d.]+ MiB; {}"


def skipped(server, reason):
    return server.metrics().get(f'strata_skips_total{{tier="disk",reason="{reason}"}}', 0)


class FullDisk(harness.StrataTest):
    def setUp(self):
        machine.own_mounts()
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def serve(self, folder):
        return self.server(self.model, harness.cache_options(folder, disk_floor_mib=0))

    def talk(self, server, count, first=0):
        """New conversations, each answer compared; RAM holds four, the rest goes to the disk."""
        conversations = [harness.Conversation(f"{self.id()}/{n}") for n in range(first, first + count)]
        for conversation in conversations:
            self.compare(server, self.uncached, conversation)
        return conversations

    def assert_nothing_published_is_lost(self, folder, server):
        """After the end: every index verifies, and a new server takes each in."""
        self.assertEqual(server.stop(), 0, server.output.text())
        published = index_file.published(folder)
        self.assertTrue(published, os.listdir(folder))
        status, out, err = self.run_strata("sessions", "verify", folder)
        self.assertEqual(status, 0, out + err)
        again = self.serve(folder)
        self.assert_says(again, rf"took in {len(published)} conversations \(.*\), refused 0")
        return again

    def test_no_inodes_left_is_enospc_that_no_space_count_foresees(self):
        place = machine.small_file_system(self, 32, "-N", "16")
        folder = os.path.join(place, "cache")
        free = os.statvfs(place).f_favail
        server = self.serve(folder)
        self.talk(server, free // 2 + 6)  # each takes two files, and RAM holds four
        self.assertGreater(skipped(server, "no_space"), 0, server.output.text())
        self.assert_says(server, DROPPED.format("no_space"))
        self.assertEqual(server.json("GET", "/health")["status"], "ok")
        again = self.assert_nothing_published_is_lost(folder, server)
        self.talk(again, 2, first=20)

    def test_a_file_system_smaller_than_the_budget(self):
        """Space is counted before it is taken: the oldest go, none is dropped, and the file system never fills up."""
        place = machine.small_file_system(self, 12)
        folder = os.path.join(place, "cache")
        server = self.serve(folder)
        self.talk(server, 24)
        self.assertGreater(server.metric("strata_evictions_total"), 0)
        self.assertEqual(skipped(server, "no_space"), 0, server.output.text())
        self.assert_nothing_published_is_lost(folder, server)

    def test_others_fill_the_disk_and_free_it_again(self):
        place = machine.small_file_system(self, 32)
        folder = os.path.join(place, "cache")
        server = self.serve(folder)
        filler = os.path.join(place, "filler")
        machine.fill(filler, place, 200_000)  # less than one conversation
        self.talk(server, 8)
        self.assertGreater(skipped(server, "min_free_disk"), 0, server.output.text())
        self.assert_says(server, DROPPED.format("min_free_disk"))
        self.assertEqual(index_file.published(folder), {})
        os.unlink(filler)
        self.talk(server, 8, first=10)
        self.assertTrue(index_file.published(folder), server.output.text())
        self.assert_nothing_published_is_lost(folder, server)

    def test_a_memory_file_system_that_is_full(self):
        place = machine.memory_file_system(self, 3)
        folder = os.path.join(place, "cache")
        server = self.serve(folder)
        self.talk(server, 16)
        self.assertGreater(server.metric("strata_evictions_total") + server.metric("strata_skips_total"), 0)
        self.assert_nothing_published_is_lost(folder, server)

    def test_a_full_disk_at_the_start(self):
        """No room for a single byte: the tier is off and says so, requests are answered."""
        place = machine.memory_file_system(self, 1)
        folder = os.path.join(place, "cache")
        os.mkdir(folder, 0o700)
        machine.fill(os.path.join(place, "filler"), place, 0)
        server = self.serve(folder)
        off = [line for line in server.output.lines if "conversation disk: off" in line]
        self.assertEqual(len(off), 1, server.output.text())
        self.assertRegex(off[0], rf"{folder}.*No space left")
        self.assertRegex(str(server.json("GET", "/health")["warnings"]), "disk tier is off.*No space left")
        self.talk(server, 6)
        self.assertEqual(server.stop(), 0, server.output.text())

    def test_export_to_a_full_disk_leaves_nothing(self):
        folder = self.folder()
        server = self.serve(folder)
        self.talk(server, 1)
        server.stop()
        identity = next(iter(index_file.published(folder)))
        place = machine.memory_file_system(self, 1)
        machine.fill(os.path.join(place, "filler"), place, 100_000)
        status, _, err = self.run_strata("sessions", "export", folder, identity, os.path.join(place, "one.sess"))
        self.assertEqual(status, 1)
        self.assertIn("No space left", err)
        self.assertEqual(os.listdir(place), ["filler"])

    def test_a_full_quota(self):
        place = machine.small_file_system(self, 32, "-O", "quota", "-E", "quotatype=usrquota", options="usrquota")
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root sets quotas")
        limit_blocks(machine.device_of(place), user=0, kib=2048)
        os.mkdir(os.path.join(place, "cache"), 0o700)
        folder = os.path.join(place, "cache")
        # Root passes quotas unless the right to do so is taken away.
        prefix = machine.refusing("resource")
        server = self.server(self.model, harness.cache_options(folder, disk_floor_mib=0), prefix=prefix)
        self.talk(server, 12)
        self.assertGreater(skipped(server, "no_space"), 0, server.output.text())
        self.assert_nothing_published_is_lost(folder, server)


def limit_blocks(device, user, kib):
    """quotactl(Q_SETQUOTA) of a user's bytes."""
    q_setquota, blocks_valid = 0x800008 << 8, 1
    limits = struct.pack("=8QI4x", kib, kib, 0, 0, 0, 0, 0, 0, blocks_valid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.quotactl(q_setquota, device.encode(), user, limits) != 0:
        raise unittest.SkipTest(f"a quota cannot be set: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    harness.main()
