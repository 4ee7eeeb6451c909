"""The `anthropic` package with SmolLM2 behind the server: messages, streams, forced calls, token counts."""

import client_packages
import harness
import real_model

TOOL = {"name": "read_line", "description": "Reads one line of the file.", "input_schema": {
    "type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"], "additionalProperties": False}}
QUESTION = [{"role": "user", "content": "What stands in line 3? Read it."}]


def counted_of(usage):
    return usage.input_tokens + usage.cache_read_input_tokens


class AnthropicWithARealModel(real_model.RealModelTest):
    @classmethod
    def setUpClass(cls):
        cls.module = client_packages.load("anthropic")
        super().setUpClass()
        cls.client = cls.module.Anthropic(base_url=cls.target.base_url.removesuffix("/v1"), api_key="none", max_retries=0,
                                          timeout=240)

    def test_messages_whole_and_streamed(self):
        keys = {"model": "any", "max_tokens": 8, "system": "Be brief.",
                "messages": [{"role": "user", "content": "Name a colour."}]}
        whole = self.client.messages.create(**keys)
        self.assertTrue(whole.content[0].text.strip())
        with self.client.messages.stream(**keys) as stream:
            text = "".join(stream.text_stream)
            usage = stream.get_final_message().usage
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(usage.input_tokens, 1, "all but the last token was there")
        counted = self.client.messages.count_tokens(**{k: keys[k] for k in ("model", "system", "messages")})
        self.assertEqual(counted.input_tokens, counted_of(usage))

    def test_a_forced_call_and_the_turn_after_it(self):
        keys = {"model": "any", "max_tokens": 100, "tools": [TOOL]}
        with self.client.messages.stream(**keys, messages=QUESTION, tool_choice={
                "type": "any", "disable_parallel_tool_use": True}) as stream:
            kinds = {event.type for event in stream}
            answer = stream.get_final_message()
        self.assertIn("input_json", kinds)
        self.assertEqual(answer.stop_reason, "tool_use")
        (call,) = [block for block in answer.content if block.type == "tool_use"]
        self.assertEqual(call.name, "read_line")
        self.assertIsInstance(call.input["line"], int)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "return 42"}
        after = self.client.messages.create(**{**keys, "max_tokens": 4}, messages=[
            *QUESTION, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}])
        self.assertEqual(after.usage.output_tokens, 4)
        self.assertGreaterEqual(after.usage.cache_read_input_tokens, counted_of(answer.usage))
        counted = self.client.messages.count_tokens(model="any", tools=[TOOL], messages=QUESTION)
        self.assertEqual(counted.input_tokens, counted_of(answer.usage))


if __name__ == "__main__":
    harness.main()
