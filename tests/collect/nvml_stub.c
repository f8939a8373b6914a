/* A stand-in for libnvidia-ml.so.1: the real calls and struct layouts of NVML, with values from a text file.
 *
 * NVML_STUB names the file, which is read again at every call. Lines are "KEY VALUE":
 *     count 2
 *     0.DeviceGetName Some GPU          the value of a call for GPU 0; sub-values have a third part
 *     0.return.DeviceGetFanSpeed 3      make a call fail with an NVML code
 *     return.InitWithFlags 18
 *     0.field.74 123 4                  a field value and its type (nvmlValueType_t)
 * NVML_STUB_LOG names a file to which every call of Init, Shutdown and GetHandle is added.
 * What the file does not mention is NOT_SUPPORTED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int index; } *Device;
enum { NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static struct { int index; } devices[8];

static int lookup(const char *key, char *value, size_t size) {
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static void note(const char *what) {
    const char *path = getenv("NVML_STUB_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) { fprintf(file, "%s\n", what); fclose(file); }
}

static int refusal(Device device, const char *call) {
    char key[128], value[64];
    if (device) snprintf(key, sizeof key, "%d.return.%s", device->index, call);
    else snprintf(key, sizeof key, "return.%s", call);
    if (lookup(key, value, sizeof value)) return atoi(value);
    if (device) {
        snprintf(key, sizeof key, "%d.return", device->index);
        if (lookup(key, value, sizeof value)) return atoi(value);
    }
    return 0;
}

static int text(Device device, const char *call, char *out, unsigned size) {
    char key[128];
    int refused = refusal(device, call);
    if (refused) return refused;
    if (device) snprintf(key, sizeof key, "%d.%s", device->index, call);
    else snprintf(key, sizeof key, "%s", call);
    return lookup(key, out, size) ? 0 : NOT_SUPPORTED;
}

static int number(Device device, const char *call, const char *part, unsigned long long *out) {
    char key[128], value[64];
    int refused = refusal(device, call);
    if (refused) return refused;
    snprintf(key, sizeof key, "%d.%s%s%s", device->index, call, *part ? "." : "", part);
    if (!lookup(key, value, sizeof value)) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 0);
    return 0;
}

static int small(Device device, const char *call, const char *part, unsigned *out) {
    unsigned long long value = 0;
    int result = number(device, call, part, &value);
    if (!result) *out = (unsigned)value;
    return result;
}

int nvmlInitWithFlags(unsigned flags) {
    char line[64];
    snprintf(line, sizeof line, "Init %u", flags);
    note(line);
    return refusal(NULL, "InitWithFlags");
}
int nvmlShutdown(void) { note("Shutdown"); return 0; }
const char *nvmlErrorString(int code) { (void)code; return "stub"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(NULL, "SystemGetDriverVersion", out, size); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    char value[64];
    *count = lookup("count", value, sizeof value) ? (unsigned)atoi(value) : 0;
    return refusal(NULL, "DeviceGetCount");
}

static int handle(int index, Device *out) {
    char line[64];
    snprintf(line, sizeof line, "Handle %d", index);
    note(line);
    devices[index].index = index;
    *out = (Device)&devices[index];
    return refusal(*out, "DeviceGetHandle");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) { return handle((int)index, out); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device *out) {
    char value[64];
    for (int index = 0; index < 8; index++) {
        char key[64];
        snprintf(key, sizeof key, "%d.bus", index);
        if (lookup(key, value, sizeof value) && strcmp(value, bus) == 0) return handle(index, out);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Device d, char *out, unsigned size) { return text(d, "DeviceGetName", out, size); }
int nvmlDeviceGetUUID(Device d, char *out, unsigned size) { return text(d, "DeviceGetUUID", out, size); }

struct Utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(Device d, struct Utilization *out) {
    int result = small(d, "DeviceGetUtilizationRates", "gpu", &out->gpu);
    return result ? result : small(d, "DeviceGetUtilizationRates", "memory", &out->memory);
}

struct Memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(Device d, struct Memory *out) {
    int result = number(d, "DeviceGetMemoryInfo", "total", &out->total);
    return result ? result : number(d, "DeviceGetMemoryInfo", "used", &out->used);
}
struct Memory2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Device d, struct Memory2 *out) {
    int result = number(d, "DeviceGetMemoryInfo_v2", "total", &out->total);
    return result ? result : number(d, "DeviceGetMemoryInfo_v2", "used", &out->used);
}

static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
static const char *digit(int value) { return digits[value % 10]; } /* two threads may call at once */
#define PLAIN(NAME) int nvml##NAME(Device d, unsigned *out) { return small(d, #NAME, "", out); }
#define LARGE(NAME) int nvml##NAME(Device d, unsigned long long *out) { return number(d, #NAME, "", out); }
PLAIN(DeviceGetPowerUsage)
PLAIN(DeviceGetEnforcedPowerLimit)
PLAIN(DeviceGetFanSpeed)
PLAIN(DeviceGetPerformanceState)
PLAIN(DeviceGetCurrPcieLinkGeneration)
PLAIN(DeviceGetCurrPcieLinkWidth)
PLAIN(DeviceGetMaxPcieLinkGeneration)
PLAIN(DeviceGetMaxPcieLinkWidth)
LARGE(DeviceGetTotalEnergyConsumption)
LARGE(DeviceGetCurrentClocksThrottleReasons)
#ifndef OLD_DRIVER
LARGE(DeviceGetCurrentClocksEventReasons)
struct Temperature { unsigned version; int sensor, celsius; };
int nvmlDeviceGetTemperatureV(Device d, struct Temperature *out) {
    return small(d, "DeviceGetTemperatureV", "", (unsigned *)&out->celsius);
}
#endif
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *out) { (void)sensor; return small(d, "DeviceGetTemperature", "", out); }
int nvmlDeviceGetClockInfo(Device d, int kind, unsigned *out) { return small(d, "DeviceGetClockInfo", digit(kind), out); }
int nvmlDeviceGetMaxClockInfo(Device d, int kind, unsigned *out) { return small(d, "DeviceGetMaxClockInfo", digit(kind), out); }
int nvmlDeviceGetPcieThroughput(Device d, int way, unsigned *out) { return small(d, "DeviceGetPcieThroughput", digit(way), out); }

struct Violation { unsigned long long reference, violation; };
int nvmlDeviceGetViolationStatus(Device d, int policy, struct Violation *out) {
    return number(d, "DeviceGetViolationStatus", digit(policy), &out->violation);
}

struct Field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
};
int nvmlDeviceGetFieldValues(Device d, int count, struct Field *fields) {
    int refused = refusal(d, "DeviceGetFieldValues");
    if (refused) return refused;
    for (int i = 0; i < count; i++) {
        char key[64], line[64];
        unsigned long long value;
        snprintf(key, sizeof key, "%d.field.%u", d->index, fields[i].id);
        if (!lookup(key, line, sizeof line)) { fields[i].result = NOT_SUPPORTED; continue; }
        fields[i].result = 0;
        if (sscanf(line, "%llu %d", &value, &fields[i].type) != 2) { fields[i].result = 999; continue; }
        if (fields[i].type == 1) fields[i].value.u = (unsigned)value;
        else fields[i].value.ull = value;
    }
    return 0;
}
