/* A fake NVML library for machines without a GPU. It reports two GPUs, or NVML_COUNT.
   If the file NVML_LOST exists, the second GPU is missing. While the file NVML_MIG exists, MIG is
   enabled on the first GPU; the file contains the number of its instances, whose handles start at
   100. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} Pci;

enum { OK = 0, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15 };
static int indices[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static unsigned int all(void) { return getenv("NVML_COUNT") ? atoi(getenv("NVML_COUNT")) : 2; }

static int instances[8] = {100, 101, 102, 103, 104, 105, 106, 107};

static int divided(void)
{
    const char *name = getenv("NVML_MIG");
    FILE *file = name ? fopen(name, "r") : NULL;
    int count = -1;
    if (file && fscanf(file, "%d", &count) != 1)
        count = 0;
    if (file)
        fclose(file);
    return count;
}

static int lost(void *handle)
{
    const char *file = getenv("NVML_LOST");
    return *(int *)handle == 1 && file && access(file, F_OK) == 0;
}

nvmlReturn_t nvmlInit_v2(void) { return getenv("NVML_NO_DRIVER") ? 9 : OK; }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(nvmlReturn_t code) { return "fake error"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int length)
{
    snprintf(text, length, "580.00");
    return OK;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = all();
    return OK;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    if (index >= all())
        return BAD_ARGUMENT;
    *handle = &indices[index];
    return lost(*handle) ? LOST : OK;
}

nvmlReturn_t nvmlDeviceGetUUID(void *handle, char *text, unsigned int length)
{
    if (*(int *)handle >= 100)
        snprintf(text, length, "MIG-0000-%d", *(int *)handle - 100);
    else
        snprintf(text, length, "GPU-0000-%d", *(int *)handle);
    return OK;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    unsigned int index = 0;
    if (sscanf(uuid, "MIG-0000-%u", &index) == 1) {
        *handle = &instances[index & 7];
        return (int)index < divided() ? OK : NOT_FOUND;
    }
    if (sscanf(uuid, "GPU-0000-%u", &index) != 1 || index >= all())
        return NOT_FOUND;
    *handle = &indices[index];
    return lost(*handle) ? LOST : OK;
}

nvmlReturn_t nvmlDeviceGetName(void *handle, char *text, unsigned int length)
{
    if (*(int *)handle >= 100)
        snprintf(text, length, "Fake H100 MIG %s", *(int *)handle == 100 ? "3g.40gb" : "1g.10gb+me");
    else
        snprintf(text, length, "Fake H%d", 100 * (1 + *(int *)handle));
    return OK;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(void *handle, Memory *memory)
{
    memory->total = (*(int *)handle < 100 ? 80ULL : *(int *)handle == 100 ? 40ULL : 10ULL) << 30;
    memory->used = 5ULL << 30;
    memory->free = memory->total - memory->used;
    return lost(handle) ? LOST : OK;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(void *handle, Utilization *used)
{
    used->gpu = 42;
    used->memory = 7;
    return OK;
}

/* Only the first GPU has sensors. */
nvmlReturn_t nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius)
{
    *celsius = 61;
    return *(int *)handle == 0 ? OK : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts)
{
    *milliwatts = 350460;
    return *(int *)handle == 0 ? OK : NOT_SUPPORTED;
}

/* NVML_ANCESTOR is the common ancestor of any two GPUs; if it is empty, the ancestor is unknown. */
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level)
{
    const char *text = getenv("NVML_ANCESTOR");
    *level = text ? atoi(text) : 10;
    return text && !*text ? NOT_SUPPORTED : OK;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(void *handle, unsigned int *minor)
{
    *minor = 4 + *(int *)handle;
    return OK;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(void *handle, unsigned int *count)
{
    *count = 132;
    return OK;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "00000000:0%d:00.0", *(int *)handle);
    return OK;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = 13010;
    return OK;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    *major = 8 + *(int *)handle;
    *minor = 0;
    return OK;
}

/* Each GPU has two NVLinks to the other GPU, or to a switch if NVML_SWITCH is set. */
nvmlReturn_t nvmlDeviceGetNvLinkState(void *handle, unsigned int link, unsigned int *active)
{
    *active = link < 2;
    return link < 4 ? OK : BAD_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned int link, int *type)
{
    *type = getenv("NVML_SWITCH") ? 2 : 0;
    return OK;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned int link, Pci *pci)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "00000000:0%d:00.0", 1 - *(int *)handle);
    return OK;
}

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} Process;

/* The file NVML_PROCESSES has one line per process: GPU, pid, allocated bytes. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, Process *found)
{
    const char *name = getenv("NVML_PROCESSES");
    FILE *file = name ? fopen(name, "r") : NULL;
    unsigned int room = *count, gpu;
    Process one = {0};
    *count = 0;
    while (file && fscanf(file, "%u %u %llu", &gpu, &one.pid, &one.usedGpuMemory) == 3)
        if ((int)gpu == *(int *)handle) {
            if (*count < room)
                found[*count] = one;
            ++*count;
        }
    if (file)
        fclose(file);
    return *count > room ? 7 : OK;
}

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} Sample;

/* The file NVML_BUSY has one line per sample: GPU, pid, utilization in percent. Without the file,
   samples are not supported. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(void *handle, Sample *found, unsigned int *count,
                                             unsigned long long since)
{
    const char *name = getenv("NVML_BUSY");
    FILE *file = name ? fopen(name, "r") : NULL;
    unsigned int room = found ? *count : 0, gpu;
    Sample one = {0};
    if (!file)
        return 3;
    one.timeStamp = since + 1;
    *count = 0;
    while (fscanf(file, "%u %u %u", &gpu, &one.pid, &one.smUtil) == 3)
        if ((int)gpu == *(int *)handle) {
            if (*count < room)
                found[*count] = one;
            ++*count;
        }
    fclose(file);
    return *count == 0 ? NOT_FOUND : *count > room ? 7 : OK;
}

/* The file NVML_MODE contains the compute mode of all GPUs. */
nvmlReturn_t nvmlDeviceGetComputeMode(void *handle, int *mode)
{
    const char *name = getenv("NVML_MODE");
    FILE *file = name ? fopen(name, "r") : NULL;
    *mode = 0;
    if (file) {
        if (fscanf(file, "%d", mode) != 1)
            *mode = 0;
        fclose(file);
    }
    return OK;
}

nvmlReturn_t nvmlDeviceSetComputeMode(void *handle, int mode)
{
    const char *name = getenv("NVML_MODE");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (!file)
        return 4;
    fprintf(file, "%d\n", mode);
    fclose(file);
    return OK;
}

nvmlReturn_t nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending)
{
    *current = *pending = *(int *)handle == 0 && divided() >= 0;
    return *(int *)handle == 0 ? OK : 3;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count)
{
    *count = 7;
    return OK;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **instance)
{
    *instance = &instances[index & 7];
    return (int)index < divided() ? OK : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(void *handle, unsigned int *id)
{
    *id = 1 + *(int *)handle - 100;
    return OK;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(void *handle, unsigned int *id)
{
    *id = 0;
    return OK;
}
