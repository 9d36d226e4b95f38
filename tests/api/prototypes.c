/* prototypes.c: today's declarations of the recorded functions follow the recorded declarations.
 * The file does not compile if parameters or results have changed. */
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/doctor.h>
#include <tide/inspect.h>
#include <tide/optimizer.h>

#include CURRENT_FUNCTIONS
