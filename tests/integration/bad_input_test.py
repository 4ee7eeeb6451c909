"""Bad input: each gets one clear line or the status of docs/http-api.md, and nothing is lost."""

import json
import os
import socket

import harness


class CommandLine(harness.StrataTest):
    """Exit status 2 and one line that names the option; nothing started, no folder touched."""

    def refused(self, *arguments, naming):
        status, out, err = self.run_strata(*arguments)
        self.assertEqual(status, 2, out + err)
        lines = [line for line in err.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, err)
        self.assertIn(naming, lines[0])

    def test_an_unknown_option(self):
        folder = os.path.join(self.folder(), "new")
        self.refused("serve", "--conversation-disk-dir", folder, "--conversation-cach-mib", 5, naming="--conversation-cach-mib")
        self.assertFalse(os.path.exists(folder))

    def test_an_unknown_command(self):
        self.refused("serv", naming="serv")

    def test_values_out_of_range(self):
        for option, value in (("--slots", 0), ("--slots", "many"), ("--port", 70000), ("--conversation-cache-mib", -1),
                              ("--conversation-disk-foreign", "maybe"), ("--io", "tape")):
            with self.subTest(option=option, value=value):
                self.refused("serve", f"{option}={value}", naming=option)

    def test_the_same_for_the_environment(self):
        os.environ["STRATA_SLOTS"] = "none"
        self.addCleanup(os.environ.pop, "STRATA_SLOTS", None)
        status, _, err = self.run_strata("serve")
        self.assertEqual(status, 2, err)

    def refused_at_start(self, *arguments, naming):
        """Options are fine, but it cannot work: exit status not 0 in a moment, with a line that names what is wrong."""
        status, out, err = self.run_strata(*arguments)
        self.assertNotEqual(status, 0, out + err)
        self.assertIn(naming, out + err)

    def test_a_folder_that_cannot_be_written(self):
        parent = self.folder()
        file = os.path.join(parent, "file")
        with open(file, "w", encoding="ascii") as out:
            out.write("mine")
        for folder in (file, os.path.join(file, "below"), "/proc/strata"):
            with self.subTest(folder=folder):
                self.refused_at_start("serve", "--port", 0, *harness.model_options(), *harness.cache_options(folder), naming=folder)
        with open(file, encoding="ascii") as text:
            self.assertEqual(text.read(), "mine")

    def test_an_unknown_model_option_value(self):
        self.refused_at_start("serve", "--port", 0, "--model-option", "layout=round", naming="layout")

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refused_at_start("serve", *harness.model_options(), "--conversation-cache-mib", 1, "--port", port, naming=str(port))


class Requests(harness.StrataTest):
    """One server for all: whatever comes in, it goes on, and what was parked stays parked."""

    @classmethod
    def setUpClass(cls):
        cls.target = harness.strata_process.Server(
            harness.BINARY, [*harness.model_options(), *harness.cache_options(ram_mib=8), "--max-body-mib", 1]).start()
        cls.addClassCleanup(cls.target.kill)

    def setUp(self):
        self.kept = [{"role": "user", "content": harness.words("kept", 300)}]
        self.target.chat(self.kept, max_tokens=2, temperature=0)

    def tearDown(self):
        again = self.target.chat(self.kept, max_tokens=2, temperature=0)
        self.assertGreater(again.reused, 280, again.timings)

    def refused(self, status, kind, method="POST", path="/v1/chat/completions", body=None, headers=None):
        response = self.target.request(method, path, body, headers)
        self.assertEqual(response.status, status, response.body[:300])
        error = json.loads(response.body)["error"]
        self.assertEqual((error["code"], error["type"]), (status, kind), error)
        self.assertTrue(error["message"])
        return error

    def test_malformed_json(self):
        for body in (b"", b"{", b"[1,2", b"nothing", b'{"messages":[}', b"\xff\xfe", b'{"messages":[],}', b"[" * 5000):
            with self.subTest(body=body[:20]):
                self.refused(400, "invalid_request_error", body=body)

    def test_missing_and_wrongly_typed_keys(self):
        good = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        for change in ({"messages": None}, {"messages": "hello"}, {"messages": []}, {"messages": [1]},
                       {"messages": [{"role": "user"}]}, {"messages": [{"content": "x"}]}, {"messages": [{"role": 1, "content": "x"}]},
                       {"messages": [{"role": "user", "content": 7}]}, {"max_tokens": "many"}, {"max_tokens": -5},
                       {"max_tokens": 1.5}, {"temperature": "hot"}, {"stream": "yes"}, {"top_p": []}, {"stop": 5},
                       {"stop": [1]}, {"seed": "x"}, {"n": 2}, {"logprobs": "no"}, {"stream_options": 1},
                       {"id_slot": "first"}, {"cache_prompt": "sure"}):
            with self.subTest(change=change):
                body = {**good, **change}
                if change == {"messages": None}:
                    del body["messages"]
                self.refused(400, "invalid_request_error", body=body)

    def test_a_prompt_longer_than_the_context(self):
        text = harness.words("long", harness.CONTEXT + 50)
        error = self.refused(400, "exceed_context_size_error", body={"messages": [{"role": "user", "content": text}]})
        self.assertEqual(error["n_ctx"], harness.CONTEXT)
        self.assertGreater(error["n_prompt_tokens"], harness.CONTEXT)

    def test_a_body_over_the_limit(self):
        body = json.dumps({"messages": [{"role": "user", "content": "x" * (3 << 19)}]}).encode()
        try:
            response = self.target.request("POST", "/v1/chat/completions", body)
        except (BrokenPipeError, ConnectionResetError):
            return  # refused while it was still being sent
        self.assertEqual(response.status, 413)

    def test_a_chunked_body_over_the_limit(self):
        """A length that is not announced is counted too."""
        connection = self.target.connect(30)
        self.addCleanup(connection.close)
        chunks = (b"x" * 65536 for _ in range(32))
        try:
            connection.request("POST", "/v1/chat/completions", body=chunks, headers={"Content-Type": "application/json"},
                               encode_chunked=True)
            self.assertEqual(connection.getresponse().status, 413)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def test_headers_over_the_limit(self):
        try:
            status = self.target.request("GET", "/health", headers={"X-Long": "y" * (256 << 10)}).status
        except (BrokenPipeError, ConnectionResetError):
            return
        self.assertEqual(status, 431)

    def test_an_unknown_slot(self):
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        for slot in (harness.SLOTS, 99, -2):
            with self.subTest(slot=slot):
                self.refused(400, "invalid_request_error", body={**body, "id_slot": slot})

    def test_unknown_paths_methods_and_media(self):
        body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
        self.refused(404, "not_found_error", method="GET", path="/v2/nothing")
        self.assertEqual(self.target.request("GET", "/v1/chat/completions").status, 405)
        self.assertEqual(self.target.request("DELETE", "/health").status, 405)
        self.assertEqual(self.target.request("POST", "/v1/chat/completions", body, {"Content-Type": "text/plain"}).status, 415)

    def test_a_foreign_host(self):
        """DNS rebinding: a page of somebody else's name that points here (SRV-3)."""
        self.assertEqual(self.target.request("GET", "/v1/models", headers={"Host": "evil.example"}).status, 403)

    def test_tools_without_a_model_that_knows_them(self):
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1,
                "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]}
        self.refused(501, "not_supported_error", body=body)

    def test_a_client_that_goes_away(self):
        """What was read stays; the server goes on."""
        body = json.dumps({"messages": [{"role": "user", "content": harness.words("gone", 1500)}], "max_tokens": 400,
                           "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", self.target.port), 30) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            self.assertTrue(client.recv(16))
        self.ask_good(self.target)

    def test_half_a_request(self):
        with socket.create_connection(("127.0.0.1", self.target.port), 30) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        self.ask_good(self.target)

    def test_no_http_at_all(self):
        with socket.create_connection(("127.0.0.1", self.target.port), 30) as client:
            client.sendall(bytes(range(256)) * 4)
        self.ask_good(self.target)


class SmallBudgets(harness.StrataTest):
    def test_a_budget_smaller_than_one_conversation_is_said(self):
        """Nothing is switched off silently (OBS-2, lesson 7)."""
        server = self.server(harness.model_options(), harness.cache_options(ram_mib=1))
        self.assert_says(server, r"(?i)\b1(\.0)? MiB.*\b2(\.0)? MiB|\b2(\.0)? MiB.*\b1(\.0)? MiB")
        uncached = self.server(harness.model_options(), ["--conversation-cache-mib", 0])
        large = [harness.Conversation(f"large {n}", size=1500) for n in range(3)]
        for conversation in large:
            self.compare(server, uncached, conversation)
        answer = self.compare(server, uncached, large[0])
        self.assertEqual(answer.reason, "too_large", answer.timings)
        skips = {k: v for k, v in server.metrics().items() if k.startswith("strata_skips_total")}
        self.assertTrue(any("too_large" in k and v > 0 for k, v in skips.items()), skips)

    def test_a_disk_budget_smaller_than_one_conversation(self):
        folder = self.folder()
        server = self.server(harness.model_options(), harness.cache_options(folder, conversation_disk_mib=1))
        uncached = self.server(harness.model_options(), ["--conversation-cache-mib", 0])
        for conversation in [harness.Conversation(f"large {n}", size=1500) for n in range(4)]:
            self.compare(server, uncached, conversation)
        server.wait_until_written()
        used = sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))
        self.assertLessEqual(used, (1 << 20) + 8192)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    harness.main()
