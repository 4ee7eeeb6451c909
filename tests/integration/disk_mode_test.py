"""Disk mode (DM-1 to DM-4) and write policies through the running program."""

import os
import random
import shutil
import time

import harness
import index_file
import strata_process


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


class LargeConversations(harness.StrataTest):
    """As large models have them: 165,000 tokens are 2.6 GB. The synthetic model checks every byte that comes back."""

    TOKENS = 165_000
    PEAK = 600 * 2**20  # resident, of the engine process

    def peak(self, engine):
        with open(f"/proc/{engine.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))

    def test_gigabytes_pass_through_600_mib_dm_1(self):
        folder = self.folder()
        if shutil.disk_usage(folder).free < 10 * 2**30:
            self.skipTest("less than 10 GiB of disk are free")
        engine = strata_process.Engine(harness.BINARY, [
            "--model", "synthetic", "--model-option", "tokens_per_second=20000", "--slots", 1, "--context", 170_000,
            "--conversation-cache-disk-mib", 9000, "--conversation-disk-dir", folder,
            "--conversation-disk-min-free-mib", 512, "--conversation-cache-min-free-mib", 64]).start()
        self.addCleanup(engine.kill)
        source = random.Random(1)
        one, other = ([source.randrange(256) for _ in range(self.TOKENS)] for _ in range(2))
        for tokens in (one, other):
            self.assertEqual(engine.generate(tokens, 1).reused, 0)
        back = engine.generate([*one, 7], 1)
        self.assertEqual((back.reused, back.tier, back.error), (self.TOKENS, "disk", None), engine.log.text())
        stored = sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))
        self.assertGreater(stored, 2 * 2.6e9)
        self.assertLess(self.peak(engine), self.PEAK)


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
