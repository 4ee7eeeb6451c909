"""The engine is a child: its end is not the server's (SRV-1)."""

import os
import select
import signal
import threading
import time

import harness
import strata_process


class EngineDeath(harness.StrataTest):
    def setUp(self):
        self.path = self.folder()
        self.model = harness.model_options()
        self.cached = self.server(self.model, harness.cache_options(self.path))
        self.uncached = self.server(self.model, ["--conversation-cache-mib", 0])

    def kill_engine(self):
        engines = self.cached.engine_pids()
        self.assertEqual(len(engines), 1)
        os.kill(engines[0], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while self.cached.engine_pids() == engines:  # until the server has seen it; a request before that is in flight
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        return engines[0]

    def test_the_next_request_starts_a_new_engine(self):
        conversations = [harness.Conversation(f"{n}") for n in range(5)]
        for conversation in conversations:
            self.compare(self.cached, self.uncached, conversation)
        self.cached.wait_until_written()
        killed = self.kill_engine()
        reused = [self.compare(self.cached, self.uncached, conversation).reused for conversation in conversations]
        self.assertNotEqual(self.cached.engine_pids(), [killed])
        self.assertTrue(any(count > 400 for count in reused), f"nothing that was on disk came back: {reused}")

    def test_a_request_in_flight_ends_with_an_error_and_the_next_one_works(self):
        begun = threading.Event()
        seen = []

        def ask():
            body = {"messages": [{"role": "user", "content": harness.words("flight", 800)}], "max_tokens": 1000,
                    "stream": True, "temperature": 0}
            take = strata_process.Server._take_chunk

            def note(answer, chunk, started):
                begun.set()
                take(answer, chunk, started)

            self.cached._take_chunk = note
            try:
                seen.append(self.cached.complete("/v1/chat/completions", body).finish)
            except (AssertionError, OSError, strata_process.http.client.HTTPException) as error:
                seen.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        self.assertTrue(begun.wait(60))
        self.kill_engine()
        thread.join(60)
        self.assertFalse(thread.is_alive(), "the request never ended")
        self.assertNotIn(seen[0], ("stop", "length"), "a request of a dead engine cannot have a good end")
        del self.cached._take_chunk
        self.compare(self.cached, self.uncached, harness.Conversation("after"))

    def test_killed_again_and_again(self):
        conversation = harness.Conversation("again")
        for _ in range(4):
            self.compare(self.cached, self.uncached, conversation)
            self.kill_engine()
        self.compare(self.cached, self.uncached, conversation)

    def test_the_engine_ends_with_the_server(self):
        engine = self.cached.engine_pids()[0]
        self.cached.process.kill()
        self.cached.process.wait(10)
        self.assertTrue(wait_for_end(engine), "the engine outlived its server")


def wait_for_end(pid, seconds=30):
    """True when a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    harness.main()
