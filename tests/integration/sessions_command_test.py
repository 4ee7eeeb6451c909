"""`strata sessions list|info|verify DIR`: what lies in a folder, without a server."""

import json
import os
import re

import harness
import index_file


class SessionsCommand(harness.StrataTest):
    @classmethod
    def setUpClass(cls):
        cls.path = os.path.join(harness.FOLDERS, "sessions_command")
        os.makedirs(cls.path, exist_ok=True)
        cls.addClassCleanup(harness.shutil.rmtree, cls.path, ignore_errors=True)
        model = harness.model_options("hybrid", 2)
        with harness.strata_process.Server(harness.BINARY, [*model, *harness.cache_options(cls.path)]) as server:
            for number in range(3):
                server.chat([{"role": "user", "content": harness.words(number, 300 + number)}], max_tokens=2, temperature=0)
        cls.indexes = index_file.published(cls.path)
        assert len(cls.indexes) == 3, os.listdir(cls.path)

    def json_of(self, command, *arguments):
        status, out, err = self.run_strata("sessions", command, self.path, *arguments, "--json")
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def test_list_names_each_conversation(self):
        status, out, err = self.run_strata("sessions", "list", self.path)
        self.assertEqual(status, 0, err)
        for identity, index in self.indexes.items():
            line = next(line for line in out.splitlines() if identity in line)
            self.assertIn(str(len(index.tokens)), line)

    def test_list_as_json_agrees_with_the_files(self):
        listed = self.json_of("list")
        entries = listed["conversations"] if isinstance(listed, dict) else listed
        self.assertEqual({e["id"]: e["tokens"] for e in entries}, {i: len(x.tokens) for i, x in self.indexes.items()})

    def test_info_prints_both_identities_id_3(self):
        for identity, index in self.indexes.items():
            status, out, err = self.run_strata("sessions", "info", self.path, identity)
            self.assertEqual(status, 0, err)
            self.assertGreaterEqual(len(set(re.findall(r"\b[0-9a-f]{32}\b", out))), 2, out)
            self.assertIn(str(len(index.tokens)), out)

    def test_info_without_a_conversation_shows_each(self):
        status, out, err = self.run_strata("sessions", "info", self.path)
        self.assertEqual(status, 0, err)
        for identity in self.indexes:
            self.assertIn(identity, out)

    def test_info_of_an_unknown_conversation(self):
        status, out, err = self.run_strata("sessions", "info", self.path, "00000000000000aa")
        self.assertNotEqual(status, 0)
        self.assertIn("00000000000000aa", out + err)

    def test_verify_reads_every_byte(self):
        status, out, err = self.run_strata("sessions", "verify", self.path)
        self.assertEqual(status, 0, out + err)
        self.json_of("verify")

    def test_a_folder_that_is_not_there(self):
        missing = os.path.join(self.path, "missing")
        for command in ("list", "info", "verify"):
            status, out, err = self.run_strata("sessions", command, missing)
            self.assertNotEqual(status, 0, command)
            self.assertIn(missing, out + err)
        self.assertFalse(os.path.exists(missing))

    def test_an_empty_folder(self):
        folder = self.folder()
        for command in ("list", "info", "verify"):
            status, out, err = self.run_strata("sessions", command, folder)
            self.assertEqual(status, 0, out + err)
        self.assertEqual(os.listdir(folder), [], "looking leaves nothing behind")

    def test_a_folder_in_use_can_be_listed(self):
        folder = self.folder()
        server = self.server(harness.model_options(), harness.cache_options(folder))
        status, out, err = self.run_strata("sessions", "list", folder)
        self.assertEqual(status, 0, out + err)
        self.ask_good(server)


if __name__ == "__main__":
    harness.main()
