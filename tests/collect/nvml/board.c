/* The library as a whole, devices, and the figures of the board. -DOLD_DRIVER leaves out what came later. */
#include "stub.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    stub_note("Init %u", flags);
    return stub_refusal(NULL, "InitWithFlags");
}

nvmlReturn_t nvmlShutdown(void) {
    stub_note("Shutdown");
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    (void)code;
    return "stub";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size) {
    return stub_text(NULL, "SystemGetDriverVersion", out, size);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    double value;
    *count = stub_number_of("count", &value) ? (unsigned)value : 0;
    return stub_refusal(NULL, "DeviceGetCount");
}

static nvmlReturn_t handle(int index, nvmlDevice_t *out) {
    if (index < 0 || index >= MOST_DEVICES) return NVML_ERROR_NOT_FOUND;
    stub_note("Handle %d", index);
    stub_devices[index].index = index;
    *out = &stub_devices[index];
    return stub_refusal(*out, "DeviceGetHandle");
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) { return handle((int)index, out); }

/* The script names the place of a card as the kernel does, with a domain of four digits. */
static int at(int index, const char *bus) {
    char key[32], value[64];
    snprintf(key, sizeof key, "%d.bus", index);
    if (!stub_text_of(key, value, sizeof value)) return 0;
    return strcmp(value, bus) == 0 || (strlen(bus) > 4 && strcmp(value, bus + 4) == 0);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *out) {
    for (int index = 0; index < MOST_DEVICES; index++)
        if (at(index, bus)) return handle(index, out);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned size) {
    return stub_text(d, "DeviceGetName", out, size);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned size) {
    return stub_text(d, "DeviceGetUUID", out, size);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *out) {
    char key[32], bus[64];
    nvmlReturn_t refused = stub_refusal(d, "DeviceGetPciInfo_v3");
    if (refused) return refused;
    snprintf(key, sizeof key, "%d.bus", d->index);
    if (!stub_text_of(key, bus, sizeof bus)) return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    snprintf(out->busId, sizeof out->busId, "0000%.24s", bus);
    unsigned id = 0;
    if (!stub_small(d, "DeviceGetPciInfo_v3", "pciDeviceId", &id)) out->pciDeviceId = id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *out) {
    nvmlReturn_t result = stub_small(d, "DeviceGetUtilizationRates", "gpu", &out->gpu);
    return result ? result : stub_small(d, "DeviceGetUtilizationRates", "memory", &out->memory);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *out) {
    nvmlReturn_t result = stub_number(d, "DeviceGetMemoryInfo", "total", &out->total);
    return result ? result : stub_number(d, "DeviceGetMemoryInfo", "used", &out->used);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *out) {
    nvmlReturn_t result = stub_number(d, "DeviceGetMemoryInfo_v2", "total", &out->total);
    if (result) return result;
    if (out->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->reserved = 0;
    stub_number(d, "DeviceGetMemoryInfo_v2", "reserved", &out->reserved);
    return stub_number(d, "DeviceGetMemoryInfo_v2", "used", &out->used);
}

/* Two threads may call at once: no shared buffer for the number of a part. */
static const char *digit(unsigned value) {
    static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return digits[value % 10];
}

#define PLAIN(NAME) \
    nvmlReturn_t nvml##NAME(nvmlDevice_t d, unsigned *out) { return stub_small(d, #NAME, "", out); }
#define LARGE(NAME) \
    nvmlReturn_t nvml##NAME(nvmlDevice_t d, unsigned long long *out) { return stub_number(d, #NAME, "", out); }

PLAIN(DeviceGetPowerUsage)
PLAIN(DeviceGetEnforcedPowerLimit)
PLAIN(DeviceGetPowerManagementDefaultLimit)
PLAIN(DeviceGetNumFans)
PLAIN(DeviceGetArchitecture)
PLAIN(DeviceGetFanSpeed)
LARGE(DeviceGetTotalEnergyConsumption)
LARGE(DeviceGetCurrentClocksThrottleReasons)

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t d, unsigned fan, unsigned *out) {
    return stub_small(d, "DeviceGetFanSpeed_v2", digit(fan), out);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t d, nvmlPstates_t *out) {
    unsigned value = 0;
    nvmlReturn_t result = stub_small(d, "DeviceGetPerformanceState", "", &value);
    if (!result) *out = (nvmlPstates_t)value;
    return result;
}

#ifndef OLD_DRIVER
LARGE(DeviceGetCurrentClocksEventReasons)
LARGE(DeviceGetSupportedClocksEventReasons)

static nvmlReturn_t whole(nvmlDevice_t d, const char *call, int *out) {
    unsigned value = 0;
    nvmlReturn_t result = stub_small(d, call, "", &value);
    if (!result) *out = (int)value;
    return result;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *out) {
    if (out->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return whole(d, "DeviceGetTemperatureV", &out->temperature);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *out) {
    if (out->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return whole(d, "DeviceGetMarginTemperature", &out->marginTemperature);
}

nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t d, nvmlFanSpeedInfo_t *out) {
    if (out->version != nvmlFanSpeedInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return stub_small(d, "DeviceGetFanSpeedRPM", digit(out->fan), &out->speed);
}
#endif

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned *out) {
    (void)sensor;
    return stub_small(d, "DeviceGetTemperature", "", out);
}
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, nvmlTemperatureThresholds_t which, unsigned *out) {
    return stub_small(d, "DeviceGetTemperatureThreshold", digit(which), out);
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t kind, unsigned *out) {
    return stub_small(d, "DeviceGetClockInfo", digit(kind), out);
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t kind, unsigned *out) {
    return stub_small(d, "DeviceGetMaxClockInfo", digit(kind), out);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t d, nvmlGpuVirtualizationMode_t *out) {
    unsigned value = 0;
    nvmlReturn_t result = stub_small(d, "DeviceGetVirtualizationMode", "", &value);
    if (!result) *out = (nvmlGpuVirtualizationMode_t)value;
    return result;
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t d, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *out) {
    return stub_number(d, "DeviceGetViolationStatus", digit(policy), &out->violationTime);
}

static void field(nvmlDevice_t d, nvmlFieldValue_t *out) {
    char key[64], line[160];
    double value;
    if (out->scopeId) snprintf(key, sizeof key, "%d.field.%u/%u", d->index, out->fieldId, out->scopeId);
    else snprintf(key, sizeof key, "%d.field.%u", d->index, out->fieldId);
    char failing[80];
    snprintf(failing, sizeof failing, "%s.return", key);
    if (stub_number_of(failing, &value)) { out->nvmlReturn = (nvmlReturn_t)value; return; }
    out->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    if (!stub_text_of(key, line, sizeof line) || !stub_number_of(key, &value)) return;
    int type = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    sscanf(line, "%*s %d", &type);
    out->nvmlReturn = NVML_SUCCESS;
    out->valueType = (nvmlValueType_t)type;
    switch (out->valueType) {
    case NVML_VALUE_TYPE_DOUBLE: out->value.dVal = value; break;
    case NVML_VALUE_TYPE_UNSIGNED_INT: out->value.uiVal = (unsigned)(unsigned long long)value; break; /* wraps */
    case NVML_VALUE_TYPE_UNSIGNED_LONG: out->value.ulVal = (unsigned long)value; break;
    case NVML_VALUE_TYPE_SIGNED_LONG_LONG: out->value.sllVal = (long long)value; break;
    case NVML_VALUE_TYPE_SIGNED_INT: out->value.siVal = (int)value; break;
    default: out->value.ullVal = (unsigned long long)value; break;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *fields) {
    nvmlReturn_t refused = stub_refusal(d, "DeviceGetFieldValues");
    if (refused) return refused;
    for (int i = 0; i < count; i++) field(d, &fields[i]);
    return NVML_SUCCESS;
}
