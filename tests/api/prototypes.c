/* prototypes.c: declares the recorded functions again, with today's headers; the compiler refuses
 * differences. */
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/doctor.h>
#include <tide/inspect.h>
#include <tide/optimizer.h>

#include CURRENT_FUNCTIONS
