"""Bad models: each is refused at start with one clear line, or its requests get a 400 and the server stays up."""

import json
import os
import re

import gguf_file
import harness
import real_model

LOADING = re.compile("^strata: loading the model")


class AtStart(harness.StrataTest):
    """Exit status 1 (2 for options out of range), nothing announced, the reason once."""

    @classmethod
    def setUpClass(cls):
        cls.model = real_model.tiny("llama")

    def refused(self, *options, saying, status=1):
        got, out, err = self.run_strata("serve", "--port", 0, "--conversation-cache-mib", 16, *options)
        self.assertEqual((got, out), (status, ""), err)
        lines = [line for line in err.splitlines() if line and not LOADING.match(line)]
        self.assertRegex(lines[-1], saying)
        self.assertEqual(len([line for line in lines if re.search(saying, line)]), 1, err)
        return lines

    def file(self, name, content):
        path = os.path.join(self.folder(), name)
        with open(path, "wb") as out:
            out.write(content)
        return path

    def content(self):
        with open(self.model, "rb") as file:
            return file.read()

    def one_line(self, *options, saying, **keys):
        self.assertEqual(len(self.refused(*options, saying=saying, **keys)), 1)

    def test_files_that_are_no_gguf(self):
        for name, content in (("text.gguf", b"a letter to my aunt\n"), ("empty.gguf", b"")):
            with self.subTest(name=name):
                self.one_line("--model", self.file(name, content), saying=f"{name}: not a GGUF file")
        self.one_line("--model", os.path.join(self.folder(), "none.gguf"), saying="none.gguf: No such file")

    def test_cut_files(self):
        whole = self.content()
        for size in (len(whole) // 2, 500, 4):
            with self.subTest(size=size):
                self.one_line("--model", self.file("cut.gguf", whole[:size]), saying="model file .*cut.gguf: ")

    def test_in_deep_folders_the_files_name_and_the_whole_reason_are_told(self):
        deep = os.path.join(self.folder(), *["a" * 80] * 3)
        os.makedirs(deep)
        content = {"text.gguf": b"a letter to my aunt\n", "cut.gguf": self.content()[: len(self.content()) // 2],
                   "adapter.gguf": gguf_file.adapter("llama")}
        for name, bytes_of in content.items():
            with open(os.path.join(deep, name), "wb") as out:
                out.write(bytes_of)
        self.one_line("--model", os.path.join(deep, "text.gguf"), saying=r"model file \.\.\.a.*a/text\.gguf: not a GGUF file$")
        self.one_line("--model", os.path.join(deep, "none.gguf"), saying=r"a/none\.gguf: No such file or directory$")
        self.one_line("--model", os.path.join(deep, "cut.gguf"),
                      saying=r"model file \.\.\.a.*a/cut\.gguf: .* not within the file bounds, model is corrupted or incomplete$")
        self.one_line("--model", self.model, "--model-option", f"lora={os.path.join(deep, 'adapter.gguf')}",
                      saying=r"adapter \.\.\.a.*a/adapter\.gguf: .*'blk.0.attn_q.weight' has incorrect shape .*\)$")

    def test_weights_that_do_not_fit_into_memory(self):
        path = self.file("large.gguf", self.content())
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        os.truncate(path, memory + (1 << 30))  # a hole
        self.one_line("--model", path, saying=r"model file .*: \d+ MiB of weights do not fit into \d+ MiB of memory")

    def test_contexts_that_do_not_fit_into_memory(self):
        self.one_line("--model", self.model, "--context", 1 << 24, "--slots", 64,
                      saying=r"64 slots of 16777216 tokens need \d+ MiB, \d+ MiB are available; see --context")
        self.one_line("--model", self.model, "--context", (1 << 24) + 1, saying="--context", status=2)

    def test_adapters_that_are_not_this_models(self):
        self.one_line("--model", self.model, "--model-option", "lora=/nowhere/x.gguf", saying="adapter /nowhere/x.gguf: No such file")
        self.one_line("--model", self.model, "--model-option", f"lora={self.model}", saying=r"adapter /.*tiny-llama\.gguf: ")
        for architecture, why in (("gemma3", "mismatch"), ("llama", "blk.0.attn_q.weight")):  # another kind, other sizes
            with self.subTest(architecture=architecture):
                path = self.file("a.gguf", gguf_file.adapter(architecture))
                self.one_line("--model", self.model, "--model-option", f"lora={path}", saying=rf"adapter .*/a\.gguf: .*{why}")

    def test_unknown_cache_types(self):
        self.one_line("--model", self.model, "--model-option", "cache_type_k=q3", saying='option cache_type_k: "q3" is none of f32')

    def test_a_context_beyond_learned_positions(self):
        gpt2, why = real_model.tiny("gpt2"), "^strata: --context 257: this model's context ends at 256 tokens$"
        self.one_line("--model", gpt2, "--context", 257, saying=why)
        status, out, err = self.run_strata("selftest", "--model", gpt2, "--context", 257)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err.rstrip("\n"), why)


class LearnedPositions(harness.StrataTest):
    def test_what_is_too_long_is_refused_before_the_library_sees_it(self):
        server = self.server(["--model", real_model.tiny("gpt2"), "--slots", 1], harness.cache_options(ram_mib=16))
        body = {"prompt": [1 + n % 100 for n in range(256)], "n_predict": 1}
        error = server.json("POST", "/completion", body, status=400)["error"]
        self.assertEqual((error["type"], error["n_prompt_tokens"], error["n_ctx"]), ("exceed_context_size_error", 256, 256))
        answer = server.json("POST", "/completion", {"prompt": body["prompt"][:250], "n_predict": 100, "ignore_eos": True})
        self.assertEqual((answer["tokens_predicted"], answer["stop_type"]), (6, "limit"))


class Requests(harness.StrataTest):
    def chat(self, server, status):
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        return server.json("POST", "/v1/chat/completions", body, status=status)

    def test_a_template_that_fails_is_a_400(self):
        with open(real_model.tiny("llama"), "rb") as file:
            model = gguf_file.with_key(file.read(), "tokenizer.chat_template", "{{ raise_exception('takes no messages') }}")
        path = os.path.join(self.folder(), "failing.gguf")
        with open(path, "wb") as out:
            out.write(model)
        server = self.server(["--model", path, "--slots", 1], harness.cache_options(ram_mib=16))
        for _ in range(2):
            error = self.chat(server, 400)["error"]
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertNotIn("\n", error["message"])
            self.assertRegex(error["message"], r"^model: chat format: chat: .*: takes no messages$")
        self.assertEqual(server.request("POST", "/apply-template", {"messages": [{"role": "user", "content": "x"}]}).status, 400)
        answer = server.json("POST", "/completion", {"prompt": [1, 2, 3], "n_predict": 2, "ignore_eos": True})
        self.assertEqual(answer["tokens_predicted"], 2)

    def test_a_grammar_that_cannot_be_parsed_is_a_400(self):
        server = self.server(["--model", real_model.tiny("llama"), "--slots", 1], harness.cache_options(ram_mib=16))
        for path, body in (("/completion", {"prompt": [1, 2], "n_predict": 1}), ("/v1/completions", {"prompt": [1, 2], "max_tokens": 1})):
            error = server.json("POST", path, {**body, "grammar": "root ::= ("}, status=400)["error"]
            self.assertEqual(error["type"], "invalid_request_error", json.dumps(error))
            self.assertIn("grammar", error["message"])
        self.assertEqual(server.json("POST", "/completion", {"prompt": [1, 2], "n_predict": 1})["tokens_predicted"], 1)


if __name__ == "__main__":
    harness.main()
