"""Disk mode (DM-1 to DM-4) and write policies through the running program."""

import os
import time

import harness
import index_file


class DiskMode(harness.StrataTest):
    def setUp(self):
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def options(self, folder, mib=64, **more):
        options = ["--conversation-cache-disk-mib", mib, "--conversation-disk-dir", folder,
                   "--conversation-cache-min-free-mib", 64, "--conversation-disk-min-free-mib", 16]
        for name, value in more.items():
            options += ["--" + name.replace("_", "-"), value]
        return options

    def test_switching_and_a_restart_without_a_ram_tier_dm_1(self):
        folder = self.folder()
        first = self.server(self.model, self.options(folder))
        self.assert_says(first, "none in RAM; parked straight to the disk")
        conversations = [harness.Conversation(f"{self.id()}/{n}") for n in range(5)]
        for _ in range(2):
            for conversation in conversations:
                answer = self.compare(first, self.uncached, conversation)
        self.assertEqual(answer.tier, "disk", answer.timings)
        self.assertGreater(answer.reused, 400)
        self.assertEqual(first.stop(), 0, first.output.text())
        self.assertEqual(len(index_file.published(folder)), 5)
        second = self.server(self.model, self.options(folder))
        for conversation in conversations:
            self.assertEqual(self.compare(second, self.uncached, conversation).tier, "disk")

    def test_days_of_zero_empty_the_folder_and_touch_nothing_else_dm_3(self):
        folder = self.folder()
        with open(os.path.join(folder, "notes.txt"), "w", encoding="utf-8") as mine:
            mine.write("mine")
        first = self.server(self.model, self.options(folder))
        self.compare(first, self.uncached, harness.Conversation(self.id()))
        self.assertEqual(first.stop(), 0)
        self.assertEqual(len(index_file.published(folder)), 1)
        second = self.server(self.model, self.options(folder, conversation_cache_days=0))
        self.assertEqual(index_file.published(folder), {})
        self.assertEqual(second.stop(), 0)
        self.assertEqual(sorted(os.listdir(folder)), ["LOCK", "notes.txt"])


class WritePolicies(harness.StrataTest):
    def setUp(self):
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def wait_for_published(self, folder, count):
        until = time.monotonic() + 60
        while len(index_file.published(folder)) < count:
            self.assertLess(time.monotonic(), until, os.listdir(folder))
            time.sleep(0.05)

    def killed_after_its_answers(self, policy):
        """A server that is killed once what the policy writes is there; the next one goes on."""
        folder = self.folder()
        options = harness.cache_options(folder, ram_mib=64, disk_write_policy=policy)
        first = self.server(self.model, options)
        conversations = [harness.Conversation(f"{policy}/{n}") for n in range(2)]
        for conversation in conversations:
            self.compare(first, self.uncached, conversation)
        self.wait_for_published(folder, 2)
        first.kill()
        second = self.server(self.model, options)
        for conversation in conversations:
            answer = self.compare(second, self.uncached, conversation)
            self.assertEqual(answer.tier, "disk", answer.timings)
            self.assertGreater(answer.reused, 400)

    def test_through_survives_a_kill_after_each_answer_b_6(self):
        self.killed_after_its_answers("through")

    def test_idle_survives_a_kill_after_a_quiet_moment_b_6(self):
        self.killed_after_its_answers("idle")


if __name__ == "__main__":
    harness.main()
