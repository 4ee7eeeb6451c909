"""Conversations saved and restored by name over HTTP, through the built program (SES-1, SES-3, SES-4, SES-6)."""

import json
import os
import shutil
import stat
import unittest

import harness

OUTSIDE_NAMES = ("../up", "..", "a/../../up", "/tmp/strata-up", "..\\up", "./up", "a/b", ".hidden", "up/", "\uff0e\uff0e\u2215up")


class NamedSessions(harness.StrataTest):
    layout = "attention"

    @classmethod
    def setUpClass(cls):
        cls.model = harness.model_options(cls.layout)
        cls.uncached = harness.strata_process.Server(harness.BINARY, [*cls.model, "--conversation-cache-mib", 0]).start()
        cls.addClassCleanup(cls.uncached.kill)

    def setUp(self):
        self.path = os.path.join(self.folder(), "by name")
        self.started = self.start()

    def start(self, *more):
        """Without parking: what a slot holds after an erase came from a file or was read."""
        return self.server(self.model, ["--conversation-cache-mib", 0, "--slot-save-path", self.path, *self.floors()], more)

    @staticmethod
    def floors():
        return ["--session-min-free-mib", 16, "--conversation-cache-min-free-mib", 64]

    # ---- what clients do

    def action(self, name, what, slot=0, server=None, status=200):
        body = {} if what == "erase" else {"filename": name}
        return (server or self.started).json("POST", f"/slots/{slot}?action={what}", body, status=status)

    def refused(self, status, kind, name, what, slot=0, server=None):
        error = self.action(name, what, slot, server, status)["error"]
        self.assertEqual(error["code"], status)
        self.assertEqual(error.get("kind"), kind, error)
        self.assertNotIn("published", error)
        return error["message"]

    def turn(self, conversation, slot=0, server=None):
        return self.compare(server or self.started, self.uncached, conversation, id_slot=slot)

    def talk(self, name="named", slot=0, turns=2, size=900):
        conversation = harness.Conversation(name, size=size)
        for _ in range(turns):
            self.turn(conversation, slot)
        return conversation

    def held(self, slot=0, server=None):
        return (server or self.started).json("GET", "/slots")[slot]["tokens"]

    def names(self):
        return sorted(os.listdir(self.path))

    def file(self, name):
        return os.path.join(self.path, name)

    def save(self, name, slot=0):
        saved = self.action(name, "save", slot)
        self.assertEqual((saved["id_slot"], saved["filename"]), (slot, name))
        self.assertEqual(saved["n_saved"], self.held(slot))
        self.assertEqual(saved["n_written"], os.stat(self.file(name)).st_size)
        self.assertGreaterEqual(saved["timings"]["save_ms"], 0)
        return saved

    def assert_reused(self, answer, restored):
        """All that could be: one token is always read again."""
        self.assertGreaterEqual(answer.reused, restored["n_usable"] - 1, answer.timings)
        self.assertGreater(answer.reused, 0)

    # ---- what works

    def test_erase_and_restore(self):
        conversation = self.talk()
        tokens = self.held()
        saved = self.save("a.sess")
        self.assertEqual(self.action(None, "erase")["n_erased"], tokens)
        self.assertEqual(self.held(), 0)
        restored = self.action("a.sess", "restore")
        self.assertEqual((restored["id_slot"], restored["filename"]), (0, "a.sess"))
        self.assertEqual(restored["n_restored"], saved["n_saved"])
        self.assertLessEqual(restored["n_usable"], restored["n_restored"])
        self.assertEqual(restored["n_read"], saved["n_written"])
        self.assertEqual(self.held(), restored["n_usable"])
        self.assert_reused(self.turn(conversation), restored)

    def test_without_the_file_the_prompt_is_read(self):
        """The control: nothing but the file could have kept it."""
        conversation = self.talk()
        self.action(None, "erase")
        self.assertEqual(self.turn(conversation).reused, 0)

    def test_into_another_slot(self):
        conversation = self.talk(slot=1)
        self.save("one", slot=1)
        restored = self.action("one", "restore", slot=0)
        self.assertEqual(restored["id_slot"], 0)
        self.assert_reused(self.turn(conversation, slot=0), restored)

    def test_after_a_restart(self):
        conversation = self.talk()
        saved = self.save("kept")
        self.assertEqual(self.started.stop(), 0, self.started.output.text())
        self.started = self.start()
        self.assertEqual(self.held(), 0)
        restored = self.action("kept", "restore", slot=1)
        self.assertEqual(restored["n_restored"], saved["n_saved"])
        self.assert_reused(self.turn(conversation, slot=1), restored)

    def test_a_saved_conversation_goes_two_ways(self):
        conversation = self.talk()
        self.save("fork")
        messages = list(conversation.messages)
        self.turn(conversation)
        other = harness.Conversation("the other way")
        other.messages = messages
        restored = self.action("fork", "restore", slot=1)
        self.assert_reused(self.turn(other, slot=1), restored)
        self.turn(conversation)

    def test_a_second_save_replaces_the_first(self):
        conversation = self.talk(turns=1)
        before = self.save("same")
        self.turn(conversation)
        after = self.save("same")
        self.assertGreater(after["n_saved"], before["n_saved"])
        self.assertEqual(self.names(), ["same"])
        self.action(None, "erase")
        restored = self.action("same", "restore")
        self.assertEqual(restored["n_restored"], after["n_saved"])
        self.assert_reused(self.turn(conversation), restored)

    def test_files_are_private_and_nothing_else_is_left(self):
        self.talk(turns=1)
        self.save("mine")
        self.assertEqual(self.names(), ["mine"])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(self.file("mine")).st_mode), 0o600)
        status, out, err = self.run_strata("sessions", "verify", self.file("mine"))
        self.assertEqual(status, 0, out + err)

    # ---- what is refused

    def test_a_name_that_is_not_there(self):
        conversation = self.talk()
        self.refused(404, None, "missing", "restore")
        self.assertGreater(self.turn(conversation).reused, 0)

    def test_an_empty_slot_is_not_saved(self):
        self.refused(400, "invalid", "empty", "save", slot=1)
        self.assertEqual(self.names(), [])

    def test_names_that_lead_elsewhere(self):
        self.talk(turns=1)
        above = os.path.dirname(self.path)
        before = sorted(os.listdir(above))
        for name in OUTSIDE_NAMES:
            with self.subTest(name=name):
                self.refused(400, "invalid", name, "save")
                self.refused(400, "invalid", name, "restore")
        self.assertEqual(self.names(), [])
        self.assertEqual(sorted(os.listdir(above)), before)
        self.assertFalse(os.path.lexists("/tmp/strata-up"))

    def test_a_damaged_file_leaves_the_slot_alone(self):
        saved = self.talk("the saved one")
        size = self.save("good")["n_written"]
        self.assertGreater(self.turn(saved).reused, 0)
        other = self.talk("another one", slot=1)
        for position in (0, 9, 40, size // 3, size // 2, size - 70, size - 1):
            with self.subTest(position=position):
                shutil.copyfile(self.file("good"), self.file("bad"))
                with open(self.file("bad"), "r+b") as file:
                    file.seek(position)
                    byte = file.read(1)
                    file.seek(position)
                    file.write(bytes([byte[0] ^ 0x20]))
                self.refused(400, "invalid", "bad", "restore", slot=1)
                self.assertGreater(self.held(1), 0)
        for length in (0, 1, 4095, size // 2, size - 1):
            with self.subTest(length=length):
                shutil.copyfile(self.file("good"), self.file("bad"))
                os.truncate(self.file("bad"), length)
                self.refused(400, "invalid", "bad", "restore", slot=1)
        answer = self.turn(other, slot=1)
        self.assertEqual(answer.tier, "vram", answer.timings)
        self.assertGreater(answer.reused, 0)
        restored = self.action("good", "restore", slot=1)
        self.assertGreater(restored["n_usable"], 0)

    def test_what_is_no_regular_file_of_one_name(self):
        conversation = self.talk()
        self.save("good")
        os.symlink(self.file("good"), self.file("link"))
        os.symlink("/nowhere/at/all", self.file("dangling"))
        os.link(self.file("good"), self.file("second name"))
        os.mkdir(self.file("folder"))
        os.mkfifo(self.file("pipe"))
        for name in ("link", "dangling", "second name", "good", "folder", "pipe"):
            with self.subTest(name=name):
                self.refused(400, "invalid", name, "restore")
        os.remove(self.file("second name"))
        self.action("good", "restore")
        self.assertGreater(self.turn(conversation).reused, 0)

    def test_names_that_folders_of_conversations_use(self):
        self.talk(turns=1)
        for name in ("conv-00000000000000ff.sess", "conv-00000000000000ff.idx", "mine.idx", "LOCK"):
            with self.subTest(name=name):
                self.refused(400, "invalid", name, "save")
        self.assertEqual(self.names(), [])

    def test_a_save_writes_through_no_link_and_over_no_folder(self):
        self.talk(turns=1)
        victim = os.path.join(os.path.dirname(self.path), "victim")
        with open(victim, "w", encoding="ascii") as file:
            file.write("precious")
        os.symlink(victim, self.file("link"))
        os.mkdir(self.file("folder"))
        for name in ("link", "folder"):
            with self.subTest(name=name):
                self.refused(400, "invalid", name, "save")
        with open(victim, encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")
        self.assertEqual(self.names(), ["folder", "link"])
        self.assertTrue(os.path.islink(self.file("link")))

    def test_a_file_of_another_model(self):
        self.talk(turns=1)
        self.save("foreign")
        other = self.server(harness.model_options(self.layout, ffn=2048),
                            ["--conversation-cache-mib", 0, "--slot-save-path", self.path, *self.floors()])
        message = self.refused(400, "invalid", "foreign", "restore", server=other)
        self.assertRegex(message, "model|configuration")
        self.assertEqual(self.held(server=other), 0)

    def test_no_room_on_the_disk(self):
        conversation = self.talk()
        self.assertEqual(self.started.stop(), 0)
        self.started = self.server(self.model, ["--conversation-cache-mib", 0, "--slot-save-path", self.path,
                                                "--session-min-free-mib", 1 << 29, "--conversation-cache-min-free-mib", 64])
        self.turn(conversation)
        self.refused(507, "storage", "full", "save")
        self.assertEqual(self.names(), [])
        self.assertGreater(self.turn(conversation).reused, 0)

    # ---- beside other work

    def test_beside_a_request_of_the_same_slot(self):
        """It waits, and saves what the request has left behind; nothing is mixed up."""
        conversation = self.talk()
        request = conversation.next_request(id_slot=0, stream=True)
        request["max_tokens"] = 48
        connection = self.started.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps(request).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertTrue(response.readline())
        saved = self.action("beside", "save")
        self.assertIn(b"[DONE]", response.read())
        connection.close()
        self.assertGreaterEqual(self.held(), saved["n_saved"])
        self.action(None, "erase")
        restored = self.action("beside", "restore")
        self.assertEqual(restored["n_restored"], saved["n_saved"])

    def test_the_engine_dies_and_the_file_is_still_there(self):
        conversation = self.talk()
        saved = self.save("safe")
        for pid in self.started.engine_pids():
            harness.strata_process.kill_quietly(pid)
        restored = self.action_of_a_new_engine("safe")
        self.assertEqual(restored["n_restored"], saved["n_saved"])
        self.assert_reused(self.turn(conversation), restored)

    def action_of_a_new_engine(self, name):
        """One that meets the end of the old one is answered with it."""
        response = self.started.request("POST", "/slots/0?action=restore", {"filename": name})
        if response.status == 500:
            self.assertEqual(json.loads(response.body)["error"]["kind"], "io")
            return self.action(name, "restore")
        self.assertEqual(response.status, 200, response.body)
        return json.loads(response.body)


class NamedSessionsOfAStateThatCannotBeCut(NamedSessions):
    """Hybrid models: what is usable is what a checkpoint holds."""

    layout = "hybrid"


class NamedSessionsBesideTheTiers(harness.StrataTest):
    def setUp(self):
        self.model = harness.model_options()
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def switch(self, folder, disk):
        """Two conversations share a slot, one of them saved by name: what the slot held is parked, none is read anew."""
        server = self.server(self.model, harness.cache_options(disk),
                             ["--slot-save-path", folder, "--session-min-free-mib", 16])
        first, second = harness.Conversation("first", size=900), harness.Conversation("second", size=900)
        self.compare(server, self.uncached, first, id_slot=0)
        server.json("POST", "/slots/0?action=save", {"filename": "first"})
        self.compare(server, self.uncached, second, id_slot=0)
        restored = server.json("POST", "/slots/0?action=restore", {"filename": "first"})
        answer = self.compare(server, self.uncached, first, id_slot=0)
        self.assertGreaterEqual(answer.reused, restored["n_usable"] - 1, answer.timings)
        self.assertEqual(answer.tier, "vram", answer.timings)
        answer = self.compare(server, self.uncached, second, id_slot=0)
        self.assertEqual(answer.tier, "ram", answer.timings)
        self.assertEqual(server.stop(), 0, server.output.text())

    def test_in_a_folder_of_its_own(self):
        folder, disk = os.path.join(self.folder(), "named"), self.folder()
        self.switch(folder, disk)
        self.assertEqual(os.listdir(folder), ["first"])
        self.assertNotIn("first", os.listdir(disk))

    def test_what_export_writes_is_restored(self):
        folder, disk = self.folder(), self.folder()
        conversation = harness.Conversation("exported", size=900)
        with harness.strata_process.Server(harness.BINARY, [*self.model, *harness.cache_options(disk)]) as server:
            self.compare(server, self.uncached, conversation)
        index, = harness.files_in(disk, ".idx")
        status, out, err = self.run_strata("sessions", "export", disk, index[5:-4], os.path.join(folder, "exported"))
        self.assertEqual(status, 0, out + err)
        server = self.server(self.model, ["--conversation-cache-mib", 0, "--slot-save-path", folder,
                                          "--conversation-cache-min-free-mib", 64])
        restored = server.json("POST", "/slots/1?action=restore", {"filename": "exported"})
        answer = self.compare(server, self.uncached, conversation, id_slot=1)
        self.assertGreaterEqual(answer.reused, restored["n_usable"] - 1, answer.timings)
        self.assertGreater(answer.reused, 0)

    def test_in_the_folder_of_the_disk_tier(self):
        """The tier neither takes it in nor removes it, at the end and at the next start."""
        disk = self.folder()
        self.switch(disk, disk)
        with open(os.path.join(disk, "first"), "rb") as file:
            before = file.read()
        server = self.server(self.model, harness.cache_options(disk), ["--slot-save-path", disk])
        self.assertGreater(server.json("POST", "/slots/1?action=restore", {"filename": "first"})["n_usable"], 0)
        self.assertEqual(server.stop(), 0, server.output.text())
        with open(os.path.join(disk, "first"), "rb") as file:
            self.assertEqual(file.read(), before)


if __name__ == "__main__":
    harness.main()
