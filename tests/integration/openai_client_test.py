"""The `openai` package as it comes from the index: chat, streams, tools, responses, models, errors."""

import client_packages
import harness

TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {
    "type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}}}
FLAT_TOOL = {"type": "function", **TOOL["function"], "strict": False}
CALL = '@say(<think>Hm</think>Ok.<call>look {"at":1}</call>)'


def user(text):
    return [{"role": "user", "content": text}]


class OpenAiClient(client_packages.ClientTest):
    package = "openai"

    def client(self, server, key="none"):
        return self.module.OpenAI(base_url=server.base_url, api_key=key, max_retries=0)

    def test_models(self):
        self.assertEqual(self.client(self.real).models.list().data[0].object, "model")

    def test_chat_whole_and_streamed(self):
        client = self.client(self.real)
        keys = {"model": "any", "messages": user("Say something."), "max_tokens": 6, "temperature": 0}
        whole = client.chat.completions.create(**keys)
        chunks = list(client.chat.completions.create(**keys, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        self.assertGreater(chunks[-1].usage.prompt_tokens_details.cached_tokens, 0)

    def test_chat_tools_and_the_turn_after_them(self):
        client = self.client(self.scripted)
        answer = client.chat.completions.create(model="any", messages=user(CALL), tools=[TOOL])
        message = answer.choices[0].message
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        self.assertEqual((message.content, message.tool_calls[0].function.name), ("Ok.", "look"))
        self.assertEqual(message.tool_calls[0].function.arguments, '{"at":1}')
        self.assertEqual(message.reasoning_content, "Hm")
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "@say(Seen.)"}
        after = client.chat.completions.create(model="any", messages=[*user(CALL), message, result], tools=[TOOL])
        self.assertEqual(after.choices[0].message.content, "Seen.")

    def test_chat_tools_streamed(self):
        with self.client(self.scripted).chat.completions.stream(model="any", messages=user(CALL), tools=[TOOL]) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertIn("tool_calls.function.arguments.done", kinds)
        call = final.choices[0].message.tool_calls[0].function
        self.assertEqual((call.name, call.arguments), ("look", '{"at":1}'))

    def test_log_probabilities(self):
        answer = self.client(self.real).chat.completions.create(
            model="any", messages=user("Hi"), max_tokens=2, temperature=0, logprobs=True, top_logprobs=3)
        self.assertEqual([len(token.top_logprobs) for token in answer.choices[0].logprobs.content], [3, 3])

    def test_responses_whole_and_streamed(self):
        client = self.client(self.real)
        keys = {"model": "any", "instructions": "Be brief.", "input": "Say something.", "temperature": 0}
        whole = client.responses.create(**keys, max_output_tokens=6)
        self.assertEqual(whole.status, "incomplete")
        events = list(client.responses.create(**keys, max_output_tokens=6, stream=True))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual([events[0].type, events[1].type], ["response.created", "response.in_progress"])
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertGreater(events[-1].response.usage.input_tokens_details.cached_tokens, 0)

    def test_responses_tools_and_the_turn_after_them(self):
        client = self.client(self.scripted)
        with client.responses.stream(model="any", input=CALL, tools=[FLAT_TOOL]) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertIn("response.function_call_arguments.done", kinds)
        self.assertEqual(kinds[-1], "response.completed")
        self.assertEqual([item.type for item in final.output], ["reasoning", "message", "function_call"])
        call = final.output[-1]
        self.assertEqual((call.name, call.arguments, final.output_text), ("look", '{"at":1}', "Ok."))
        after = client.responses.create(model="any", tools=[FLAT_TOOL], input=[
            *user(CALL), *[item.model_dump(exclude={"parsed_arguments"}) for item in final.output],
            {"type": "function_call_output", "call_id": call.call_id, "output": "@say(Seen.)"}])
        self.assertEqual((after.status, after.output_text), ("completed", "Seen."))

    def test_errors_are_the_packages_own(self):
        with self.assertRaises(self.module.BadRequestError) as caught:
            self.client(self.real).chat.completions.create(model="any", messages=user("x" * 3000))
        self.assertEqual(caught.exception.type, "exceed_context_size_error")
        with self.assertRaises(self.module.BadRequestError):
            self.client(self.real).responses.create(model="any", input="x", previous_response_id="resp_1")
        with self.assertRaises(self.module.InternalServerError):
            self.client(self.real).chat.completions.create(model="any", messages=user("x"), tools=[TOOL])
        keyed = self.started(client_packages.ScriptedServer("--api-key", "secret"))
        with self.assertRaises(self.module.AuthenticationError):
            self.client(keyed, "wrong").chat.completions.create(model="any", messages=user("x"))
        self.assertTrue(self.client(keyed, "secret").chat.completions.create(model="any", messages=user("@say(x)")).choices)

    def test_an_answer_that_breaks_off_is_no_answer(self):
        server = self.started(client_packages.ScriptedServer())
        with self.assertRaises(self.module.APIError):
            for _ in self.client(server).chat.completions.create(model="any", messages=user("@die_mid"), stream=True):
                pass


if __name__ == "__main__":
    harness.main()
