"""Templates for the tests of tools/text/jinja."""

LOOP = "{% for m in messages %}"
TEMPLATES = {
    "plain": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m['role'] }}>\n{% endfor %}",
    "prompt": "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
              "[U] {{ message['content'] }} [/U]{% elif message.role == \"assistant\" %} {{ message.content }}"
              "{{ eos_token }}{% else %}({{ message.role }}){% endif %}{% endfor %}"
              "{% if add_generation_prompt %}[A]{% endif %}",
    "whitespace": "\n\n  {% if messages %}  \n    {{- 'a' -}}  \n  {% endif %}  \n  {# note #}  \n"
                  "\t{%- for m in messages %}\n  * {{ m.role }}\n  {%+ if true %}x{% endif +%}\n"
                  "  {%- endfor -%}\n end \n",
    "whitespace_lines": "a {% if 1 %}\n b\n   {% endif %}\nc\n  {%- set x = 1 -%}\n  d {{- ' e' }}\n"
                        "{% set y = 2 %}\n\n{{ x }}{{ y }}\n  {# one\n two #}\nz{#- c -#}  z\n\n",
    "comments": "a{# {{ x }} {% if %} #}b{#- c -#}\n  {#+ d +#}\ne",
    "raw": "{% raw %}{{ not }} {% if %}{% endraw %} | {%- raw -%}  x  {%- endraw -%}  | \n"
           "  {% raw %}\n{# kept #}\n  {% endraw %}\nend",
    "crlf": "a\r\n{% if 1 %}\r\nb\r{% endif %}\rc{{ 'x\r\ny' }}",
    "loop": LOOP + "{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/"
            "{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}"
            "{{ loop.cycle('a', 'b', 'c') }}{{ loop.previtem.role if loop.previtem is defined }}"
            "{{ loop.nextitem.role if loop.nextitem is defined else '-' }}"
            "{{ loop.changed(m.role) }};{% else %}nobody{% endfor %}",
    "loop_filter": "{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.role }}"
                   "{% if loop.last %}.{% endif %}{% else %}none{% endfor %}"
                   "{% for k, v in {'a': 1, 'b': [1, 2]}.items() %}{{ k }}={{ v }},{% endfor %}"
                   "{% for (x, y), z in [((1, 2), 3)] %}{{ x + y * z }}{% endfor %}",
    "loop_jumps": LOOP + "{% if m.role == 'assistant' %}{% continue %}{% endif %}{{ m.role[0] }}"
                  "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "loop_scope": "{% set x = 0 %}{% for i in range(3) %}{{ x }}{% set x = i + 1 %}{{ x }}{% endfor %}{{ x }}"
                  "{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "loop_recursive": "{% set tree = [{'n': 1, 'c': [{'n': 2, 'c': []}, {'n': 3, 'c': [{'n': 4, 'c': []}]}]}] %}"
                      "{% for t in tree recursive %}{{ loop.depth }}:{{ t.n }}"
                      "{% if t.c %}({{ loop(t.c) }}){% endif %}{% endfor %}",
    "namespace": "{% set ns = namespace(found=false, text='', n=0) %}" + LOOP +
                 "{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}"
                 "{% set ns.text = ns.text ~ (m.role | first) %}{% set ns.n = ns.n + 1 %}"
                 "{% set ns.new = m.role %}{% endfor %}{{ ns.found }} {{ ns.text }} {{ ns.n }} {{ ns.new }}"
                 "{{ ns.missing is defined }}{{ ns['n'] }}",
    "set": "{% set a, b = 1, 'two' %}{% set c = a, b %}{% set d %}  [{{ a }}] {{ b | upper }}\n{% endset %}"
           "{% set e | trim | upper %} x{{ b }} {% endset %}{{ a }}{{ b }}{{ c }}{{ d }}{{ e }}"
           "{% set (f, g) = [3, 4] %}{{ f * g }}{% with h = 5, i = a + 1 %}{{ h + i }}{% set h = 1 %}{% endwith %}"
           "{{ h is defined }}",
    "macro": "{% macro turn(m, name='X', end=eos_token) -%}\n<{{ name }}>{{ m.content }}{{ end }}\n{%- endmacro %}"
             "{% for m in messages %}{{ turn(m, m.role) }}{{ turn(m, end='!') }}{{ turn(name='N', m=m) }}"
             "{% endfor %}{{ turn({}) }}",
    "macro_rest": "{% macro f(a, b=a) %}{{ a }},{{ b }},{{ varargs }},{{ kwargs }}{% endmacro %}"
                  "{{ f(1) }}|{{ f(1, 2, 3, 4, x=5, y='z') }}|{{ f(*[1, 2], **{'q': 3}) }}",
    "macro_recursive": "{% macro show(v, depth) %}{% if v is mapping %}{% for k in v %}{{ '  ' * depth }}{{ k }}:"
                       "{{ show(v[k], depth + 1) }}\n{% endfor %}{% elif v is iterable and v is not string %}"
                       "{% for i in v %}{{ show(i, depth) }},{% endfor %}{% else %}{{ v }}{% endif %}{% endmacro %}"
                       "{{ show(tools or {'none': [1, 2]}, 0) }}",
    "macro_scope": "{% set x = 1 %}{% macro m() %}{{ x }}{{ y }}{% endmacro %}{% set x = 2 %}{% set y = 3 %}{{ m() }}"
                   "{% macro caller_of() %}<{{ caller('c') }}>{% endmacro %}"
                   "{% call(v) caller_of() %}{{ v }}{{ x }}{% endcall %}",
    "filter_block": "{% filter upper %}ab{{ messages | length }}{% filter trim %} c {% endfilter %}d{% endfilter %}",
    "generation": LOOP + "<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
                  "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
    "generation_lines": "{%- for m in messages %}\n    {%- if m.role == 'assistant' %}\n"
                        "        {% generation %}\n        {{- m.content }}\n        {% endgeneration %}\n"
                        "    {%- else %}\n        {{- m.role + ': ' ~ m.content }}\n    {%- endif %}\n{%- endfor %}",
    "generation_macro": "{% macro g(t) %}-{% generation %}{{ t }}{% endgeneration %}{% endmacro %}x" + LOOP +
                        "{{ g(m.role) }}{% endfor %}",
    "arithmetic": "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }}"
                  " {{ 2 ** -1 }} {{ 1.5 * 2 }} {{ 10 / 4 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ -2 ** 2 }} {{ +3 }}"
                  " {{ 'ab' * 3 }} {{ [1] * 2 + [3] }} {{ true + 1 }} {{ 1_000 }} {{ 1e3 }} {{ 1.0e-7 }} {{ 123456789.125 }}"
                  " {{ 1e16 }} {{ 0.1 + 0.2 }} {{ (1, 2) + (3,) }} {{ 'x' ~ 1 ~ none ~ [1] }} {{ 1e22 }} {{ 100000000000000000.0 }}",
    "comparison": "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }}"
                  " {{ 'a' in 'cat' }} {{ 'x' not in ['x'] }} {{ 1 in {1: 2} }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }}"
                  " {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ none == none }} {{ missing == other }} {{ 'a' != 'b' }}"
                  " {{ [1, 3] > [1, 2] }} {{ 2 >= 2 }} {{ not 1 == 2 }} {{ missing in [1] }} {{ 'k' in missing }}",
    "logic": "{{ 1 and 2 }} {{ 0 or 'x' }} {{ '' and y }} {{ not '' }} {{ none or [] or {} or 'end' }}"
             " {{ 'a' if false }} {{ 'a' if true else 'b' }} {{ 1 if 0 else 2 if 0 else 3 }} {{ not not 5 }}"
             " {{ (1 or 0) and (0 or 'z') }} {{ x.y if x is defined else 'no x' }} {{ true and false or true }}",
    "based_numbers": "{{ 0x1f }} {{ 0XFF_f }} {{ 0o17 }} {{ 0b1_01 }} {{ 0x_a + 1 }} {{ [0x0, 0B0] }}",
    "refused_based": "{{ 0b12 }}",
    "nested_targets": "{% for k, (a, b) in [(1, (2, 3)), (4, [5, 6])] %}{{ k }}{{ a }}{{ b }},{% endfor %}"
                      "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}"
                      "{% for (m) in messages %}{{ m.role }}{% endfor %}{% for (m,) in [[7]] %}{{ m }}{% endfor %}"
                      "{% set (x, y) = (1, 2) %}{% set x, (y, z) = y, (x, 3) %}{{ x }}{{ y }}{{ z }}",
    "literals": "{{ [1, 'a', none, true, 1.5, (), (1,), {}, {'k': 'v', 2: [3]}] }} {{ 'it''s' }} {{ \"q\\\"uo\" }}"
                " {{ 'n\\nt\\tx\\x41\\u00e9\\U0001F600\\\\ \\q \\101' }} {{ ['it\\'s', \"a\\\"b\", 'both\\'\"', 'é\\x00\\x7f\\u200b\\n'] }}"
                " {{ True }}{{ False }}{{ None }} {{ (1) }} {{ (1, 2,) }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ 1, 2 }}",
    "subscript": "{{ messages[0].role if messages }} {{ messages[-1]['role'] if messages }} {{ 'hello'[1] }} {{ 'hello'[-2:] }}"
                 " {{ 'hello'[::-1] }} {{ 'héllo😀x'[1:6] }} {{ [1, 2, 3, 4][1:3] }} {{ [1, 2, 3, 4][::2] }} {{ [1, 2, 3][::-1] }}"
                 " {{ (1, 2, 3)[:2] }} {{ [1, 2][5] is defined }} {{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ 'abc'.0 }}"
                 " {{ {'items': 5}['items'] }} {{ {1: 'one'}[1] }} {{ [[1, 2], [3]][0][1] }} {{ messages[1:] | length }}"
                 " {{ 'abc'[10:] }}| {{ [1, 2, 3][-2:10] }} {{ [1, 2, 3][3:1:-1] }} {{ 'héé'[5] is defined }}",
    "undefined": "{{ missing }}|{{ messages.nothing }}|{{ missing is defined }}|{{ missing | default('d') }}"
                 "|{{ none | default('n') }}|{{ '' | default('e', true) }}|{{ missing | length }}|{% for x in missing %}x{% endfor %}"
                 "|{{ missing | upper }}|{{ 'a' ~ missing }}|{{ [missing] | length }}|{% if missing %}t{% else %}f{% endif %}"
                 "|{{ missing | list }}|{{ missing | join(',') }}|{{ missing | first is defined }}|{{ none.x is defined }}",
    "text_methods": "{% set t = '  Hello, Wörld of Jinja  ' %}{{ t.strip() }}|{{ t.lstrip() }}|{{ t.rstrip() }}|{{ t.upper() }}|"
                    "{{ t.lower() }}|{{ t.strip().title() }}|{{ t.strip().capitalize() }}|{{ t.swapcase() }}|{{ t.find('o') }}|"
                    "{{ t.rfind('o') }}|{{ t.find('zz') }}|{{ t.count('o') }}|{{ t.strip().startswith('Hello') }}|"
                    "{{ t.endswith(('x', '  ')) }}|{{ t.replace('o', '0', 1) }}|{{ t.replace('', '-', 3) }}|{{ 'abc'.replace('', '.') }}|"
                    "{{ 'a,b,,c'.split(',') }}|{{ ' a b  c '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|"
                    "{{ ' a b  c '.split(none, 1) }}|{{ ' a b  c '.rsplit(none, 1) }}|{{ 'a\\nb\\r\\nc\\n'.splitlines() }}|"
                    "{{ 'a\\nb'.splitlines(true) }}|{{ '-'.join(['x', 'y']) }}|{{ 'k=v=w'.partition('=') }}|{{ 'k=v=w'.rpartition('=') }}|"
                    "{{ 'x'.partition('=') }}|{{ 'xxabcxx'.strip('x') }}|{{ 'abc'.removeprefix('a').removesuffix('c') }}|"
                    "{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}|{{ 'ab'.center(7, '*') }}|{{ 'abc'.center(6, '.') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '0') }}",
    "text_tests": "{{ 'abc'.isalpha() }}{{ 'ab1'.isalnum() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ ' \\t'.isspace() }}"
                  "{{ 'ABC'.isupper() }}{{ 'aé1'.islower() }}{{ 'Äb'.isascii() }}{{ '1.5'.isnumeric() }}{{ 'жук'.isalpha() }}"
                  "{{ 'a' is lower }}{{ 'A' is upper }}{{ 'hello world'.index('o', 5) }}{{ 'hello'.find('l', -2) }}",
    "list_methods": "{{ [1, 2, 1].count(1) }} {{ ['a', 'b'].index('b') }} {% set d = {'x': 1, 'y': none} %}{{ d.get('x') }}"
                    " {{ d.get('z') }} {{ d.get('z', 'dflt') }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }}"
                    " {{ d.x }} {{ 'x' in d }} {{ d | length }} {{ dict(a=1, **{'b': 2}) }} {{ dict([('k', 'v')]) }}",
    "filters_text": "{{ 'hello world' | upper | lower | capitalize }}|{{ 'foo-bar (baz) x' | title }}|{{ ' x ' | trim }}|{{ 'xxhixx' | trim('x') }}|"
                    "{{ 'aaa' | replace('a', 'b', 2) }}|{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb\\n' | indent(2, true) }}|{{ 'a\\n\\nb' | indent('> ', blank=true) }}|"
                    "{{ 'hi there everyone' | truncate(9) }}|{{ 'hi there everyone' | truncate(9, true, '…', 0) }}|{{ 'one two-three' | wordcount }}|"
                    "{{ 'ab' | center(6) }}|{{ 42 | string + '!' }}|{{ '<a href=\"x\">&\\'</a>' | e }}|{{ '<b>' | safe }}|{{ '%s-%05.1f-%d%%' | format('x', 3.14159, 42) }}|"
                    "{{ '%(a)s %(b)3d' | format(a='A', b=7) }}|{{ 'héllo' | length }}",
    "filters_list": "{% set l = [3, 1, 2, 1] %}{{ l | sort }}|{{ l | sort(reverse=true) }}|{{ l | unique | list }}|{{ l | min }}{{ l | max }}{{ l | sum }}|"
                    "{{ l | first }}{{ l | last }}{{ l | length }}{{ l | count }}|{{ l | reverse | list }}|{{ 'abc' | reverse }}|{{ l | join('-') }}|"
                    "{{ ['b', 'A', 'c', 'a'] | sort }}|{{ ['b', 'A', 'c', 'a'] | sort(case_sensitive=true) }}|{{ ['b', 'B', 'a'] | unique | list }}|"
                    "{{ l | batch(3, 0) | list }}|{{ l | slice(3) | list }}|{{ [5, 6, 7, 8] | slice(3, 'x') | list }}|{{ 'abc' | list }}|{{ {'b': 1, 'a': 2} | dictsort }}|"
                    "{{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) }}|{{ {'a': 1} | items | list }}|{{ [] | first is defined }}|{{ [[1, 2], [3]] | sum(start=[]) }}",
    "filters_map": "{{ messages | map(attribute='role') | join(', ') }}|{{ messages | map(attribute='name', default='-') | list }}|"
                   "{{ ['a', 'b'] | map('upper') | list }}|{{ [1, 2, 3, 4] | select('even') | list }}|{{ [1, 2, 3] | reject('odd') | list }}|"
                   "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|{{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }}|"
                   "{{ messages | selectattr('tool_calls') | list | length }}|{{ messages | selectattr('tool_calls', 'defined') | list | length }}|"
                   "{{ [0, 1, '', 'x'] | select | list }}|{{ [1, 'a', none] | reject('none') | map('string') | list }}|"
                   "{% for role, group in messages | groupby('role') %}{{ role }}:{{ group | length }},{% endfor %}|"
                   "{% for g in messages | groupby('role') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}|"
                   "{{ [{'a': {'b': 2}}, {'a': {'b': 1}}] | sort(attribute='a.b') | map(attribute='a.b') | list }}|{{ ['x'] | map('default', 'y') | list }}",
    "filters_number": "{{ -5 | abs }} {{ '42' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '1f' | int(0, 16) }} {{ '0x1A' | int(0, 16) }}"
                      " {{ '3.5' | float }} {{ 'y' | float(1.5) }} {{ 3.14159 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 7 | round }} {{ 42.55 | round(1, 'floor') }}"
                      " {{ 42.51 | round(1, 'ceil') }} {{ 3.99 | int }} {{ true | int }} {{ ' 7 ' | int }} {{ '1_000' | int }} {{ 1234.5678 | round(-2) }} {{ (-3) | abs }} {{ 2.675 | round(2) }}",
    "tests": "{{ 1 is odd }}{{ 2 is even }}{{ 9 is divisibleby 3 }}{{ none is none }}{{ 1 is number }}{{ 1.0 is float }}{{ 1 is integer }}{{ true is integer }}"
             "{{ true is boolean }}{{ true is true }}{{ 1 is true }}{{ 0 is false }}{{ 'a' is string }}{{ [] is sequence }}{{ {} is mapping }}{{ 'a' is iterable }}"
             "{{ 1 is iterable }}{{ messages is sequence }}{{ range is callable }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 3 is greaterthan 2 }}{{ 2 is in [1, 2] }}"
             "{{ 'x' is not in 'abc' }}{{ 1 is sameas 1 }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'nope' is filter }}{{ 1 is not defined }}{{ 'a' is defined and 'b' is string }}"
             "{{ (1, 2) is sequence }}{{ none is defined }}{{ 3 is odd or x }}{{ 1 == 1 is true }}",
    "tojson": "{{ tools | tojson }}\n{{ tools | tojson(indent=2) }}\n{{ messages | tojson(indent=4) }}\n{{ {'b': 1, 'a': [1.0, 1e20, none, true, 'é\"\\n<>&\\x07😀']} | tojson }}"
              "\n{{ {'b': 1, 'a': {}} | tojson(sort_keys=true, indent=1) }}\n{{ 'é😀\\x7f' | tojson(ensure_ascii=true) }}\n{{ [1, {'a': []}] | tojson(separators=(',', ':')) }}"
              "\n{{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }}{{ [] | tojson(indent=2) }}{{ (1, 2) | tojson }}{{ 'x' | tojson(indent='\\t') }}{{ [1] | tojson(indent='--') }}",
    "format": "{{ '%s is %d years, %.2f, %5s|%-5s|%05d|%x|%X|%o|%e|%g|%+d|%r|%%' % ('Al', 30, 1.005, 'r', 'l', 42, 255, 255, 8, 12345.678, 0.0001, 5, 'q') }}"
              " {{ '%s' % 'one' }} {{ '%s %s' % (1, [2]) }} {{ '{} {}'.format('a', 1) }} {{ '{1}{0}{name}'.format('x', 'y', name='z') }} {{ '{:>6}|{:<6}|{:^6}|{:*^7}'.format('a', 'b', 'c', 'd') }}"
              " {{ '{:.2f} {:05d} {:,} {:+} {:x} {:.1%} {:e}'.format(3.14159, 42, 1234567, 5, 255, 0.256, 1234.5) }} {{ '{{}} {0[k]} {0}'.format({'k': 1}) }} {{ '{!r:>5}'.format('a') }}{{ '{:.3}'.format('abcdef') }}"
              " {{ '{:g} {} {}'.format(1e10, 1.0, none) }}{{ '%(x)s' % {'x': 1} }}",
    "globals": "{{ range(5) | list }}{{ range(2, 10, 3) | list }}{{ range(5, 0, -2) | list }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}"
               "{{ c.reset() }}{{ c.current }}{% set j = joiner('; ') %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %} {{ strftime_now('%Y-%m-%d %H:%M') }} {{ strftime_now('%d %b %Y') }}",
    "raise": "{% if not messages %}{{ raise_exception('no messages') }}{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('Roles must alternate user/assistant, not ' ~ m.role) }}{% endif %}{{ m.content }}{% endfor %}",
    "tool_calls": "{%- if tools %}\n    {{- '# Tools\\n' }}\n    {%- for tool in tools %}\n        {{- tool | tojson }}\n        {{- \"\\n\" }}\n    {%- endfor %}\n{%- endif %}\n"
                  "{%- for message in messages %}\n    {%- set content = message.content if message.content is string else '' %}\n"
                  "    {%- if message.role == 'assistant' and message.tool_calls %}\n        {%- for call in message.tool_calls %}\n"
                  "            {%- if call.function %}{%- set call = call.function %}{%- endif %}\n"
                  "            {{- '<call>{\"name\": \"' + call.name + '\", \"arguments\": ' }}\n"
                  "            {{- call.arguments if call.arguments is string else call.arguments | tojson }}\n            {{- '}</call>' }}\n        {%- endfor %}\n"
                  "    {%- elif message.role == 'tool' %}\n        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<results>' }}{%- endif %}\n"
                  "        {{- content }}\n    {%- else %}\n        {{- message.role ~ ': ' ~ content ~ '\\n' }}\n    {%- endif %}\n{%- endfor %}\n",
    "thinking": "{%- set ns = namespace(last=messages | length - 1, multi=true) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages | length - 1) - loop.index0 %}\n"
                "    {%- if ns.multi and message.role == 'user' and message.content is string %}\n        {%- set ns.multi = false %}\n        {%- set ns.last = index %}\n    {%- endif %}\n{%- endfor %}\n"
                "{%- for message in messages %}\n    {%- set content = message.content if message.content is string else '' %}\n    {%- set thought = '' %}\n"
                "    {%- if message.reasoning_content is string %}\n        {%- set thought = message.reasoning_content %}\n    {%- elif '</think>' in content %}\n"
                "        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n    {%- endif %}\n"
                "    {{- '<|' ~ message.role ~ '|>' }}{%- if loop.index0 > ns.last and (loop.last or thought) %}{{- '<t>' ~ thought.strip('\\n') ~ '</t>' }}{%- endif %}{{- content }}\n{%- endfor %}",
    "content_parts": "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% elif m.content is iterable %}{% for part in m.content %}"
                     "{% if part.type == 'text' %}{{ part.text }}{% elif part['type'] in ['image', 'video'] %}<{{ part.type }}>{% else %}?{% endif %}{% endfor %}{% endif %};{% endfor %}",
    "system_first": "{% if messages and messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
                    "{% for m in rest %}{% if loop.index0 == 0 and system %}{% set content = '<<' + system + '>>' + (m['content'] | string) %}{% else %}{% set content = m['content'] %}{% endif %}{{ content }}|{% endfor %}",
    "signature": "{%- macro kind(t) %}{%- if t is string %}{{- t }}{%- elif t is iterable %}{{- t | join(' | ') }}{%- else %}any{%- endif %}{%- endmacro %}{%- for tool in tools or [] %}"
                 "{%- set f = tool.function %}function {{ f.name }}({% for name, p in (f.parameters.properties or {}).items() | sort %}{{ name }}{% if name not in f.parameters.required %}?{% endif %}: {{ kind(p.type) }}"
                 "{% if p.default is defined %} = {{ p.default }}{% endif %}{% if not loop.last %}, {% endif %}{% endfor %}) // {{ f.description | default('none', true) | replace('\\n', ' ') }}\n{% endfor %}",
    "custom": "{% if custom is defined %}{{ custom.n }} {{ custom.x | round(3) }} {{ custom.words | sort | join }} {{ custom['deep']['z'] | sort(reverse=True) }} {{ custom }}{% endif %}",
    "print_messages": "{{ messages }}\n{{ messages | string | length }}",
    "nested_if": "{% for m in messages %}{% if m.role == 'user' %}{% if m.content %}{% if m.content is string and m.content | length > 5 %}long{% elif m.content is not string %}odd{% else %}short{% endif %}{% endif %}"
                 "{% else %}{% if m.role == 'assistant' %}a{% else %}{{ m.role }}{% endif %}{% endif %} {% endfor %}",
    "colon": "{% if true: %}x{% endif %}{% for i in [1]: %}{{ i }}{% endfor %}",
    "braces": "{{ {'a': {'b': 1}}['a'] }}{{ {'x': '}}'}.x }}{{ '{{' }}{{ \"%}\" }}} {",
    "precedence": "{{ 2 * 3 ~ 4 }} {{ -1 | abs }} {{ 'a' + 'b' | upper }} {{ not 1 in [2] }} {{ 1 in [1] == true }} {{ 2 ** 3 ** 2 }} {{ 'x' if 1 else 'y' ~ 'z' }} {{ [1, 2] | length > 1 }} {{ 10 - 2 - 3 }}",
    "shadow": "{% set range = 5 %}{{ range }}{% set loop = 'l' %}{{ loop }}{% for loop_ in [1] %}{{ loop.index }}{% endfor %}{{ loop }}{% set messages = ['m'] %}{{ messages }}",
    "refused_syntax": "{% if %}x{% endif %}",
    "refused_end": "{% for m in messages %}x",
    "refused_tag": "{% nothing %}",
    "refused_filter": "{{ 'x' | nothing }}",
    "refused_attribute": "{{ missing.attribute }}",
    "refused_add": "{{ 1 + 'a' }}",
    "refused_loop": "{% for x in 5 %}{% endfor %}",
    "refused_call": "{{ missing() }}",
    "refused_unpack": "{% set a, b = [1, 2, 3] %}",
    "refused_argument": "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "refused_compare": "{{ 1 < 'a' }}",
    "refused_update": "{{ {}.update({'a': 1}) }}",
}
