"""A folder with 10,000 conversations: it is taken in, the one that is asked for is found, and the commands that look at
folders cope. How long the intake took is reported, not judged: the machine decides it."""

import json
import os
import re
import subprocess
import time

import harness
import strata_process

COUNT = 10_000
MAKER = os.environ.get("STRATA_FOLDER_MAKER",
                       os.path.join(harness.ROOT, "build", "dev", "tests", "integration", "strata_folder_maker"))


class ManyConversations(harness.StrataTest):
    @classmethod
    def setUpClass(cls):
        """One conversation of a server, and 10,000 that are like it."""
        cls.path = os.path.join(harness.FOLDERS, "many_conversations")
        harness.shutil.rmtree(cls.path, ignore_errors=True)
        os.makedirs(cls.path)
        cls.addClassCleanup(harness.shutil.rmtree, cls.path, ignore_errors=True)
        cls.model = harness.model_options()
        cls.conversation = harness.Conversation("the one")
        with strata_process.Server(harness.BINARY, [*cls.model, *harness.cache_options(cls.path)]) as server:
            cls.conversation.hear(server.complete("/v1/chat/completions", cls.conversation.next_request()))
        cls.originals = [name for name in os.listdir(cls.path) if name.startswith("conv-")]
        subprocess.run([MAKER, cls.path, str(COUNT)], check=True, timeout=240)

    def test_they_are_taken_in_and_the_right_one_is_found_p_8(self):
        uncached = self.server(self.model, ["--conversation-cache-mib", 0])
        started = time.monotonic()
        server = self.server(self.model, harness.cache_options(self.path))
        seconds = time.monotonic() - started
        self.assert_says(server, rf"took in {COUNT + 1} conversations \(.*\), refused 0$")
        print(f"\n{COUNT + 1} conversations: ready {seconds:.2f} s after the start of the program", flush=True)
        answer = self.compare(server, uncached, self.conversation)
        self.assertEqual(answer.tier, "disk", answer.timings)
        for number in range(6):  # and it goes on as with a small folder
            self.compare(server, uncached, harness.Conversation(f"new {number}"))
        self.assertEqual(server.stop(), 0, server.output.text()[-2000:])

    def test_a_budget_that_most_of_them_exceed(self):
        """Last used first; the rest is removed with its reason. Of 1,000, in a folder of its own."""
        folder = self.folder()
        for name in self.originals:
            harness.shutil.copy2(os.path.join(self.path, name), folder)
        subprocess.run([MAKER, folder, "1000"], check=True, timeout=240)
        server = self.server(self.model, harness.cache_options(folder, conversation_disk_mib=4))
        _, match = server.output.wait_for(re.compile(r"took in (\d+) conversations .*refused (\d+) \(budget (\d+)\)").search, 60)
        taken, refused, by_budget = map(int, match.groups())
        self.assertEqual((refused, taken + refused), (by_budget, 1001))
        self.assertGreater(min(taken, refused), 100)
        on_disk = sum(os.stat(os.path.join(folder, name)).st_blocks for name in os.listdir(folder)) * 512
        self.assertLessEqual(on_disk, 4 << 20)

    def test_list_and_gc_cope(self):
        status, out, err = self.run_strata("sessions", "list", self.path, "--json")
        self.assertEqual(status, 0, err)
        self.assertGreaterEqual(len(json.loads(out)["conversations"]), COUNT)
        status, out, err = self.run_strata("sessions", "gc", self.path, "--dry-run", "--budget-mib", 1, "--json")
        self.assertEqual(status, 0, err)
        plan = json.loads(out)
        self.assertGreater(plan["staying_conversations"], 10)
        self.assertLessEqual(plan["staying_bytes"], 1 << 20)
        self.assertEqual(plan["removed_files"], 0)


if __name__ == "__main__":
    harness.main()
