/* tests.c: what may follow `is` in templates. */
#include <errno.h>

#include "tools/text/jinja/function.h"

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
    return jinja_is_str(value) || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE ||
           value.kind == JINJA_RANGE || value.kind == JINJA_DICT || value.kind == JINJA_UNDEFINED;
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

/* Fails the run and returns -1 if the value is not a number. */
static double remainder_of(struct jinja_run *run, struct jinja_value self, int64_t divisor)
{
    if (!jinja_is_number(self)) {
        jinja_fail(run, -EINVAL, "expected a number, not %s", jinja_type_name(self));
        return -1;
    }
    return jinja_number(jinja_operate(run, "%", self, jinja_integer(divisor)));
}

/* Whether equal strings, floats and large ints are one object depends on how Python made them. */
static bool is_same(struct jinja_run *run, struct jinja_value left, struct jinja_value right)
{
    if (left.kind != right.kind) {
        return false;
    }
    if (left.kind >= JINJA_LIST) {
        return left.as.list == right.as.list;
    }
    const bool equal = jinja_equal(run, left, right);
    const bool small = left.kind == JINJA_INTEGER && left.as.integer >= -5 &&
                       left.as.integer <= 256;
    if (equal && (jinja_is_str(left) || left.kind == JINJA_REAL || left.kind == JINJA_UNDEFINED ||
                  (left.kind == JINJA_INTEGER && !small))) {
        jinja_fail(run, -EINVAL, "sameas of two equal values of type %s is not supported",
                   jinja_type_name(left));
    }
    return equal;
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
TEST_FUNCTION(is_string, jinja_is_str(self))
TEST_FUNCTION(is_mapping, self.kind == JINJA_DICT)
TEST_FUNCTION(is_iterable, is_sequence(self) || jinja_has_list(self) || self.kind == JINJA_LOOP)
TEST_FUNCTION(is_sequence_, is_sequence(self))
TEST_FUNCTION(is_callable_, is_callable(self))
TEST_FUNCTION(is_escaped, self.kind == JINJA_MARKUP)
TEST_FUNCTION(is_lower, calls_method(run, self, "islower", 7))
TEST_FUNCTION(is_upper, calls_method(run, self, "isupper", 7))
TEST_FUNCTION(is_odd, remainder_of(run, self, 2) == 1)
TEST_FUNCTION(is_even, remainder_of(run, self, 2) == 0)
TEST_FUNCTION(is_in, jinja_contains(run, jinja_argument(arguments, 0, "seq", jinja_none()), self))
TEST_FUNCTION(is_equal, jinja_equal(run, self, other_argument(arguments)))
TEST_FUNCTION(is_not_equal, !jinja_equal(run, self, other_argument(arguments)))
TEST_FUNCTION(is_less, jinja_compare(run, self, other_argument(arguments)) < 0)
TEST_FUNCTION(is_less_equal, jinja_compare(run, self, other_argument(arguments)) <= 0)
TEST_FUNCTION(is_greater, jinja_compare(run, self, other_argument(arguments)) > 0)
TEST_FUNCTION(is_greater_equal, jinja_compare(run, self, other_argument(arguments)) >= 0)
TEST_FUNCTION(is_same_as, is_same(run, self, other_argument(arguments)))
TEST_FUNCTION(is_filter, jinja_hashable(run, self) && jinja_is_str(self) &&
                             run->links->find_filter(self.as.text, self.bytes) != NULL)
TEST_FUNCTION(is_test, jinja_hashable(run, self) && jinja_is_str(self) &&
                           jinja_test_find(self.as.text, self.bytes) != NULL)

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
        {"in", is_in, "seq"},
        {"eq", is_equal, "-other"},
        {"equalto", is_equal, "-other"},
        {"==", is_equal, "-other"},
        {"ne", is_not_equal, "-other"},
        {"!=", is_not_equal, "-other"},
        {"lt", is_less, "-other"},
        {"lessthan", is_less, "-other"},
        {"<", is_less, "-other"},
        {"le", is_less_equal, "-other"},
        {"<=", is_less_equal, "-other"},
        {"gt", is_greater, "-other"},
        {"greaterthan", is_greater, "-other"},
        {">", is_greater, "-other"},
        {"ge", is_greater_equal, "-other"},
        {">=", is_greater_equal, "-other"},
        {"sameas", is_same_as, "other"},
        {"filter", is_filter, ""},
        {"test", is_test, ""},
        {NULL, NULL, NULL},
    };
    return jinja_function_find(rows, name, bytes);
}
