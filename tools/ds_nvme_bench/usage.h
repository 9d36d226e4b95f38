/* usage.h: processor time of the process. No state. */
#ifndef TOOLS_DS_NVME_BENCH_USAGE_H
#define TOOLS_DS_NVME_BENCH_USAGE_H

/* User and system time of all threads. */
double bench_cpu_seconds(void);

#endif
