/* prototypes.c: declares recorded functions a second time, as today. It does not compile if
 * parameters or results have changed. */
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/doctor.h>
#include <tide/inspect.h>
#include <tide/optimizer.h>

#include CURRENT_FUNCTIONS
