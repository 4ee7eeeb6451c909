"""SIGTERM and Ctrl+C in persist mode (DISK-7): what was parked and what lives in slots is on disk afterwards."""

import os
import signal
import threading

import harness
import index_file


class Shutdown(harness.StrataTest):
    def setUp(self):
        self.path = self.folder()
        self.target = self.server(harness.model_options(), harness.cache_options(self.path, ram_mib=8))

    def talk(self, count):
        for number in range(count):
            self.target.chat([{"role": "user", "content": harness.words(number, 400)}], max_tokens=2, temperature=0)

    def test_sigterm_says_how_many_and_how_long(self):
        self.talk(4)
        before = len(self.target.output.lines)
        self.assertEqual(self.target.stop(), 0)
        said = "\n".join(self.target.output.lines[before:])
        self.assertRegex(said, r"4 conversations")
        self.assertRegex(said, r"\d (ms|s)\b")
        self.assertEqual(len(index_file.published(self.path)), 4)

    def test_sigterm_during_an_answer(self):
        """The request ends, the server drains and goes."""
        started = threading.Event()

        def ask():
            connection = self.target.connect(60)
            body = harness.strata_process.json.dumps({
                "messages": [{"role": "user", "content": harness.words("long answer", 300)}], "stream": True,
                "max_tokens": 1500, "temperature": 0})
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.readline()
            started.set()
            try:
                response.read()
            except (OSError, harness.strata_process.http.client.HTTPException):
                pass  # the stream was cut: the server is going
            connection.close()

        self.talk(2)
        thread = threading.Thread(target=ask)
        thread.start()
        self.assertTrue(started.wait(60))
        self.assertEqual(self.target.stop(), 0, self.target.output.text())
        thread.join(60)
        self.assertGreaterEqual(len(index_file.published(self.path)), 2)

    def test_a_second_ctrl_c_ends_at_once(self):
        self.talk(3)
        os.killpg(self.target.process.pid, signal.SIGINT)
        try:
            os.killpg(self.target.process.pid, signal.SIGINT)
        except ProcessLookupError:
            pass  # it was that quick
        self.target._reap(20)
        again = self.server(harness.model_options(), harness.cache_options(self.path, ram_mib=8))
        self.ask_good(again)

    def test_sigterm_with_nothing_to_write(self):
        self.assertEqual(self.target.stop(), 0, self.target.output.text())
        self.assertEqual(index_file.published(self.path), {})

    def test_the_folder_is_free_afterwards(self):
        self.talk(1)
        self.assertEqual(self.target.stop(), 0)
        self.ask_good(self.server(harness.model_options(), harness.cache_options(self.path)))


class EngineOnTheLineProtocol(harness.StrataTest):
    """The engine alone: QUIT and the end of its input."""

    def engine(self, folder):
        engine = harness.strata_process.Engine(harness.BINARY, [*harness.model_options(), *harness.cache_options(folder)]).start()
        self.addCleanup(engine.kill)
        return engine

    def tokens(self, seed):
        return list(harness.words(seed, 400).encode())

    def test_quit_drains_and_says_bye(self):
        folder = self.folder()
        engine = self.engine(folder)
        for seed in range(4):
            self.assertIsNone(engine.generate(self.tokens(seed)).error)
        self.assertEqual(engine.quit(), 0, engine.log.text())
        self.assertEqual(engine.output.lines[-1], "BYE")
        self.assertTrue(any(line.startswith("DRAIN ") for line in engine.output.lines), engine.output.lines[-5:])
        self.assertEqual(len(index_file.published(folder)), 4)

    def test_the_end_of_input_is_a_quit(self):
        folder = self.folder()
        engine = self.engine(folder)
        engine.generate(self.tokens(1))
        engine.process.stdin.close()
        self.assertEqual(engine.process.wait(60), 0, engine.log.text())
        self.assertEqual(len(index_file.published(folder)), 1)

    def test_sigint_does_not_end_it_because_it_shares_the_servers_group(self):
        engine = self.engine(self.folder())
        os.kill(engine.process.pid, signal.SIGINT)
        self.assertIsNone(engine.generate(self.tokens(2)).error)
        self.assertEqual(engine.quit(), 0)

    def test_an_unknown_key_is_an_error_of_that_request(self):
        engine = self.engine(self.folder())
        self.assertIsNotNone(engine.generate(self.tokens(3), flavour="sweet").error)
        self.assertIsNone(engine.generate(self.tokens(3)).error)


if __name__ == "__main__":
    harness.main()
