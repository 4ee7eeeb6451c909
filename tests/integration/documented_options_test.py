"""What the documents say about the command line is what the program knows."""

import re

import harness

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
OTHER_PROGRAMS = {"--preset", "--build"}  # of cmake, in the same documents
DOCUMENTS = ("README.md", "docs/http-api.md", "docs/engine-protocol.md", "docs/session-format.md", "docs/operations.md")


class DocumentedOptions(harness.StrataTest):
    def help_of(self, *command):
        status, out, err = self.run_strata(*command, "--help")
        self.assertEqual(status, 0, err)
        return set(OPTION.findall(out))

    def test_documented_options_exist(self):
        known = self.help_of("serve") | self.help_of("engine") | self.help_of("selftest") | self.help_of() | OTHER_PROGRAMS
        for command in ("list", "info", "verify", "gc", "export"):
            known |= self.help_of("sessions", command)
        for document in DOCUMENTS:
            with open(f"{harness.ROOT}/{document}", encoding="utf-8") as file:
                named = set(OPTION.findall(file.read()))
            self.assertEqual(named - known, set(), document)

    def test_the_engine_knows_what_the_server_hands_on(self):
        of_engine, of_server = self.help_of("engine"), self.help_of("serve")
        self.assertEqual(of_engine - of_server, set())
        self.assertIn("--conversation-disk-dir", of_engine)

    def test_version(self):
        status, out, _ = self.run_strata("--version")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"\d+\.\d+\.\d+")


if __name__ == "__main__":
    harness.main()
