// Requests of other API families → OpenAI's chat form: what each key becomes, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/server/anthropic_request.hpp"
#include "engine/server/api_request.hpp"
#include "engine/server/chat_beginnings.hpp"
#include "engine/server/responses_request.hpp"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string anthropic(const std::string& body) {
  const auto chat = chat_from_anthropic(body);
  EXPECT_TRUE(chat) << (chat ? "" : chat.error().message);
  return chat.value_or("");
}

TEST(ServerAnthropicRequest, MessagesAndSampling) {
  EXPECT_EQ(
      anthropic(
          R"({"model":"m","max_tokens":5,"system":"S","messages":[{"role":"user","content":"U"},
          {"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":"s"},{"type":"text","text":"A"}]},
          {"role":"user","content":[{"type":"text","text":"B"},{"type":"text","text":"C"}]}],
          "stop_sequences":["x"],"temperature":0.5,"top_p":0.9,"top_k":4,"stream":true,"metadata":{"user_id":"u"}})"),
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"},)"
      R"({"role":"assistant","content":"A","reasoning_content":"T"},{"role":"user","content":"BC"}],)"
      R"("model":"m","max_tokens":5,"temperature":5E-1,"top_p":9E-1,"top_k":4,"stream":true,"stop":["x"]})");
}

TEST(ServerAnthropicRequest, ToolsCallsAndResults) {
  EXPECT_EQ(
      anthropic(R"({"messages":[{"role":"user","content":"U"},
      {"role":"assistant","content":[{"type":"text","text":"A"},{"type":"tool_use","id":"t1","name":"f","input":{"b":1,"a":2}},
        {"type":"tool_use","id":"t2","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"R"},
        {"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"bad"}]},{"type":"text","text":"V"}]}],
      "tools":[{"name":"f","description":"D","input_schema":{"type":"object"}}],
      "tool_choice":{"type":"any","disable_parallel_tool_use":true}})"),
      R"({"messages":[{"role":"user","content":"U"},{"role":"assistant","content":"A","tool_calls":[)"
      R"({"id":"t1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":2}"}},)"
      R"({"id":"t2","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"R","tool_call_id":"t1"},{"role":"tool","content":"Error: bad","tool_call_id":"t2"},)"
      R"({"role":"user","content":"V"}],"tools":[{"type":"function","function":{"name":"f","description":"D",)"
      R"("parameters":{"type":"object"}}}],"tool_choice":"required","parallel_tool_calls":false})");
}

TEST(ServerAnthropicRequest, OneToolByName) {
  EXPECT_THAT(
      anthropic(R"({"messages":[{"role":"user","content":"U"}],"tools":[{"name":"f","input_schema":{}}],
    "tool_choice":{"type":"tool","name":"f"}})"),
      HasSubstr(R"("tool_choice":{"type":"function","function":{"name":"f"}})"));
}

// Lesson 21: a line for billing stands first and is another one in every request.
TEST(ServerAnthropicRequest, TheBillingLineIsNoPartOfThePrompt) {
  EXPECT_THAT(anthropic(R"({"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},
    {"type":"text","text":"A","cache_control":{"type":"ephemeral"}},{"type":"text","text":"B"}],
    "messages":[{"role":"user","content":"U"}]})"),
              HasSubstr(R"([{"role":"system","content":"A\n\nB"},{"role":"user")"));
}

TEST(ServerAnthropicRequest, ThinkingCanBeTurnedOff) {
  EXPECT_THAT(anthropic(R"({"messages":[{"role":"user","content":"U"}],"thinking":{"type":"disabled"}})"),
              HasSubstr(R"("chat_template_kwargs":{"enable_thinking":false})"));
}

TEST(ServerAnthropicRequest, RefusalsNameTheKey) {
  const std::pair<const char*, const char*> table[] = {
      {"{", "JSON"},
      {R"({})", "\"messages\" is missing"},
      {R"({"messages":[]})", "\"messages\" is empty"},
      {R"({"messages":["x"]})", "messages[0]"},
      {R"({"messages":[{"role":"king","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_use"}]}]})", "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_result"}]}]})", "tool_use_id"},
      {R"({"messages":[{"role":"user","content":"x"}],"system":5})", "system"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}]})", "tools[0].input_schema"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"bash_20250124","name":"bash"}]})",
       "tools[0].type"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"auto"})", "tool_choice"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"some"}})", "tool_choice.type"},
      {R"({"messages":[{"role":"user","content":"x"}],"stop_sequences":"x"})", "stop_sequences"},
  };
  for (const auto& [body, named] : table) {
    const auto chat = chat_from_anthropic(body);
    ASSERT_FALSE(chat) << body;
    EXPECT_EQ(chat.error().status, 400);
    EXPECT_THAT(chat.error().message, HasSubstr(named)) << body;
  }
}

std::string responses(const std::string& body) {
  const auto request = chat_from_responses(body);
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request ? request->chat_json : "";
}

TEST(ServerResponsesRequest, TextAndInstructions) {
  EXPECT_EQ(responses(R"({"model":"m","input":"U","instructions":"S","max_output_tokens":7,"stream":true})"),
            R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}],)"
            R"("model":"m","stream":true,"max_tokens":7})");
}

TEST(ServerResponsesRequest, ItemsBecomeTurns) {
  EXPECT_EQ(
      responses(R"({"input":[{"role":"developer","content":"D"},{"role":"system","content":"E"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"U"}]},{"type":"reasoning","summary":[]},
      {"type":"function_call","id":"fc","call_id":"c1","name":"f","arguments":"{}","status":"completed"},
      {"type":"function_call_output","call_id":"c1","output":"R"}]})"),
      R"({"messages":[{"role":"system","content":"D\n\nE"},{"role":"user","content":"U"},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"R","tool_call_id":"c1"}]})");
}

TEST(ServerResponsesRequest, ToolsAndFormats) {
  EXPECT_EQ(
      responses(
          R"({"input":"U","tools":[{"type":"function","name":"f","description":"D","strict":true,"parameters":{}},
      {"type":"web_search"},{"type":"namespace","name":"n","tools":[]}],"tool_choice":{"type":"function","name":"f"},
      "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true},"verbosity":"low"}})"),
      R"({"messages":[{"role":"user","content":"U"}],"tools":[{"type":"function","function":{"name":"f",)"
      R"("description":"D","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}},)"
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}})");
}

TEST(ServerResponsesRequest, EffortIsHandedOn) {
  EXPECT_THAT(responses(R"({"input":"U","reasoning":{"effort":"low","summary":"auto"}})"),
              HasSubstr(R"("reasoning_effort":"low")"));
}

TEST(ServerResponsesRequest, WhatWasAskedIsRepeated) {
  const auto request = chat_from_responses(R"({"input":"U","temperature":1,"metadata":{"a":"b"}})");
  ASSERT_TRUE(request);
  EXPECT_THAT(request->echo, testing::Contains(testing::Pair("temperature", "1")));
  EXPECT_THAT(request->echo, testing::Contains(testing::Pair("metadata", R"({"a":"b"})")));
  EXPECT_THAT(request->echo, testing::Contains(testing::Pair("tools", "[]")));
}

TEST(ServerResponsesRequest, RefusalsNameTheKey) {
  const std::pair<const char*, const char*> table[] = {
      {R"({})", "\"input\" is missing"},
      {R"({"input":5})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":["x"]})", "input[0]"},
      {R"({"input":[{"role":"king","content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"user"}]})", "input[0].content"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})",
       "input[0].content[0].type"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type"},
      {R"({"input":[{"type":"function_call","name":"f"}]})", "input[0].call_id"},
      {R"({"input":[{"type":"function_call_output","call_id":"c"}]})", "input[0].output"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name"},
      {R"({"input":"x","tool_choice":{"type":"mcp"}})", "tool_choice.type"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {R"({"input":"x","text":{"format":{}}})", "text.format.type"},
      {R"({"input":"x","previous_response_id":"r"})", "previous_response_id"},
  };
  for (const auto& [body, named] : table) {
    const auto request = chat_from_responses(body);
    ASSERT_FALSE(request) << body;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_THAT(request.error().message, HasSubstr(named)) << body;
  }
}

// ---- chat requests of models with a chat format

std::string chat(const std::string& extra) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + extra + "}";
}

TEST(ServerToolRequest, IsHandedOnAsReceived) {
  const std::string body = chat(R"( , "tools":[{"type":"function","function":{"name":"f"}}], "odd":[1.50])");
  const auto request = parse_chat_completion(body, ChatSupport::tools);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->chat_json, body);
}

TEST(ServerToolRequest, UnknownRolesAreRenamed) {
  const auto request = parse_chat_completion(
      R"({"messages":[{"role":"developer","content":"a"},{"role":"user","content":"b"}],"seed":1})",
      ChatSupport::tools);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->chat_json,
            R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}],"seed":1})");
}

TEST(ServerToolRequest, WrongToolsAre400) {
  const std::pair<const char*, const char*> table[] = {
      {R"(,"tools":5)", "tools"},
      {R"(,"tools":[5])", "tools[0]"},
      {R"(,"tools":[{}])", "tools[0].type"},
      {R"(,"tools":[{"type":"web"}])", "tools[0].type"},
      {R"(,"tools":[{"type":"function"}])", "tools[0].function"},
      {R"(,"tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"(,"tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
      {R"(,"tools":[{"type":"function","function":{"name":"f","parameters":5}}])",
       "tools[0].function.parameters"},
      {R"(,"tool_choice":"required")", "tool_choice"},
      {R"(,"tool_choice":"sometimes")", "tool_choice"},
      {R"(,"response_format":{"type":"xml"})", "response_format.type"},
      {R"(,"response_format":{"type":"json_schema"})", "response_format.json_schema"},
  };
  for (const auto& [extra, named] : table) {
    const auto request = parse_chat_completion(chat(extra), ChatSupport::tools);
    ASSERT_FALSE(request) << extra;
    EXPECT_EQ(request.error().status, 400) << extra;
    EXPECT_THAT(request.error().message, HasSubstr(named)) << extra;
  }
}

TEST(ServerToolRequest, BeginningsHaveTheFirstMessagesAndNoPromptForAnAnswer) {
  EXPECT_THAT(chat_beginnings(R"({"messages":[{"role":"a"},{"role":"b"}],"x":1})", {1, 2}),
              ElementsAre(R"({"messages":[{"role":"a"}],"x":1,"add_generation_prompt":false})",
                          R"({"messages":[{"role":"a"},{"role":"b"}],"x":1,"add_generation_prompt":false})"));
}

TEST(ServerNativeRequest, GrammarsNeedAModelThatCanUseThem) {
  const char* body = R"({"prompt":"a","grammar":"root ::= \"x\""})";
  EXPECT_EQ(parse_native_completion(body).error().status, 501);
  EXPECT_EQ(parse_text_completion(body).error().status, 501);
  EXPECT_EQ(parse_native_completion(body, ChatSupport::tools)->grammar, "root ::= \"x\"");
  EXPECT_EQ(
      parse_native_completion(R"({"prompt":"a","json_schema":{"a":1}})", ChatSupport::tools).error().status,
      501);
  EXPECT_EQ(parse_chat_completion(chat(R"(,"grammar":"g")"), ChatSupport::tools)->grammar, "g");
}

TEST(ServerNativeRequest, KeysAreRead) {
  const auto request =
      parse_native_completion(R"({"prompt":[1,2],"n_predict":0,"n_probs":3,"return_tokens":true})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->max_tokens, 0u);
  EXPECT_EQ(request->sampling.logprobs, 3u);
  EXPECT_TRUE(request->return_tokens);
  EXPECT_EQ(parse_native_completion(R"({"prompt":"a","n_predict":-1,"n_probs":0})")->sampling.logprobs,
            std::nullopt);
  EXPECT_FALSE(parse_native_completion(R"({"n_predict":1})"));
  EXPECT_FALSE(parse_native_completion(R"({"prompt":"a","n_probs":"3"})"));
}

}  // namespace
}  // namespace strata
