/* A fake CUDA driver and cuBLAS for machines without a GPU. Allocated memory is counted, and a
   matrix product takes time. The limits are those that fake_mps.py has written. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long long held;
static unsigned int pending;

static double limit(const char *name, double otherwise)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[512];
    double value = otherwise;
    snprintf(path, sizeof path, "%s/../%s", pipe ? pipe : "/nowhere", name);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%lf", &value) != 1)
            value = otherwise;
        fclose(file);
    }
    return value;
}

int cuInit(unsigned int flags) { return 0; }
int cuDeviceGet(int *device, int number) { return *device = 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemsetD8_v2(unsigned long long address, unsigned char value, size_t size) { return 0; }

int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    const char *name = getenv("NVML_PROCESSES");
    if (held + size > limit("memory", 80 * 1024.0) * 1024 * 1024)
        return 2;
    held += size;
    *address = held;
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file) {
        fprintf(file, "0 %d %llu\n", (int)getpid(), held);
        fclose(file);
    }
    return 0;
}

int cuMemcpyDtoD_v2(unsigned long long target, unsigned long long source, size_t size)
{
    return 0;
}

int cuModuleLoadData(void **module, const void *image) { return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return 0; }

/* The benchmark launches only one kernel: the one with the memory fault. */
static int has_fault;
int cuLaunchKernel() { return has_fault = 1, 0; }

int cuCtxSynchronize(void)
{
    if (has_fault)
        return 700;
    usleep(pending * 1000 * 100 / limit("percent", 100));
    pending = 0;
    return 0;
}

int cublasCreate_v2(void **handle) { return 0; }
int cublasGemmEx() { ++pending; return 0; }
