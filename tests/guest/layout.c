/* layout.c: prints offsets, sizes and enumerators of the headers that guests mirror.
 * tests/api/names.awk makes GUEST_NAMES. */
#include <stddef.h>
#include <stdio.h>
#include <tide/blocks.h>
#include <tide/engine.h>
#include <tide/optimizer.h>

#define FIELD(owner, field)                                                                        \
    printf("%s.%s %zu %zu\n", #owner, #field, offsetof(struct owner, field),                       \
           sizeof(((struct owner *)NULL)->field));
#define VALUE(name) printf("%s %d 0\n", #name, (int)(name));
#define FUNCTION(name)

int main(void)
{
#include GUEST_NAMES
    return 0;
}
