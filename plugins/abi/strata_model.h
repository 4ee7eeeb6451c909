/* Strata plugin ABI: language models with slots, and their state as blocks and checkpoints.
 * The contract of every function is that of the Model port in core/model.hpp and is held by tests/conformance. */
#ifndef STRATA_MODEL_H
#define STRATA_MODEL_H

#include "plugins/abi/strata_device.h"
#include "plugins/abi/strata_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_MODEL_MAX_STAGES 64

/* plugin.caps_optional of the table: what the functions below can do at all. */
#define STRATA_MODEL_CAP_TOKENIZER (UINT64_C(1) << 0)
#define STRATA_MODEL_CAP_CHAT (UINT64_C(1) << 1)     /* 1.1: chat_format, chat_parse */
#define STRATA_MODEL_CAP_SAMPLING (UINT64_C(1) << 2) /* 1.1: sampler_* */
/* strata_model_info.caps of an instance */
#define STRATA_MODEL_CAN_TRUNCATE (UINT64_C(1) << 8)
#define STRATA_MODEL_NEEDS_CHECKPOINTS (UINT64_C(1) << 9)
#define STRATA_MODEL_STATE_IN_BLOCKS (UINT64_C(1) << 10)
#define STRATA_MODEL_STAGED_IMPORT (UINT64_C(1) << 11)
#define STRATA_MODEL_EXACT_IMPORT (UINT64_C(1) << 12)

typedef struct strata_model_info {
  uint32_t struct_size;
  uint32_t stages, slots, context_tokens, vocabulary, tokens_per_block, staged_imports, reserved0;
  uint64_t caps, parameters, weight_bytes;
  uint64_t max_block_bytes[STRATA_MODEL_MAX_STAGES];
  uint64_t checkpoint_bytes[STRATA_MODEL_MAX_STAGES];
  char name[128];
  char state_version[64];
} strata_model_info;

typedef struct strata_text { /* frozen; a view, borrowed(call) as argument */
  const char* data;
  uint64_t length;
} strata_text;

typedef struct strata_chat_message { /* frozen array element */
  strata_text role, content;
} strata_chat_message;

typedef struct strata_batch_item { /* frozen array element */
  int32_t slot;
  uint32_t position, token_count, want_logits;
  const int32_t* tokens; /* borrowed(call) */
} strata_batch_item;

typedef void (*strata_pair_visitor)(void* ctx, strata_text first, strata_text second); /* called during the call only */

typedef struct strata_sampler strata_sampler; /* opaque, the plugin's own; 1.1 */

typedef struct strata_model {
  strata_plugin plugin;
  /* Once, directly after create, before anything else but the tokenizer functions. device is borrowed until destroy.
   * With option vocab_only=1 it is not called, and only tokenizer and chat functions work. */
  strata_status (*bind_device)(strata_instance*, const strata_device* device, strata_instance* device_instance,
                               int32_t device_index, strata_error*);
  strata_status (*info)(strata_instance*, strata_model_info* info, strata_error*);
  strata_status (*identity_fields)(strata_instance*, strata_pair_visitor visit, void* ctx, strata_error*);
  strata_status (*files)(strata_instance*, strata_pair_visitor visit_role_and_path, void* ctx, strata_error*);

  /* Writes at most capacity tokens, returns the whole number in *count. */
  strata_status (*tokenize)(strata_instance*, strata_text text, int32_t add_special, int32_t parse_special,
                            int32_t* tokens, uint32_t capacity, uint32_t* count, strata_error*);
  strata_status (*detokenize)(strata_instance*, const int32_t* tokens, uint32_t token_count, char* text,
                              uint64_t capacity, uint64_t* length, strata_error*);
  int32_t (*is_end_of_generation)(strata_instance*, int32_t token);
  strata_status (*chat_template)(strata_instance*, char* text, uint64_t capacity, uint64_t* length, strata_error*);
  strata_status (*apply_chat_template)(strata_instance*, const strata_chat_message* messages, uint32_t message_count,
                                       int32_t add_generation_prompt, char* text, uint64_t capacity, uint64_t* length,
                                       strata_error*);

  /* logits: one pointer per item, to vocabulary floats borrowed until the next decode, null unless wanted. */
  strata_status (*decode)(strata_instance*, const strata_batch_item* items, uint32_t item_count, const float** logits,
                          strata_error*);
  uint32_t (*length)(strata_instance*, int32_t slot);
  strata_status (*truncate)(strata_instance*, int32_t slot, uint32_t tokens, strata_error*);
  strata_status (*clear)(strata_instance*, int32_t slot, strata_error*);

  uint64_t (*block_bytes)(strata_instance*, uint32_t stage, uint32_t count);
  strata_status (*export_block)(strata_instance*, int32_t slot, uint32_t stage, uint32_t first, uint32_t count, void* to,
                                uint64_t capacity, void* stream, strata_error*);
  strata_status (*export_checkpoint)(strata_instance*, int32_t slot, uint32_t stage, void* to, uint64_t capacity,
                                     void* stream, uint64_t* bytes, strata_error*);
  strata_status (*import_begin)(strata_instance*, int32_t slot, const int32_t* tokens, uint32_t token_count,
                                uint64_t* import, strata_error*);
  strata_status (*import_block)(strata_instance*, uint64_t import, uint32_t stage, uint32_t first, uint32_t count,
                                const void* from, uint64_t bytes, void* stream, strata_error*);
  strata_status (*import_checkpoint)(strata_instance*, uint64_t import, uint32_t stage, uint32_t position,
                                     const void* from, uint64_t bytes, void* stream, strata_error*);
  strata_status (*import_commit)(strata_instance*, uint64_t import, strata_error*);
  void (*import_abort)(strata_instance*, uint64_t import);

  /* 1.1, with STRATA_MODEL_CAP_CHAT. request_json has the form of OpenAI's chat.completions. Visits pairs: "prompt",
   * "stop" (any number), "grammar" and "parser" (the plugin's own text; they go back into sampler_create and chat_parse),
   * "grammar_lazy" ("1": the grammar applies after a trigger only). INVALID with words for the client. */
  strata_status (*chat_format)(strata_instance*, strata_text request_json, strata_pair_visitor visit, void* ctx,
                               strata_error*);
  /* The answer's text so far as message JSON {"role","content","reasoning_content","tool_calls"}. */
  strata_status (*chat_parse)(strata_instance*, strata_text parser, strata_text text, int32_t final, char* json,
                              uint64_t capacity, uint64_t* length, strata_error*);

  /* 1.1, with STRATA_MODEL_CAP_SAMPLING. params_json: temperature, top_k, top_p, min_p, seed, repeat_penalty,
   * presence_penalty, frequency_penalty, repeat_last_n, logit_bias [[token, bias]], grammar. */
  strata_status (*sampler_create)(strata_instance*, strata_text params_json, strata_sampler** sampler, strata_error*);
  /* From the logits that the last decode gave this slot. */
  strata_status (*sampler_sample)(strata_instance*, strata_sampler* sampler, int32_t slot, int32_t* token,
                                  strata_error*);
  /* generated: 0 for tokens of the prompt, which no grammar judges. */
  strata_status (*sampler_accept)(strata_instance*, strata_sampler* sampler, int32_t token, int32_t generated,
                                  strata_error*);
  void (*sampler_destroy)(strata_instance*, strata_sampler* sampler); /* before its instance */
} strata_model;

#ifdef __cplusplus
}
#endif
#endif
