/* tool.h: runs the built program and keeps its output. One thread. */
#ifndef TESTS_DS_NVME_BENCH_TOOL_H
#define TESTS_DS_NVME_BENCH_TOOL_H

#include <sys/types.h>

extern char *tool_out; /* of the last run */
extern char *tool_err;

/* Returns a path in the case's directory, valid for four calls. */
const char *tool_path(const char *name);
/* Returns the measured directory, and creates it if it is missing. */
const char *tool_drive(void);
void tool_check_empty(const char *path);

/* Starts a program of tools/ with words separated by spaces; its process calls `prepare` first. */
pid_t tool_start(const char *program, const char *arguments, void (*prepare)(void));
/* Waits for the end, and returns the exit code. */
int tool_finish(pid_t child);
int tool_run_prepared(const char *arguments, void (*prepare)(void));
int tool_run(const char *arguments);

#define TOOL_SMALL "--io_size 64M --runtime 0.1 --ramp_time 0 --loops 1 --queue_depth 4 "
/* Returns "TOOL_SMALL --nvme_dir DRIVE OPTIONS". */
const char *tool_with_drive(const char *options);

#endif
