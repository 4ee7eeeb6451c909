"""Real models whose conversations go on in another process (RAM-3, DISK-6, DISK-7): every kind of state, in parts and forced
whole. Tokens and log probabilities equal, to the last digit, those of a server in which the conversation never left its slot,
and within rounding those of a server that reads it from the start. Another beginning of the same length must differ."""

import harness
import llama_models


class LlamaRestart(harness.StrataTest):
    def go_on_elsewhere(self, file, words, rounding):
        for granularity in ("auto", "whole"):
            with self.subTest(file=file.rsplit("/", 1)[-1], state=granularity):
                context = 256 if "gpt2" in file else 2048  # learned positions end there
                model = llama_models.options(file, context=context, granularity=granularity)
                self.compare_course(model, *map(words, ("a", "b", "more")), rounding)

    def compare_course(self, model, begin, other, more, rounding):
        folder = self.folder()
        staying = self.server(model, harness.cache_options(ram_mib=512))
        leaving = self.server(model, harness.cache_options(folder, ram_mib=512))
        begin, other, more = ([*staying.json("POST", "/tokenize", {"content": text})["tokens"]] for text in (begin, other, more))
        first = self.complete(staying, begin)
        self.assertEqual(self.content(self.complete(leaving, begin)), self.content(first))
        self.assertEqual(leaving.stop(), 0, leaving.output.text())
        returned = self.server(model, harness.cache_options(folder, ram_mib=512))
        prompt = begin + [token for token, _ in self.content(first)] + more
        stayed, back = self.complete(staying, prompt), self.complete(returned, prompt)
        self.assertEqual((stayed["timings"]["cache_tier"], back["timings"]["cache_tier"]), ("vram", "disk"))
        self.assertEqual([answer["timings"]["cache_n"] for answer in (stayed, back)], [len(begin) + 5] * 2)
        self.assertEqual(self.content(back), self.content(stayed))
        cold = self.complete(returned, prompt, cache_prompt=False)
        self.assertEqual(cold["timings"]["cache_n"], 0)
        self.assertLess(self.first_difference(back, cold), rounding)
        changed = self.complete(returned, other[: len(begin)] + prompt[min(len(begin), len(other)):])
        self.assertNotEqual(self.content(changed), self.content(back))
        for server in (staying, returned):
            server.kill()

    @staticmethod
    def complete(server, tokens, **keys):
        return server.json("POST", "/completion", {"prompt": tokens, "n_predict": 6, "temperature": 0, "n_probs": 2, **keys})

    @staticmethod
    def content(answer):
        return [(entry["id"], entry["logprob"]) for entry in answer["completion_probabilities"]]

    @staticmethod
    def first_difference(a, b):
        """Of the log probability of the first token, where both choose the same; without bound else."""
        one, two = a["completion_probabilities"][0], b["completion_probabilities"][0]
        return abs(one["logprob"] - two["logprob"]) if one["id"] == two["id"] else float("inf")

    def test_models_of_every_kind_of_state_ram_3_disk_6(self):
        for name in llama_models.TINY:
            size = {"more": 10}
            most = 60 if name == "gpt2" else 120
            self.go_on_elsewhere(llama_models.tiny(name), lambda seed: llama_models.tiny_words(seed, size.get(seed, most)), 1e-3)

    def test_real_models_ram_3_disk_6(self):
        for name in llama_models.REAL:
            self.go_on_elsewhere(llama_models.real(name), TEXTS.get, 0.5)


TEXTS = {
    "a": "This is the story of how the old lighthouse keeper found his way home through the fog, and what he brought with him.",
    "b": "Here is the list of reasons why bread rises in the oven, and how long the dough should rest before that, in hours.",
    "more": " Then the keeper went back to the harbour, and",
}

if __name__ == "__main__":
    harness.main()
