/* look.h: what an extent file says of itself, for who only looks: nothing is written, its directory's
 * lock is not taken, and a run that has it, takes it over or ends meanwhile does not notice.
 * Any thread. */
#ifndef AIO_LOOK_H
#define AIO_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct aio_look {
    bool in_use;  /* a running process has the file, or had it a moment ago: the kernel ends what a
                             killed one had under way first */
    uint64_t run; /* that made it; 0 where the header is not there or not sound */
    uint64_t process;     /* the same */
    uint64_t bytes;       /* of the file, as it is */
    uint32_t path, paths; /* which of its store's paths this is, and how many these are */
};

/* Looks at the extent file of a directory. -ENOENT without a sentence: there is none. -EBADMSG: it is
 * not sound, and the sentence says what of it; *out is filled in all the same. */
int aio_look(const char *directory, struct aio_look *out);

#endif
