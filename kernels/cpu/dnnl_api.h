/* dnnl_api.h: the functions of oneDNN that product_dnnl.c calls.
 * The library is opened at run time: its OpenMP reads OMP_WAIT_POLICY when it is loaded, and the
 * tide command sets that to passive before, unless the user has set it. */
#ifndef KERNELS_CPU_DNNL_API_H
#define KERNELS_CPU_DNNL_API_H

#define DNNL_FUNCTIONS(each)                                                                       \
    each(dnnl_engine_create) each(dnnl_engine_destroy) each(dnnl_stream_create)                    \
        each(dnnl_stream_destroy) each(dnnl_stream_wait) each(dnnl_memory_desc_init_by_strides)    \
            each(dnnl_memory_desc_init_by_tag) each(dnnl_memory_desc_equal)                        \
                each(dnnl_memory_desc_get_size) each(dnnl_memory_create) each(dnnl_memory_destroy) \
                    each(dnnl_memory_set_data_handle) each(dnnl_matmul_desc_init)                  \
                        each(dnnl_primitive_desc_create) each(dnnl_primitive_desc_destroy)         \
                            each(dnnl_primitive_desc_query_md) each(dnnl_primitive_create)         \
                                each(dnnl_primitive_destroy) each(dnnl_primitive_execute)          \
                                    each(dnnl_reorder_primitive_desc_create) each(dnnl_version)    \
                                        each(dnnl_set_max_cpu_isa)                                 \
                                            each(dnnl_get_effective_cpu_isa)

#endif
