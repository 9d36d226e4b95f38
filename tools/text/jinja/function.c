/* function.c: finds functions, checks their arguments, and has the tests. */
#include "tools/text/jinja/function.h"

#include <errno.h>
#include <string.h>

const struct jinja_function *jinja_function_find(const struct jinja_function *rows,
                                                 const char *name, size_t bytes)
{
    for (; rows->name != NULL; rows++) {
        if (strlen(rows->name) == bytes && memcmp(rows->name, name, bytes) == 0) {
            return rows;
        }
    }
    return NULL;
}

/* Whether the name is one of the parameters. */
static bool is_parameter(const char *parameters, const char *name, size_t bytes)
{
    for (const char *at = parameters; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, name, bytes) == 0) {
            return true;
        }
        at += length + (at[length] == ' ');
    }
    return false;
}

static size_t count_parameters(const char *parameters)
{
    size_t count = *parameters != '\0';
    for (const char *at = parameters; *at != '\0'; at++) {
        count += *at == ' ';
    }
    return count;
}

struct jinja_value jinja_function_call(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    const bool any = strchr(function->parameters, '*') != NULL;
    const size_t most = count_parameters(function->parameters);
    if (!any && arguments->count > most) {
        return jinja_fail(run, -EINVAL, "%s takes %zu arguments, but %zu were given",
                          function->name, most, arguments->count);
    }
    if (arguments->named != NULL && !jinja_step(run, arguments->named->count)) {
        return jinja_undefined("");
    }
    for (size_t i = 0; !any && arguments->named != NULL && i < arguments->named->count; i++) {
        const struct jinja_value name = arguments->named->pairs[i].key;
        if (!is_parameter(function->parameters, name.as.text, name.bytes)) {
            return jinja_fail(run, -EINVAL, "%s has no argument '%.*s'", function->name,
                              (int)(name.bytes < 60 ? name.bytes : 60), name.as.text);
        }
    }
    return function->call(run, self, arguments);
}

struct jinja_value jinja_argument(const struct jinja_arguments *arguments, size_t index,
                                  const char *name, struct jinja_value otherwise)
{
    if (index < arguments->count) {
        return arguments->items[index];
    }
    const struct jinja_value *found = arguments->named != NULL
                                          ? jinja_dict_get(arguments->named, name, strlen(name))
                                          : NULL;
    return found != NULL ? *found : otherwise;
}

bool jinja_argument_truth(const struct jinja_arguments *arguments, size_t index, const char *name,
                          bool otherwise)
{
    return jinja_truth(jinja_argument(arguments, index, name, jinja_bool(otherwise)));
}

int64_t jinja_argument_integer(struct jinja_run *run, const struct jinja_arguments *arguments,
                               size_t index, const char *name, int64_t otherwise)
{
    const struct jinja_value value = jinja_argument(arguments, index, name,
                                                    jinja_integer(otherwise));
    if (value.kind == JINJA_BOOL) {
        return value.as.truth;
    }
    if (value.kind != JINJA_INTEGER) {
        jinja_fail(run, -EINVAL, "%s must be an int, found '%s'", name, jinja_type_name(value));
        return otherwise;
    }
    return value.as.integer;
}

struct jinja_value jinja_argument_text(struct jinja_run *run,
                                       const struct jinja_arguments *arguments, size_t index,
                                       const char *name, const char *otherwise)
{
    const struct jinja_value value = jinja_argument(
        arguments, index, name,
        otherwise != NULL ? jinja_string(otherwise, strlen(otherwise)) : jinja_undefined(name));
    if (value.kind != JINJA_STRING) {
        jinja_fail(run, -EINVAL, "%s must be a str, found '%s'", name, jinja_type_name(value));
        return jinja_string("", 0);
    }
    return value;
}

struct jinja_value jinja_bind(struct jinja_run *run, struct jinja_value self,
                              const struct jinja_function *function)
{
    struct jinja_method *method = jinja_alloc(run, sizeof *method);
    if (method == NULL) {
        return jinja_undefined("");
    }
    *method = (struct jinja_method){.self = self, .function = function};
    return (struct jinja_value){.kind = JINJA_METHOD, .as.method = method};
}

/* ---- tests (after `is`) ---- */

#define TEST_FUNCTION(name, condition)                                                             \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value self,                 \
                                   const struct jinja_arguments *arguments)                        \
    {                                                                                              \
        (void)run;                                                                                 \
        (void)self;                                                                                \
        (void)arguments;                                                                           \
        return jinja_bool(condition);                                                              \
    }

static bool is_sequence(struct jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE ||
           value.kind == JINJA_DICT || value.kind == JINJA_UNDEFINED;
}

static bool is_callable(struct jinja_value value)
{
    return value.kind == JINJA_MACRO || value.kind == JINJA_METHOD || value.kind == JINJA_LOOP ||
           value.kind == JINJA_JOINER || value.kind == JINJA_UNDEFINED;
}

static bool calls_method(struct jinja_run *run, struct jinja_value self, const char *name,
                         size_t bytes)
{
    const struct jinja_arguments nothing = {0};
    const struct jinja_value text = jinja_to_string(run, self);
    const struct jinja_function *method = run->links->find_method(JINJA_STRING, name, bytes);
    return run->rc == 0 && jinja_truth(jinja_function_call(run, method, text, &nothing));
}

static struct jinja_value other_argument(const struct jinja_arguments *arguments)
{
    return jinja_argument(arguments, 0, "other", jinja_undefined("other"));
}

/* The remainder of a division; -1 if the value is not a number. */
static double remainder_of(struct jinja_run *run, struct jinja_value self, int64_t divisor)
{
    if (!jinja_is_number(self)) {
        jinja_fail(run, -EINVAL, "expected a number, not %s", jinja_type_name(self));
        return -1;
    }
    return jinja_number(jinja_operate(run, "%", self, jinja_integer(divisor)));
}

static bool is_same(struct jinja_run *run, struct jinja_value left, struct jinja_value right)
{
    const bool plain = left.kind < JINJA_LIST || right.kind < JINJA_LIST;
    return left.kind == right.kind &&
           (plain ? jinja_equal(run, left, right) : left.as.list == right.as.list);
}

TEST_FUNCTION(is_defined, self.kind != JINJA_UNDEFINED)
TEST_FUNCTION(is_undefined, self.kind == JINJA_UNDEFINED)
TEST_FUNCTION(is_none, self.kind == JINJA_NONE)
TEST_FUNCTION(is_boolean, self.kind == JINJA_BOOL)
TEST_FUNCTION(is_true, self.kind == JINJA_BOOL && self.as.truth)
TEST_FUNCTION(is_false, self.kind == JINJA_BOOL && !self.as.truth)
TEST_FUNCTION(is_integer, self.kind == JINJA_INTEGER)
TEST_FUNCTION(is_float, self.kind == JINJA_REAL)
TEST_FUNCTION(is_number, jinja_is_number(self))
TEST_FUNCTION(is_string, self.kind == JINJA_STRING)
TEST_FUNCTION(is_mapping, self.kind == JINJA_DICT)
TEST_FUNCTION(is_iterable, is_sequence(self) || self.kind == JINJA_LOOP)
TEST_FUNCTION(is_sequence_, is_sequence(self))
TEST_FUNCTION(is_callable_, is_callable(self))
TEST_FUNCTION(is_escaped, false)
TEST_FUNCTION(is_lower, calls_method(run, self, "islower", 7))
TEST_FUNCTION(is_upper, calls_method(run, self, "isupper", 7))
TEST_FUNCTION(is_odd, remainder_of(run, self, 2) == 1)
TEST_FUNCTION(is_even, remainder_of(run, self, 2) == 0)
TEST_FUNCTION(is_in, jinja_contains(run, other_argument(arguments), self))
TEST_FUNCTION(is_equal, jinja_equal(run, self, other_argument(arguments)))
TEST_FUNCTION(is_not_equal, !jinja_equal(run, self, other_argument(arguments)))
TEST_FUNCTION(is_less, jinja_compare(run, self, other_argument(arguments)) < 0)
TEST_FUNCTION(is_less_equal, jinja_compare(run, self, other_argument(arguments)) <= 0)
TEST_FUNCTION(is_greater, jinja_compare(run, self, other_argument(arguments)) > 0)
TEST_FUNCTION(is_greater_equal, jinja_compare(run, self, other_argument(arguments)) >= 0)
TEST_FUNCTION(is_same_as, is_same(run, self, other_argument(arguments)))
TEST_FUNCTION(is_filter, self.kind == JINJA_STRING &&
                             run->links->find_filter(self.as.text, self.bytes) != NULL)
TEST_FUNCTION(is_test,
              self.kind == JINJA_STRING && jinja_test_find(self.as.text, self.bytes) != NULL)

static struct jinja_value is_divisible(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    return jinja_bool(
        remainder_of(run, self, jinja_argument_integer(run, arguments, 0, "num", 0)) == 0);
}

const struct jinja_function *jinja_test_find(const char *name, size_t bytes)
{
    static const struct jinja_function rows[] = {
        {"defined", is_defined, ""},
        {"undefined", is_undefined, ""},
        {"none", is_none, ""},
        {"boolean", is_boolean, ""},
        {"true", is_true, ""},
        {"false", is_false, ""},
        {"integer", is_integer, ""},
        {"float", is_float, ""},
        {"number", is_number, ""},
        {"string", is_string, ""},
        {"mapping", is_mapping, ""},
        {"iterable", is_iterable, ""},
        {"sequence", is_sequence_, ""},
        {"callable", is_callable_, ""},
        {"escaped", is_escaped, ""},
        {"lower", is_lower, ""},
        {"upper", is_upper, ""},
        {"odd", is_odd, ""},
        {"even", is_even, ""},
        {"divisibleby", is_divisible, "num"},
        {"in", is_in, "other"},
        {"eq", is_equal, "other"},
        {"equalto", is_equal, "other"},
        {"==", is_equal, "other"},
        {"ne", is_not_equal, "other"},
        {"!=", is_not_equal, "other"},
        {"lt", is_less, "other"},
        {"lessthan", is_less, "other"},
        {"<", is_less, "other"},
        {"le", is_less_equal, "other"},
        {"<=", is_less_equal, "other"},
        {"gt", is_greater, "other"},
        {"greaterthan", is_greater, "other"},
        {">", is_greater, "other"},
        {"ge", is_greater_equal, "other"},
        {">=", is_greater_equal, "other"},
        {"sameas", is_same_as, "other"},
        {"filter", is_filter, ""},
        {"test", is_test, ""},
        {NULL, NULL, NULL},
    };
    return jinja_function_find(rows, name, bytes);
}

/* ---- all filters and methods by their names ---- */

const struct jinja_function *jinja_filter_find(const char *name, size_t bytes)
{
    static const struct jinja_function *const tables[] = {
        jinja_filters_text, jinja_filters_list, jinja_filters_select, jinja_filters_number};
    const struct jinja_function *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && found == NULL; i++) {
        found = jinja_function_find(tables[i], name, bytes);
    }
    return found;
}

const struct jinja_function *jinja_method_find(enum jinja_kind kind, const char *name, size_t bytes)
{
    const struct jinja_function *found = NULL;
    if (kind == JINJA_STRING) {
        found = jinja_function_find(jinja_methods_text, name, bytes);
        return found != NULL ? found : jinja_function_find(jinja_methods_search, name, bytes);
    }
    if (kind == JINJA_LIST || kind == JINJA_TUPLE) {
        return jinja_function_find(jinja_methods_list, name, bytes);
    }
    if (kind == JINJA_DICT) {
        return jinja_function_find(jinja_methods_dict, name, bytes);
    }
    return kind == JINJA_REAL || kind == JINJA_INTEGER
               ? jinja_function_find(jinja_methods_number, name, bytes)
               : NULL;
}
