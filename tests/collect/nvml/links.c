/* Links, memory errors, inner counters, instances, processes. */
#include "stub.h"

#define PLAIN(NAME) \
    nvmlReturn_t nvml##NAME(nvmlDevice_t d, unsigned *out) { return stub_small(d, #NAME, "", out); }

PLAIN(DeviceGetCurrPcieLinkGeneration)
PLAIN(DeviceGetCurrPcieLinkWidth)
PLAIN(DeviceGetMaxPcieLinkGeneration)
PLAIN(DeviceGetMaxPcieLinkWidth)

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t way, unsigned *out) {
    return stub_small(d, "DeviceGetPcieThroughput", way ? "1" : "0", out);
}
