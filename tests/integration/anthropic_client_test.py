"""The `anthropic` package as it comes from the index: messages, streams, tools, token counts, errors."""

import client_packages
import harness

TOOL = {"name": "look", "description": "Looks.", "input_schema": {
    "type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}}
CALL = '@say(<think>Hm</think>Ok.<call>look {"at":1}</call>)'


def user(text):
    return [{"role": "user", "content": text}]


class AnthropicClient(client_packages.ClientTest):
    package = "anthropic"

    def client(self, server, key="none"):
        return self.module.Anthropic(base_url=server.base_url.removesuffix("/v1"), api_key=key, max_retries=0)

    def test_messages_whole_and_streamed(self):
        client = self.client(self.real)
        keys = {"model": "any", "max_tokens": 6, "system": "Be brief.", "messages": user("Say something.")}
        whole = client.messages.create(**keys)
        self.assertEqual((whole.type, whole.role, whole.stop_reason), ("message", "assistant", "max_tokens"))
        with client.messages.stream(**keys) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertGreater(final.usage.cache_read_input_tokens, 0)
        self.assertEqual(final.usage.input_tokens + final.usage.cache_read_input_tokens,
                         whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
        self.assertEqual(final.usage.output_tokens, 6)

    def test_tokens_are_counted_as_they_are_read(self):
        keys = {"model": "any", "system": "Be brief.", "messages": user("Count me.")}
        counted = self.client(self.real).messages.count_tokens(**keys).input_tokens
        usage = self.client(self.real).messages.create(**keys, max_tokens=1).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)

    def test_tools_and_the_turn_after_them(self):
        client = self.client(self.scripted)
        answer = client.messages.create(model="any", max_tokens=100, messages=user(CALL), tools=[TOOL])
        self.assertEqual(answer.stop_reason, "tool_use")
        self.assertEqual([block.type for block in answer.content], ["thinking", "text", "tool_use"])
        call = answer.content[-1]
        self.assertEqual((call.name, call.input), ("look", {"at": 1}))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "@say(Seen.)"}
        after = client.messages.create(model="any", max_tokens=100, tools=[TOOL], messages=[
            *user(CALL), {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}])
        self.assertEqual((after.content[0].text, after.stop_reason), ("Seen.", "end_turn"))

    def test_tools_streamed(self):
        with self.client(self.scripted).messages.stream(
                model="any", max_tokens=100, messages=user(CALL), tools=[TOOL], tool_choice={"type": "any"}) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_message()
        self.assertTrue({"message_start", "content_block_start", "content_block_delta", "input_json", "text",
                         "content_block_stop", "message_delta", "message_stop"} <= kinds, kinds)
        self.assertEqual((final.content[-1].name, final.content[-1].input), ("look", {"at": 1}))
        self.assertEqual(final.stop_reason, "tool_use")

    def test_stop_sequences(self):
        answer = self.client(self.scripted).messages.create(
            model="any", max_tokens=100, messages=user("@say(one two)"), stop_sequences=["two"])
        self.assertEqual((answer.content[0].text, answer.stop_reason, answer.stop_sequence), ("one ", "stop_sequence", "two"))

    def test_errors_are_the_packages_own(self):
        with self.assertRaisesRegex(self.module.BadRequestError, "prompt is too long"):
            self.client(self.real).messages.create(model="any", max_tokens=5, messages=user("x" * 3000))
        keyed = self.started(client_packages.ScriptedServer("--api-key", "secret"))
        with self.assertRaises(self.module.AuthenticationError):
            self.client(keyed, "wrong").messages.create(model="any", max_tokens=5, messages=user("x"))
        self.assertTrue(self.client(keyed, "secret").messages.create(model="any", max_tokens=5, messages=user("@say(x)")).content)

    def test_an_answer_that_breaks_off_is_no_answer(self):
        server = self.started(client_packages.ScriptedServer())
        with self.assertRaises(self.module.APIError), self.client(server).messages.stream(
                model="any", max_tokens=9, messages=user("@die_mid")) as stream:
            stream.get_final_message()


if __name__ == "__main__":
    harness.main()
