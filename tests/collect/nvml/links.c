/* Links, memory errors, inner counters, instances, processes.
 *
 * More keys of a script:
 *     0.DeviceGetNvLinkState.3 1          link 3 is up
 *     0.DeviceGetComputeRunningProcesses 4242:1073741824,4243:-     who holds how much; - for not told
 *     0.DeviceGetRemappedRows.failure 1   corr, unc, pending, failure
 *     0.gpm 1                             inner counters are supported
 *     0.gpm.10 57.5                       metric 10; 0.gpm.10.return 3 for one that fails
 *     0.mig.0 4                           instance 0 of GPU 0 is device 4 of the script
 */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN(NAME) \
    nvmlReturn_t nvml##NAME(nvmlDevice_t d, unsigned *out) { return stub_small(d, #NAME, "", out); }

PLAIN(DeviceGetCurrPcieLinkGeneration)
PLAIN(DeviceGetCurrPcieLinkWidth)
PLAIN(DeviceGetMaxPcieLinkGeneration)
PLAIN(DeviceGetMaxPcieLinkWidth)
PLAIN(DeviceGetPcieReplayCounter)
PLAIN(DeviceGetMaxMigDeviceCount)
PLAIN(DeviceGetGpuInstanceId)

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t way, unsigned *out) {
    return stub_small(d, "DeviceGetPcieThroughput", way ? "1" : "0", out);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned link, nvmlEnableState_t *out) {
    char part[16];
    unsigned value = 0;
    snprintf(part, sizeof part, "%u", link);
    nvmlReturn_t result = stub_small(d, "DeviceGetNvLinkState", part, &value);
    if (!result) *out = (nvmlEnableState_t)value;
    return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t since,
                                         unsigned long long *out) {
    char part[16];
    snprintf(part, sizeof part, "%d.%d", (int)kind, (int)since);
    return stub_number(d, "DeviceGetTotalEccErrors", part, out);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                       unsigned *failure) {
    nvmlReturn_t result = stub_small(d, "DeviceGetRemappedRows", "corr", corrected);
    if (result) return result;
    *uncorrected = *pending = *failure = 0;
    stub_small(d, "DeviceGetRemappedRows", "unc", uncorrected);
    stub_small(d, "DeviceGetRemappedRows", "pending", pending);
    stub_small(d, "DeviceGetRemappedRows", "failure", failure);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t d, nvmlEnableState_t *out) {
    unsigned value = 0;
    nvmlReturn_t result = stub_small(d, "DeviceGetRetiredPagesPendingStatus", "", &value);
    if (!result) *out = (nvmlEnableState_t)value;
    return result;
}

static nvmlReturn_t processes(nvmlDevice_t d, const char *call, unsigned *count, nvmlProcessInfo_t *out) {
    char text[2000];
    nvmlReturn_t result = stub_text(d, call, text, sizeof text);
    if (result) return result;
    unsigned found = 0, room = *count;
    for (char *each = strtok(text, ","); each; each = strtok(NULL, ",")) {
        if (out && found < room) {
            char *size = strchr(each, ':');
            memset(&out[found], 0, sizeof *out);
            out[found].pid = (unsigned)strtoul(each, NULL, 10);
            out[found].usedGpuMemory = size && size[1] != '-' ? strtoull(size + 1, NULL, 10)
                                                              : (unsigned long long)NVML_VALUE_NOT_AVAILABLE;
        }
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    return processes(d, "DeviceGetComputeRunningProcesses", count, out);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    return processes(d, "DeviceGetGraphicsRunningProcesses", count, out);
}

/* Instances of a card */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending) {
    *pending = 0;
    return stub_small(d, "DeviceGetMigMode", "", current);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index, nvmlDevice_t *out) {
    char key[48];
    double number;
    nvmlReturn_t refused = stub_refusal(d, "DeviceGetMigDeviceHandleByIndex");
    if (refused) return refused;
    snprintf(key, sizeof key, "%d.mig.%u", d->index, index);
    if (!stub_number_of(key, &number) || number < 0 || number >= MOST_DEVICES) return NVML_ERROR_NOT_FOUND;
    stub_devices[(int)number].index = (int)number;
    *out = &stub_devices[(int)number];
    return NVML_SUCCESS;
}

/* Inner counters */

#ifndef OLD_DRIVER
struct nvmlGpmSample_st {
    int device;
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *out) {
    if (out->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned value = 0;
    nvmlReturn_t result = stub_small(d, "gpm", "", &value);
    out->isSupportedDevice = value;
    return result;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    stub_note("Alloc");
    *out = calloc(1, sizeof **out);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    stub_note("Free");
    free(sample);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t sample) {
    sample->device = d->index;
    return stub_refusal(d, "GpmSampleGet");
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    if (get->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int device = get->sample2->device;
    nvmlReturn_t refused = stub_refusal(&stub_devices[device], "GpmMetricsGet");
    if (refused) return refused;
    for (unsigned i = 0; i < get->numMetrics; i++) {
        char key[64];
        double value;
        snprintf(key, sizeof key, "%d.gpm.%u.return", device, get->metrics[i].metricId);
        if (stub_number_of(key, &value)) { get->metrics[i].nvmlReturn = (nvmlReturn_t)value; continue; }
        snprintf(key, sizeof key, "%d.gpm.%u", device, get->metrics[i].metricId);
        int told = stub_number_of(key, &value);
        get->metrics[i].nvmlReturn = told ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        if (told) get->metrics[i].value = value;
    }
    return NVML_SUCCESS;
}
#endif
