// A chat template for models that speak ChatML and whose own template knows no tools: the tools stand in the system
// message, a call is a JSON object between <tool_call> and </tool_call>, and a result comes back as a user's message.
// llama-common derives the grammar and the parser from it as from any template.
#pragma once

namespace strata::llama {

inline constexpr const char* kToolTemplate = R"jinja({%- if messages[0].role == 'system' -%}
{%- set system = messages[0].content -%}
{%- set rest = messages[1:] -%}
{%- else -%}
{%- set system = 'You are a helpful assistant.' -%}
{%- set rest = messages -%}
{%- endif -%}
{{- '<|im_start|>system\n' + system -}}
{%- if tools -%}
{{- '\n\nYou can call these functions:\n<tools>' -}}
{%- for tool in tools -%}
{{- '\n' + (tool | tojson) -}}
{%- endfor -%}
{{- '\n</tools>\nTo call one, answer with its name and arguments as JSON:\n<tool_call>\n{"name": "function", "arguments": {"key": "value"}}\n</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- for message in rest -%}
{%- if message.role == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{%- if message.content -%}
{{- message.content -}}
{%- endif -%}
{%- if message.tool_calls -%}
{%- for call in message.tool_calls -%}
{%- if call.function -%}
{%- set call = call.function -%}
{%- endif -%}
{%- if message.content or not loop.first -%}
{{- '\n' -}}
{%- endif -%}
{{- '<tool_call>\n{"name": "' + call.name + '", "arguments": ' -}}
{%- if call.arguments is string -%}
{{- call.arguments -}}
{%- else -%}
{{- call.arguments | tojson -}}
{%- endif -%}
{{- '}\n</tool_call>' -}}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- elif message.role == 'tool' -%}
{%- if loop.first or rest[loop.index0 - 1].role != 'tool' -%}
{{- '<|im_start|>user' -}}
{%- endif -%}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' -}}
{%- if loop.last or rest[loop.index0 + 1].role != 'tool' -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- else -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%})jinja";

}  // namespace strata::llama
