"""Stop, start on the same folder, go on (DISK-5 to DISK-8, SRV-1)."""

import os
import signal

import harness
import index_file
import strata_process


class Restart(harness.StrataTest):
    def setUp(self):
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def first_turns(self, server, count=4):
        conversations = [harness.Conversation(f"{self.id()}/{n}") for n in range(count)]
        for conversation in conversations:
            self.compare(server, self.uncached, conversation)
        return conversations

    def test_conversations_outlive_the_program_disk_6_disk_7(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder))
        conversations = self.first_turns(first)
        self.assertEqual(first.stop(), 0, first.output.text())
        self.assertEqual(len(index_file.published(folder)), 4, os.listdir(folder))
        second = self.server(self.model, harness.cache_options(folder))
        self.assert_says(second, r"conversation disk: took in 4 conversations")
        for conversation in conversations:
            answer = self.compare(second, self.uncached, conversation)
            self.assertEqual(answer.tier, "disk", answer.timings)
            self.assertGreater(answer.reused, 400)

    def test_three_layouts_in_two_stages_outlive_it_disk_11(self):
        for layout in ("attention", "sliding", "hybrid"):
            with self.subTest(layout=layout):
                folder, model = self.folder(), harness.model_options(layout, 2)
                uncached = self.server(model, ["--conversation-cache-mib", 0])
                first = self.server(model, harness.cache_options(folder))
                conversations = [harness.Conversation(f"{layout}/{n}") for n in range(3)]
                for conversation in conversations:
                    self.compare(first, uncached, conversation)
                self.assertEqual(first.stop(), 0)
                second = self.server(model, harness.cache_options(folder))
                for conversation in conversations:
                    self.assertGreater(self.compare(second, uncached, conversation).reused, 400)
                for server in (uncached, second):
                    server.kill()

    def test_state_kept_whole_outlives_it_disk_6_id_3(self):
        """Forced by the option, which the engine gets from the server; state in blocks is not mistaken for it."""
        folder, whole = self.folder(), [*harness.model_options(context=1024), "--state-granularity", "whole"]
        first = self.server(whole, harness.cache_options(folder, ram_mib=16))  # each checkpoint has room for a full context
        conversations = self.first_turns(first)
        self.assertEqual(first.stop(), 0, first.output.text())
        in_blocks = self.server(self.model, harness.cache_options(folder, conversation_disk_foreign="keep"))
        self.assert_says(in_blocks, r"refused.*identity")
        self.assertEqual(in_blocks.stop(), 0)
        second = self.server(whole, harness.cache_options(folder, ram_mib=16))
        self.assert_says(second, r"conversation disk: took in 4 conversations")
        for conversation in conversations:
            answer = self.compare(second, self.uncached, conversation)
            self.assertEqual(answer.tier, "disk", answer.timings)
            self.assertGreater(answer.reused, 400)

    def test_without_persist_the_folder_is_empty_afterwards_disk_5(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder, persist=False))
        self.first_turns(first, 7)  # more than RAM holds
        first.wait_until_written()
        self.assertTrue(index_file.published(folder) or harness.files_in(folder, ".sess"))
        self.assertEqual(first.stop(), 0, first.output.text())
        self.assertEqual(harness.files_in(folder, ".idx") + harness.files_in(folder, ".sess"), [])

    def test_a_run_without_persist_that_was_killed_leaves_nothing_to_find_disk_5(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder, persist=False))
        conversations = self.first_turns(first, 7)
        first.wait_until_written()
        self.assertTrue(harness.files_in(folder, ".idx"))
        first.kill()
        second = self.server(self.model, harness.cache_options(folder, persist=False))
        self.assertEqual(harness.files_in(folder, ".idx"), [])
        self.assertLess(self.compare(second, self.uncached, conversations[0]).reused, 64)

    def test_another_model_is_refused_by_the_field_that_differs_id_3(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder))
        self.first_turns(first)
        self.assertEqual(first.stop(), 0)
        other = self.server(harness.model_options(seed=2), harness.cache_options(folder, conversation_disk_foreign="keep"))
        self.assert_says(other, r"refused.*identity")
        self.assertEqual(len(harness.files_in(folder, ".idx")), 4, "keep keeps them")
        self.assertEqual(other.stop(), 0)
        again = self.server(self.model, harness.cache_options(folder))
        self.assert_says(again, r"took in 4 conversations")

    def test_slots_and_context_are_no_part_of_the_identity_id_2(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder))
        conversations = self.first_turns(first)
        self.assertEqual(first.stop(), 0)
        second = self.server(harness.model_options(slots=3, context=1024), harness.cache_options(folder))
        self.assertEqual(self.compare(second, self.uncached, conversations[0]).tier, "disk")

    def test_a_second_server_on_one_folder_is_refused_disk_8(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder))
        conversations = self.first_turns(first)
        second = strata_process.Server(harness.BINARY, [*self.model, *harness.cache_options(folder)])
        with self.assertRaises(strata_process.Died) as refusal:
            second.start()
        self.assertNotEqual(second.process.returncode, 0)
        lines = [line for line in str(refusal.exception).splitlines() if folder in line]
        self.assertTrue(lines, refusal.exception)
        self.assertRegex(lines[0], "in use|another process")
        for conversation in conversations:
            self.compare(first, self.uncached, conversation)

    def test_the_second_may_start_when_the_first_was_killed(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder))
        self.first_turns(first)
        first.kill()
        self.ask_good(self.server(self.model, harness.cache_options(folder)))

    def test_ctrl_c_reaches_both_processes_and_still_drains_disk_7(self):
        folder = self.folder()
        first = self.server(self.model, harness.cache_options(folder))
        self.first_turns(first)
        os.killpg(first.process.pid, signal.SIGINT)  # as a terminal does: server and engine are one group
        self.assertEqual(first.stop(how=0), 0, first.output.text())
        self.assertEqual(len(index_file.published(folder)), 4)


if __name__ == "__main__":
    harness.main()
