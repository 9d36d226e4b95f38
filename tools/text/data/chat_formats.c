/* chat_formats.c: named chat formats; {% generation %} marks the replies. */
#include <string.h>

#include "tools/text/data/chat.h"

#define PARTS /* text of a message; its content may be a list of parts */                          \
    "{%- macro text(c) -%}{%- if c is string -%}{{ c }}{%- elif c is iterable and c is not "       \
    "mapping -%}{%- for p in c -%}{%- if p.type == 'text' -%}{{ p.text }}{%- else -%}"             \
    "{{ raise_exception('this chat format supports only text parts') }}{%- endif -%}{%- endfor "   \
    "-%}"                                                                                          \
    "{%- elif c is defined and c is not none -%}{{ raise_exception('content is not a text') }}"    \
    "{%- endif -%}{%- endmacro -%}"

#define NO_TOOLS                                                                                   \
    "{%- if tools -%}{{ raise_exception('this chat format knows no tools; the model needs a "      \
    "template of its own') }}{%- endif -%}"

/* Moves the system message from the turns to ns.system, and begins the loop over the turns. */
#define SYSTEM_FIRST                                                                               \
    "{%- set ns = namespace(system='') -%}"                                                        \
    "{%- if messages and messages[0].role in ['system', 'developer'] -%}"                          \
    "{%- set ns.system = text(messages[0].content) -%}{%- set turns = messages[1:] -%}"            \
    "{%- else -%}{%- set turns = messages -%}{%- endif -%}"                                        \
    "{%- for m in turns -%}{%- if m.role not in ['user', 'assistant'] -%}"                         \
    "{{ raise_exception('this chat format has no role ' ~ m.role ~ ' here') }}{%- endif -%}"

static const char chatml[] = PARTS NO_TOOLS
    "{%- for m in messages -%}{{ '<|im_start|>' ~ m.role ~ '\\n' }}"
    "{%- if m.role == 'assistant' -%}{%- generation -%}{{ text(m.content) ~ '<|im_end|>' }}"
    "{%- endgeneration -%}{%- else -%}{{ text(m.content) ~ '<|im_end|>' }}{%- endif -%}{{ '\\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

static const char llama3[] = PARTS NO_TOOLS
    "{{- bos_token or '<|begin_of_text|>' -}}{%- for m in messages -%}"
    "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' }}"
    "{%- if m.role == 'assistant' -%}{%- generation -%}{{ text(m.content) | trim ~ '<|eot_id|>' }}"
    "{%- endgeneration -%}{%- else -%}{{ text(m.content) | trim ~ '<|eot_id|>' }}{%- endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt -%}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}";

static const char llama2[] = PARTS NO_TOOLS SYSTEM_FIRST
    "{%- if m.role == 'user' -%}{{ (bos_token or '<s>') ~ '[INST] ' }}"
    "{%- if loop.first and ns.system -%}{{ '<<SYS>>\\n' ~ ns.system ~ '\\n<</SYS>>\\n\\n' }}"
    "{%- endif -%}{{ text(m.content) | trim ~ ' [/INST]' }}"
    "{%- else -%}{%- generation -%}{{ ' ' ~ text(m.content) | trim ~ ' ' ~ (eos_token or '</s>') }}"
    "{%- endgeneration -%}{%- endif -%}{%- endfor -%}";

static const char mistral[] = PARTS NO_TOOLS
    "{{- bos_token or '<s>' -}}" SYSTEM_FIRST "{%- if m.role == 'user' -%}{{ '[INST] ' }}"
    "{%- if loop.last and ns.system or (loop.index == turns | length - 1 and ns.system) -%}"
    "{{ ns.system ~ '\\n\\n' }}{%- endif -%}{{ text(m.content) ~ '[/INST]' }}"
    "{%- else -%}{%- generation -%}{{ ' ' ~ text(m.content) | trim ~ (eos_token or '</s>') }}"
    "{%- endgeneration -%}{%- endif -%}{%- endfor -%}";

static const char alpaca[] = PARTS NO_TOOLS SYSTEM_FIRST
    "{%- if m.role == 'user' -%}{%- if loop.first -%}"
    "{%- if ns.system -%}{{ ns.system ~ '\\n\\n' }}{%- elif m.input -%}"
    "{{ 'Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\\n\\n' }}{%- else -%}"
    "{{ 'Below is an instruction that describes a task. Write a response that appropriately "
    "completes the request.\\n\\n' }}{%- endif -%}{%- endif -%}"
    "{{ '### Instruction:\\n' ~ (m.instruction if m.input else text(m.content)) ~ '\\n\\n' }}"
    "{%- if m.input -%}{{ '### Input:\\n' ~ m.input ~ '\\n\\n' }}{%- endif -%}{{ '### "
    "Response:\\n' }}"
    "{%- else -%}{%- generation -%}{{ text(m.content) ~ (eos_token or '') }}{%- endgeneration -%}"
    "{%- if not loop.last -%}{{ '\\n\\n' }}{%- endif -%}{%- endif -%}{%- endfor -%}";

static const char vicuna[] = PARTS NO_TOOLS
    "{{- bos_token or '' -}}" SYSTEM_FIRST
    "{%- if loop.first -%}{{ (ns.system or 'A chat between a curious user and an artificial "
    "intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
    "user\\'s questions.') ~ ' ' }}{%- endif -%}"
    "{%- if m.role == 'user' -%}{{ 'USER: ' ~ text(m.content) ~ ' ASSISTANT:' }}"
    "{%- else -%}{%- generation -%}{{ ' ' ~ text(m.content) ~ (eos_token or '</s>') }}"
    "{%- endgeneration -%}{%- endif -%}{%- endfor -%}";

static const struct {
    const char *name;
    const char *source;
} formats[] = {{"chatml", chatml},   {"llama3", llama3}, {"llama2", llama2},
               {"mistral", mistral}, {"alpaca", alpaca}, {"vicuna", vicuna}};

const char *text_chat_formats(void)
{
    return "chatml|llama3|llama2|mistral|alpaca|vicuna";
}

const char *text_chat_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return formats[i].source;
        }
    }
    return NULL;
}
