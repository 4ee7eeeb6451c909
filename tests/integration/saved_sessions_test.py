"""SES-1 to SES-7 on the line protocol of real engine processes: a conversation saved by name goes on exactly in another slot and
in another process, other slots go on meanwhile, and what is refused leaves everything as it was."""

import os
import random
import signal
import stat

import harness
from strata_process import Engine

NO_FLOORS = ["--session-min-free-mib", 1, "--conversation-cache-min-free-mib", 64]


def tokens(seed, count):
    source = random.Random(seed)
    return [source.randrange(32, 122) for _ in range(count)]


class SavedSessions(harness.StrataTest):
    def engine(self, *groups):
        engine = Engine(harness.BINARY, [o for group in groups for o in group]).start()
        self.addCleanup(engine.kill)
        return engine

    def act(self, engine, line):
        """The lines of a slot action, its last one split into words."""
        begin = engine._read_to
        engine.send(line)
        index, last = engine.output.wait_for(
            lambda text: text.split(" ", 1)[0] in ("SAVED", "RESTORED", "ERASED", "SERR", "FATAL"), 120, begin)
        lines = engine.output.lines[begin:index]
        engine._read_to = index + 1
        progress = [tuple(map(int, text.split()[1:])) for text in lines if text.startswith("SESSION ")]
        return engine.output.lines[index].split(" ", 3), progress

    def assert_saved(self, engine, slot, path):
        answer, progress = self.act(engine, f"SAVE slot={slot} {path}")
        self.assertEqual(answer[0], "SAVED", answer)
        self.assertEqual(os.stat(path).st_size, int(answer[2]))
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(progress[0][0], 0)
        self.assertEqual(progress[-1][0], progress[-1][1])
        return int(answer[1])

    def assert_refused(self, engine, line, kind):
        answer, _ = self.act(engine, line)
        self.assertEqual(answer[:3], ["SERR", kind, "0"], answer)

    def test_goes_on_exactly_in_another_slot_and_in_another_process(self):
        for options in ({"layout": "attention"}, {"layout": "sliding"}, {"layout": "hybrid", "stages": 2}, {"layout": "hybrid", "state": "whole"}):
            with self.subTest(**options):
                model = harness.model_options(**options)
                path = os.path.join(self.folder(), "new", "my chat.sess")
                prompt = tokens("prompt", 300)
                uncached = self.engine(model)
                first = self.engine(model, NO_FLOORS)
                answer = first.generate(prompt, slot=0)
                follow = prompt + answer.tokens + tokens("more", 20)
                expected = uncached.generate(follow, logprobs=3, cache=0, slot=0)
                saved = self.assert_saved(first, 0, path)
                self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
                for engine, slot in ((first, 1), (self.engine(model, NO_FLOORS), 0)):
                    restored, _ = self.act(engine, f"RESTORE slot={slot} {path}")
                    self.assertEqual(restored[:2], ["RESTORED", str(saved)], restored)
                    again = engine.generate(follow, logprobs=3, slot=slot)
                    self.assertEqual((again.reused, again.tier), (saved, "vram"))
                    self.assertEqual(again.content, expected.content)
                status, out, _ = self.run_strata("sessions", "verify", path)
                self.assertEqual(status, 0, out)

    def test_other_slots_go_on_while_one_is_saved(self):
        model = ["--model", "synthetic", "--slots", 2, "--context", 16384, "--model-option", "layers=16"]
        engine = self.engine(model, NO_FLOORS)
        path = os.path.join(self.folder(), "large.sess")
        engine.generate(tokens("large", 12000), maximum=1, slot=1, ignore_end=1)
        engine.send(f"GEN 900 max=8000 ignore_end=1 slot=0 tokens={','.join(map(str, tokens('other', 64)))}")
        engine._next(lambda text: text.startswith("T 900 "), 60)
        begin = engine._read_to
        engine.send(f"SAVE slot=1 {path}")
        end, _ = engine.output.wait_for(lambda text: text.startswith(("SAVED ", "SERR ")), 120, begin)
        lines = engine.output.lines[begin:end + 1]
        self.assertTrue(lines[-1].startswith("SAVED "), lines[-1])
        start = next(i for i, text in enumerate(lines) if text.startswith("SESSION 0 "))
        between = [text for text in lines[start:] if text.startswith("T 900 ")]
        self.assertGreater(os.stat(path).st_size, 50 << 20)
        self.assertGreater(len(between), 10, "tokens came while the other slot was saved")

    def test_what_is_refused_leaves_slot_and_file_as_they_were(self):
        model = harness.model_options()
        engine = self.engine(model, NO_FLOORS)
        folder = self.folder()
        path = os.path.join(folder, "chat.sess")
        prompt = tokens("active", 200)
        answer = engine.generate(prompt, slot=0)
        self.assert_saved(engine, 0, path)
        with open(path, "rb") as file:
            good = file.read()
        damaged = os.path.join(folder, "damaged.sess")
        for place in (4, 5000, len(good) // 2, len(good) - 10):
            with open(damaged, "wb") as file:
                file.write(good[:place] + bytes([good[place] ^ 255]) + good[place + 1:])
            self.assert_refused(engine, f"RESTORE {damaged}", "invalid")
        with open(damaged, "wb") as file:
            file.write(good[:-1000])
        self.assert_refused(engine, f"RESTORE {damaged}", "invalid")
        os.symlink(path, os.path.join(folder, "link"))
        os.mkfifo(os.path.join(folder, "pipe"))
        os.mkdir(os.path.join(folder, "folder"))
        for name in ("link", "pipe", "folder", "none"):
            self.assert_refused(engine, f"RESTORE {os.path.join(folder, name)}", "invalid")
        for name in ("link", "pipe", "folder", "LOCK"):
            self.assert_refused(engine, f"SAVE {os.path.join(folder, name)}", "invalid")
        os.link(path, os.path.join(folder, "second"))
        self.assert_refused(engine, f"RESTORE {path}", "invalid")
        self.assert_refused(engine, f"SAVE slot=1 {path}", "invalid")
        self.assert_refused(engine, "ERASE slot=7", "invalid")
        other = self.engine(harness.model_options(layout="sliding"), NO_FLOORS)
        os.remove(os.path.join(folder, "second"))
        self.assert_refused(other, f"RESTORE {path}", "invalid")
        more = engine.generate(prompt + answer.tokens + tokens("more", 9), slot=0)
        self.assertEqual((more.reused, more.tier), (len(prompt) + len(answer.tokens) - 1, "vram"))
        with open(path, "rb") as file:
            self.assertEqual(file.read(), good)
        self.assertEqual([name for name in os.listdir(folder) if name.startswith(".")], [])

    def test_too_little_room_is_storage(self):
        engine = self.engine(harness.model_options(), ["--session-min-free-mib", 1 << 30])
        engine.generate(tokens("a", 50), slot=0)
        self.assert_refused(engine, f"SAVE {os.path.join(self.folder(), 'x')}", "storage")

    def test_too_little_ram_is_memory(self):
        engine = self.engine(harness.model_options(), ["--conversation-cache-min-free-mib", 1 << 30])
        engine.generate(tokens("a", 50), slot=0)
        self.assert_refused(engine, f"SAVE {os.path.join(self.folder(), 'x')}", "memory")

    def test_an_engine_that_is_killed_while_it_saves_leaves_the_old_file(self):
        model = ["--model", "synthetic", "--slots", 1, "--context", 16384, "--model-option", "layers=16"]
        folder = self.folder()
        path = os.path.join(folder, "large.sess")
        engine = self.engine(model, NO_FLOORS)
        answer = engine.generate(tokens("large", 2000), maximum=1, slot=0, ignore_end=1)
        saved = self.assert_saved(engine, 0, path)
        with open(path, "rb") as file:
            good = file.read()
        engine.generate(tokens("large", 2000) + answer.tokens + tokens("more", 10000), maximum=1, slot=0, ignore_end=1)
        engine.send(f"SAVE {path}")
        engine._next(lambda text: text.startswith("SESSION ") and not text.startswith("SESSION 0 "), 60)
        os.kill(engine.process.pid, signal.SIGKILL)
        engine.process.wait(30)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), good)
        restored, _ = self.act(self.engine(model, NO_FLOORS), f"RESTORE {path}")
        self.assertEqual(restored[:2], ["RESTORED", str(saved)])

    def test_quit_while_it_saves_removes_what_was_begun(self):
        model = ["--model", "synthetic", "--slots", 1, "--context", 16384, "--model-option", "layers=16"]
        folder = self.folder()
        engine = self.engine(model, NO_FLOORS)
        engine.generate(tokens("large", 12000), maximum=1, slot=0, ignore_end=1)
        engine.send(f"SAVE {os.path.join(folder, 'x.sess')}")
        self.assertEqual(engine.quit(), 0)
        answers = [text for text in engine.output.lines if text.startswith(("SAVED ", "SERR "))]
        self.assertEqual(len(answers), 1)
        self.assertEqual(os.listdir(folder), ["x.sess"] if answers[0].startswith("SAVED") else [])


if __name__ == "__main__":
    harness.main()
