/* version.h: the version, compiler and commit of this build. */
#ifndef TOOLS_DS_NVME_BENCH_VERSION_H
#define TOOLS_DS_NVME_BENCH_VERSION_H

const char *bench_version(void);  /* "0.1.0" */
const char *bench_compiler(void); /* "gcc 12.2.0" */
const char *bench_commit(void);   /* short hash, or "unknown" */

#endif
