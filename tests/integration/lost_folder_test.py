"""The conversation folder is lost while the server runs: removed, moved away, its file system read-only or gone. Requests
go on, with the answers of a server without a cache, and metrics say that the disk fails."""

import os
import shutil
import subprocess

import harness
import index_file
import machine


class LostFolder(harness.StrataTest):
    def setUp(self):
        machine.own_mounts_if_allowed()
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def begin(self, folder):
        """A server with seven conversations, of which RAM holds four and the disk the rest."""
        server = self.server(self.model, harness.cache_options(folder))
        conversations = [harness.Conversation(f"{self.id()}/{n}") for n in range(7)]
        for conversation in conversations:
            self.compare(server, self.uncached, conversation)
        self.assertTrue(index_file.published(folder), server.output.text())
        self.assertEqual(server.metrics()["strata_disk_failing"], 0)
        return server, conversations

    def go_on(self, server, conversations, failing=True):
        """Two rounds: what was on the disk is read again, what is evicted cannot be written."""
        for _ in range(2):
            for conversation in conversations:
                self.compare(server, self.uncached, conversation)
        if failing:
            self.assertEqual(server.metrics()["strata_disk_failing"], 1, server.output.text())
            self.assertGreater(server.metrics().get('strata_skips_total{tier="disk",reason="io_error"}', 0), 0)
            self.assert_says(server, r"conversation disk: dropped .*; io_error: ")
        self.assertEqual(server.json("GET", "/health")["status"], "ok")
        server.stop()
        self.assertIsNotNone(server.process.returncode)
        self.assertGreaterEqual(server.process.returncode, 0, server.output.text())

    def test_the_folder_is_removed(self):
        folder = self.folder()
        server, conversations = self.begin(folder)
        shutil.rmtree(folder)
        self.go_on(server, conversations)
        self.assertFalse(os.path.exists(folder), "it is not made again behind its owner's back")

    def test_the_folder_is_moved_away_and_comes_back(self):
        folder = self.folder()
        server, conversations = self.begin(folder)
        away = folder + ".away"
        self.addCleanup(shutil.rmtree, away, ignore_errors=True)
        os.rename(folder, away)
        for conversation in conversations:
            self.compare(server, self.uncached, conversation)
        self.assertEqual(server.metrics()["strata_disk_failing"], 1, server.output.text())
        os.rename(away, folder)
        self.go_on(server, conversations, failing=False)
        self.assertEqual(server.process.returncode, 0)
        again = self.server(self.model, harness.cache_options(folder))
        self.assert_says(again, r"took in \d+ conversations")
        for conversation in conversations:
            self.compare(again, self.uncached, conversation)

    def test_single_files_are_removed(self):
        folder = self.folder()
        server, conversations = self.begin(folder)
        for name in os.listdir(folder):
            if name.startswith("conv-"):
                os.unlink(os.path.join(folder, name))
        self.go_on(server, conversations, failing=False)

    def test_the_file_system_turns_read_only(self):
        """As ext4 does after an error of its device."""
        place = machine.small_file_system(self, 32)
        folder = os.path.join(place, "cache")
        server, conversations = self.begin(folder)
        trigger = f"/sys/fs/ext4/{os.path.basename(machine.device_of(place))}/trigger_fs_error"
        try:
            with open(trigger, "w", encoding="ascii") as file:
                file.write("1")
        except OSError as error:
            self.skipTest(f"no error can be provoked: {error}")
        with self.assertRaises(OSError, msg="it can still be written"):
            with open(os.path.join(place, "one more"), "wb") as file:
                file.write(b"x")
        self.go_on(server, conversations)

    def test_a_read_only_file_system_at_the_start(self):
        place = machine.memory_file_system(self, 8)
        folder = os.path.join(place, "cache")
        os.mkdir(folder, 0o700)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True, capture_output=True)
        server = self.server(self.model, harness.cache_options(folder))
        off = [line for line in server.output.lines if "conversation disk: off" in line]
        self.assertEqual(len(off), 1, server.output.text())
        self.assertRegex(off[0], "Read-only file system")
        self.assertRegex(str(server.json("GET", "/health")["warnings"]), "Read-only file system")
        self.ask_good(server)

    def test_the_file_system_is_unmounted(self):
        """A lazy unmount, as of a pulled drive: open files still work, paths lead to an empty folder."""
        place = machine.memory_file_system(self, 32)
        folder = os.path.join(place, "cache")
        server, conversations = self.begin(folder)
        # The server's processes see this namespace's mounts.
        subprocess.run(["umount", "--lazy", place], check=True, capture_output=True)
        self.go_on(server, conversations)


if __name__ == "__main__":
    harness.main()
