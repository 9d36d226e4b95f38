/* test.c: what may stand behind `is`. */
#include <errno.h>

#include "tools/text/template/function.h"

#define TEST_FUNCTION(name, condition)                                                             \
    static struct template_value name(struct text_template_run *run, struct template_value self,   \
                                      const struct template_arguments *arguments)                  \
    {                                                                                              \
        (void)run;                                                                                 \
        (void)self;                                                                                \
        (void)arguments;                                                                           \
        return template_bool(condition);                                                           \
    }

static bool is_sequence(struct template_value value)
{
    return value.kind == TEMPLATE_STRING || value.kind == TEMPLATE_LIST ||
           value.kind == TEMPLATE_TUPLE || value.kind == TEMPLATE_DICT ||
           value.kind == TEMPLATE_UNDEFINED;
}

static bool is_callable(struct template_value value)
{
    return value.kind == TEMPLATE_MACRO || value.kind == TEMPLATE_METHOD ||
           value.kind == TEMPLATE_LOOP || value.kind == TEMPLATE_JOINER ||
           value.kind == TEMPLATE_UNDEFINED;
}

static bool calls_method(struct text_template_run *run, struct template_value self,
                         const char *name, size_t bytes)
{
    const struct template_arguments nothing = {0};
    const struct template_value text = template_to_string(run, self);
    const struct template_function *method = template_method_find(TEMPLATE_STRING, name, bytes);
    return run->code == 0 && template_truth(template_function_call(run, method, text, &nothing));
}

static struct template_value other(const struct template_arguments *arguments)
{
    return template_argument(arguments, 0, "other", template_undefined("other"));
}

/* What is left of a number when it is divided; -1 where it is none. */
static double rest(struct text_template_run *run, struct template_value self, int64_t divisor)
{
    if (!template_is_number(self)) {
        template_fail(run, -EINVAL, "a number was expected, not %s", template_type_name(self));
        return -1;
    }
    return template_number(template_operate(run, "%", self, template_integer(divisor)));
}

static bool is_same(struct text_template_run *run, struct template_value left,
                    struct template_value right)
{
    const bool plain = left.kind < TEMPLATE_LIST || right.kind < TEMPLATE_LIST;
    return left.kind == right.kind &&
           (plain ? template_equal(run, left, right) : left.as.list == right.as.list);
}

TEST_FUNCTION(is_defined, self.kind != TEMPLATE_UNDEFINED)
TEST_FUNCTION(is_undefined, self.kind == TEMPLATE_UNDEFINED)
TEST_FUNCTION(is_none, self.kind == TEMPLATE_NONE)
TEST_FUNCTION(is_boolean, self.kind == TEMPLATE_BOOL)
TEST_FUNCTION(is_true, self.kind == TEMPLATE_BOOL && self.as.truth)
TEST_FUNCTION(is_false, self.kind == TEMPLATE_BOOL && !self.as.truth)
TEST_FUNCTION(is_integer, self.kind == TEMPLATE_INTEGER)
TEST_FUNCTION(is_float, self.kind == TEMPLATE_REAL)
TEST_FUNCTION(is_number, template_is_number(self))
TEST_FUNCTION(is_string, self.kind == TEMPLATE_STRING)
TEST_FUNCTION(is_mapping, self.kind == TEMPLATE_DICT)
TEST_FUNCTION(is_iterable, is_sequence(self) || self.kind == TEMPLATE_LOOP)
TEST_FUNCTION(is_sequence_, is_sequence(self))
TEST_FUNCTION(is_callable_, is_callable(self))
TEST_FUNCTION(is_escaped, false)
TEST_FUNCTION(is_lower, calls_method(run, self, "islower", 7))
TEST_FUNCTION(is_upper, calls_method(run, self, "isupper", 7))
TEST_FUNCTION(is_odd, rest(run, self, 2) == 1)
TEST_FUNCTION(is_even, rest(run, self, 2) == 0)
TEST_FUNCTION(is_in, template_contains(run, other(arguments), self))
TEST_FUNCTION(is_equal, template_equal(run, self, other(arguments)))
TEST_FUNCTION(is_not_equal, !template_equal(run, self, other(arguments)))
TEST_FUNCTION(is_less, template_compare(run, self, other(arguments)) < 0)
TEST_FUNCTION(is_less_equal, template_compare(run, self, other(arguments)) <= 0)
TEST_FUNCTION(is_greater, template_compare(run, self, other(arguments)) > 0)
TEST_FUNCTION(is_greater_equal, template_compare(run, self, other(arguments)) >= 0)
TEST_FUNCTION(is_same_as, is_same(run, self, other(arguments)))
TEST_FUNCTION(is_filter, self.kind == TEMPLATE_STRING &&
                             template_filter_find(self.as.text, self.bytes) != NULL)
TEST_FUNCTION(is_test,
              self.kind == TEMPLATE_STRING && template_test_find(self.as.text, self.bytes) != NULL)

static struct template_value is_divisible(struct text_template_run *run, struct template_value self,
                                          const struct template_arguments *arguments)
{
    return template_bool(rest(run, self, template_argument_integer(run, arguments, 0, "num", 0)) ==
                         0);
}

const struct template_function *template_test_find(const char *name, size_t bytes)
{
    static const struct template_function rows[] = {
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
    return template_function_find(rows, name, bytes);
}
