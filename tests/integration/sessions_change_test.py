"""`strata sessions gc` and `export`: what they remove, keep and write of a real server's folder, and what they refuse."""

import json
import os
import shutil
import stat

import harness
import index_file
import strata_process


class SessionsChange(harness.StrataTest):
    @classmethod
    def setUpClass(cls):
        """A folder with three conversations; the second shares the beginning of the first."""
        cls.template = os.path.join(harness.FOLDERS, "sessions_change")
        shutil.rmtree(cls.template, ignore_errors=True)
        cls.addClassCleanup(shutil.rmtree, cls.template, ignore_errors=True)
        cls.model = harness.model_options("hybrid", 2)
        with strata_process.Server(harness.BINARY, [*cls.model, *harness.cache_options(cls.template)]) as server:
            system = {"role": "system", "content": harness.words("system", 300)}
            for number in range(3):
                user = {"role": "user", "content": harness.words(number, 200 + number)}
                server.chat([system, user], max_tokens=2, temperature=0)
        cls.indexes = index_file.published(cls.template)
        assert len(cls.indexes) == 3, os.listdir(cls.template)

    def setUp(self):
        self.path = self.folder()
        shutil.copytree(self.template, self.path, dirs_exist_ok=True, copy_function=shutil.copy2)

    def put(self, name, data):
        with open(os.path.join(self.path, name), "wb") as file:
            file.write(data)

    def gc(self, *options, status=0):
        got, out, err = self.run_strata("sessions", "gc", self.path, *options, "--json")
        self.assertEqual(got, status, out + err)
        return json.loads(out)

    # -- gc

    def test_gc_names_then_removes_what_is_useless(self):
        self.put("conv-00000000000000c1.idx.tmp", b"STRAINDX half")
        self.put("conv-00000000000000c2.sess", b"STRASESS of nobody")
        self.put("conv-00000000000000c3.idx.bad", b"STRAINDX bad")
        before = sorted(os.listdir(self.path))
        planned = self.gc("--dry-run")
        self.assertEqual(sorted(os.listdir(self.path)), before)
        self.assertEqual({i["file"]: i["reason"] for i in planned["remove"]},
                         {"conv-00000000000000c1.idx.tmp": "orphan", "conv-00000000000000c2.sess": "orphan",
                          "conv-00000000000000c3.idx.bad": "corrupt"})
        done = self.gc()
        self.assertEqual((done["removed_files"], done["removed_bytes"]), (3, planned["planned_bytes"]))
        self.assertEqual(index_file.published(self.path).keys(), self.indexes.keys())
        server = self.server(self.model, harness.cache_options(self.path))
        self.assert_says(server, r"took in 3 conversations \(.*\), refused 0")

    def test_gc_never_touches_what_is_not_ours(self):
        for name in ("conv-00000000000000c1.idx", "conv-00000000000000c2.sess", "conv-00000000000000c3.idx.bad", "notes"):
            self.put(name, b"somebody else's")
        self.put("conv-00000000000000c4.idx.tmp", b"")
        outside = os.path.join(self.folder(), "outside")
        with open(outside, "wb") as file:
            file.write(b"STRASESS far away")
        os.symlink(outside, os.path.join(self.path, "conv-00000000000000c5.sess"))
        os.symlink(outside, os.path.join(self.path, "conv-00000000000000c6.idx.bad"))
        os.link(outside, os.path.join(self.path, "conv-00000000000000c7.sess"))
        os.mkdir(os.path.join(self.path, "conv-00000000000000c8.idx"))
        before = sorted(os.listdir(self.path))
        self.assertEqual(self.gc()["remove"], [])
        self.assertEqual(sorted(os.listdir(self.path)), before)
        self.gc("--budget-mib", 0)
        left = {name for name in os.listdir(self.path)}
        self.assertEqual({n for n in left if n[5:21] in self.indexes}, set(), "every conversation is gone")
        self.assertEqual(left, {n for n in before if n[5:21] not in self.indexes}, "and nothing else")

    def test_gc_by_age_goes_by_the_last_use(self):
        self.assertEqual(self.gc("--dry-run", "--older-than", 1)["remove"], [])
        os.utime(os.path.join(self.path, f"conv-{next(iter(self.indexes))}.idx"), (0, 0))  # a file's time says nothing
        self.assertEqual(self.gc("--older-than", "90m")["remove"], [])

    def test_gc_refuses_the_folder_of_a_running_server(self):
        server = self.server(self.model, harness.cache_options(self.path))
        for options in ([], ["--dry-run"]):
            status, out, err = self.run_strata("sessions", "gc", self.path, *options)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(f"{self.path} is in use by another process", err)
            self.assertEqual(len(err.splitlines()), 1)
        self.ask_good(server)
        server.stop()
        self.gc()

    def test_gc_wrong_use(self):
        for options in (["--older-than", "soon"], ["--older-than", 0], ["--budget-mib", -1], ["--budget-mib", "all"]):
            status, _, err = self.run_strata("sessions", "gc", self.path, *options)
            self.assertEqual((status, len(err.splitlines())), (2, 1), err)
            self.assertIn(options[0], err)
        status, _, err = self.run_strata("sessions", "gc", os.path.join(self.path, "missing"))
        self.assertEqual((status, len(err.splitlines())), (1, 1), err)

    def test_gc_of_a_folder_that_is_not_ours_leaves_no_trace(self):
        folder = self.folder()
        with open(os.path.join(folder, "letter"), "w", encoding="ascii") as file:
            file.write("dear")
        status, out, err = self.run_strata("sessions", "gc", folder, "--budget-mib", 0)
        self.assertEqual(status, 0, out + err)
        self.assertEqual(os.listdir(folder), ["letter"])

    # -- export

    def export(self, identity, target, *options):
        return self.run_strata("sessions", "export", self.path, identity, target, *options)

    def test_export_stands_alone(self):
        inherited = 0
        out_folder = self.folder()
        for identity, index in self.indexes.items():
            target = os.path.join(out_folder, f"{identity}.sess")
            status, out, err = self.export(identity, target, "--json")
            self.assertEqual(status, 0, err)
            report = json.loads(out)
            inherited += report["inherited_parts"]
            self.assertEqual((report["id"], report["tokens"]), (identity, len(index.tokens)))
            self.assertEqual(report["bytes"], os.path.getsize(target))
            self.assertEqual(stat.S_IMODE(os.stat(target).st_mode), 0o600)
        self.assertGreater(inherited, 0, "nothing was shared: the test shows less than it should")
        shutil.rmtree(self.path)
        for identity, index in self.indexes.items():
            target = os.path.join(out_folder, f"{identity}.sess")
            status, out, err = self.run_strata("sessions", "verify", target, "--json")
            self.assertEqual(status, 0, out + err)
            self.assertEqual(json.loads(out)["bad"], 0)
            status, out, err = self.run_strata("sessions", "info", target)
            self.assertEqual(status, 0, out + err)
            self.assertIn(identity, out)
        self.assertEqual(sorted(os.listdir(out_folder)), sorted(f"{i}.sess" for i in self.indexes))

    def test_export_follows_the_documented_bytes(self):
        """Read as docs/session-format.md says, not by the program."""
        identity, index = next(iter(self.indexes.items()))
        target = os.path.join(self.path, "one.sess")
        self.assertEqual(self.export(identity, target)[0], 0)
        with open(target, "rb") as file:
            data = file.read()
        self.assertEqual((data[:8], int.from_bytes(data[8:12], "little"), data[16]), (b"STRASESS", 1, 1))
        trailer = data[-64:]
        self.assertEqual((trailer[32:40], trailer[40:]), (b"STRAEND\x01", bytes(24)))
        offset, length = (int.from_bytes(trailer[at:at + 8], "little") for at in (0, 8))
        self.assertEqual((offset % 4096, offset + length + 64), (0, len(data)))
        saved = index_file.parse(data[offset:offset + length])
        self.assertEqual(saved.tokens, index.tokens)
        self.assertEqual([file for file, _ in saved.files], [identity])
        self.assertTrue(all(part.file == 0 for part in saved.blocks + saved.checkpoints))

    def test_export_from_a_running_server(self):
        server = self.server(self.model, harness.cache_options(self.path))
        target = os.path.join(self.folder(), "one.sess")
        status, _, err = self.export(next(iter(self.indexes)), target)
        self.assertEqual(status, 0, err)
        self.assertEqual(self.run_strata("sessions", "verify", target)[0], 0)
        self.ask_good(server)

    def test_a_saved_session_is_never_the_folders_own(self):
        """Beside the conversations: a start neither takes it in nor removes it, and gc leaves it."""
        self.assertEqual(self.export(next(iter(self.indexes)), os.path.join(self.path, "kept.sess"))[0], 0)
        self.gc("--budget-mib", 0)
        server = self.server(self.model, harness.cache_options(self.path))
        self.assert_says(server, r"took in 0 conversations")
        self.assertEqual(server.stop(), 0)
        self.assertIn("kept.sess", os.listdir(self.path))

    def test_export_refusals(self):
        identity = next(iter(self.indexes))
        folder = self.folder()
        there = os.path.join(folder, "there.sess")
        with open(there, "wb") as file:
            file.write(b"precious")
        link = os.path.join(folder, "link.sess")
        os.symlink(there, link)
        for target, options, why in ((there, [], "--force"), (link, ["--force"], "not a regular file"),
                                     (folder, ["--force"], "not a regular file"),
                                     (os.path.join(self.path, "LOCK"), ["--force"], "conversation folder"),
                                     (os.path.join(self.path, f"conv-{identity}.sess"), ["--force"], "conversation folder")):
            status, _, err = self.export(identity, target, *options)
            self.assertEqual((status, len(err.splitlines())), (2, 1), err)
            self.assertIn(why, err)
        with open(there, "rb") as file:
            self.assertEqual(file.read(), b"precious")
        self.assertEqual(self.export(identity, os.path.join(folder, "no", "such.sess"))[0], 1)
        self.assertEqual(self.export("00000000000000ff", os.path.join(folder, "x.sess"))[0], 1)
        self.assertEqual(self.export("../../etc/passwd", os.path.join(folder, "x.sess"))[0], 2)
        self.assertEqual(self.export(identity, there, "--force")[0], 0)
        self.assertEqual(sorted(os.listdir(folder)), ["link.sess", "there.sess"])

    def test_export_of_damaged_data(self):
        identity, index = next(iter(self.indexes.items()))
        part = index.blocks[0]
        name = f"conv-{index.files[part.file][0]}.sess"
        with open(os.path.join(self.path, name), "r+b") as file:
            file.seek(part.offset)
            byte = file.read(1)
            file.seek(part.offset)
            file.write(bytes([byte[0] ^ 1]))
        target = os.path.join(self.folder(), "one.sess")
        status, _, err = self.export(identity, target)
        self.assertEqual((status, len(err.splitlines())), (1, 1), err)
        self.assertIn(name, err)
        self.assertEqual(os.listdir(os.path.dirname(target)), [])

    def test_a_saved_session_that_is_damaged_is_found(self):
        identity = next(iter(self.indexes))
        target = os.path.join(self.folder(), "one.sess")
        self.assertEqual(self.export(identity, target)[0], 0)
        with open(target, "rb") as file:
            data = file.read()
        manifest_at = int.from_bytes(data[-64:-56], "little")
        for position in (9, 40, 4096, manifest_at + 3, manifest_at + 400, len(data) - 70, len(data) - 30):
            with open(target, "wb") as file:
                file.write(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1:])
            self.assertEqual(self.run_strata("sessions", "verify", target)[0], 1, f"byte {position}")
        for length in (0, 100, 4096, manifest_at, len(data) - 1):
            with open(target, "wb") as file:
                file.write(data[:length])
            self.assertEqual(self.run_strata("sessions", "verify", target)[0], 1, f"cut to {length}")


if __name__ == "__main__":
    harness.main()
