/* A stand-in for libnvidia-ml.so.1, compiled against NVIDIA's header: the values come from a script.
 *
 * NVML_STUB names the script; it is read again when it has been replaced. Lines are "KEY VALUE":
 *     count 2
 *     0.DeviceGetName Some GPU            the value of a call for GPU 0; sub-values have a third part
 *     0.DeviceGetTotalEnergyConsumption 5000 +450000    a number that grows by so much a second
 *     0.return.DeviceGetFanSpeed 3        a call fails with an NVML code
 *     0.return 15                         every call on GPU 0 fails: it is lost
 *     return.InitWithFlags 18
 *     0.block.DeviceGetPcieThroughput 20  a call takes so many milliseconds
 *     0.field.74 123 4                    a field and its type (nvmlValueType_t); a rate may stand behind:
 *     0.field.74 123 3 +1000000           ... 123, of type 3, growing by a million a second
 *     0.field.186/1 250000 1              a field with a scope
 *     0.field.82.return 21                a field fails with an NVML code
 * NVML_STUB_LOG names a file to which calls that matter are added: Init, Shutdown, Handle, ...
 * What the script does not mention is NOT_SUPPORTED. Rates count from when the script was last read.
 */
#include "stub.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct nvmlDevice_st stub_devices[MOST_DEVICES];

enum { MOST_LINES = 2000 };
static char *keys[MOST_LINES], *values[MOST_LINES];
static int lines;
static struct stat known;
static struct timespec read_at;
static char *content;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int by_key(const void *one, const void *other) {
    return strcmp(keys[*(const int *)one], keys[*(const int *)other]);
}

static int order[MOST_LINES];

/* Read the script where it is another than the one that is known. The lock is held. */
static void refresh(void) {
    const char *path = getenv("NVML_STUB");
    struct stat now;
    if (!path || stat(path, &now)) { lines = 0; return; }
    if (content && now.st_ino == known.st_ino && now.st_mtim.tv_sec == known.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == known.st_mtim.tv_nsec && now.st_size == known.st_size) return;
    FILE *file = fopen(path, "r");
    if (!file) { lines = 0; return; }
    free(content);
    content = calloc(1, (size_t)now.st_size + 1);
    size_t got = fread(content, 1, (size_t)now.st_size, file);
    content[got] = 0;
    fclose(file);
    known = now;
    clock_gettime(CLOCK_MONOTONIC, &read_at);
    lines = 0;
    for (char *line = strtok(content, "\n"); line && lines < MOST_LINES; line = strtok(NULL, "\n")) {
        char *blank = strchr(line, ' ');
        if (!blank) continue;
        *blank = 0;
        keys[lines] = line;
        values[lines] = blank + 1;
        order[lines] = lines;
        lines++;
    }
    qsort(order, (size_t)lines, sizeof *order, by_key);
}

static const char *find(const char *key) {
    int low = 0, high = lines - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        int side = strcmp(key, keys[order[middle]]);
        if (!side) return values[order[middle]];
        if (side < 0) high = middle - 1; else low = middle + 1;
    }
    return NULL;
}

int stub_text_of(const char *key, char *out, unsigned size) {
    pthread_mutex_lock(&lock);
    refresh();
    const char *value = find(key);
    if (value && size) snprintf(out, size, "%s", value);
    pthread_mutex_unlock(&lock);
    return value != NULL;
}

int stub_number_of(const char *key, double *out) {
    char text[256];
    if (!stub_text_of(key, text, sizeof text)) return 0;
    char *rest;
    *out = text[0] == '0' && text[1] == 'x' ? (double)strtoull(text, &rest, 16) : strtod(text, &rest);
    const char *rate = strchr(rest, '+');
    if (rate) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double passed = (double)(now.tv_sec - read_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - read_at.tv_nsec);
        *out += strtod(rate + 1, NULL) * passed;
    }
    return 1;
}

void stub_note(const char *format, ...) {
    const char *path = getenv("NVML_STUB_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

nvmlReturn_t stub_refusal(nvmlDevice_t device, const char *call) {
    char key[160];
    double value;
    if (device) {
        snprintf(key, sizeof key, "%d.block.%s", device->index, call);
        if (stub_number_of(key, &value)) {
            struct timespec pause = {(time_t)(value / 1000), (long)(value * 1e6) % 1000000000};
            nanosleep(&pause, NULL);
        }
        snprintf(key, sizeof key, "%d.return.%s", device->index, call);
        if (stub_number_of(key, &value)) return (nvmlReturn_t)value;
        snprintf(key, sizeof key, "%d.return", device->index);
    } else {
        snprintf(key, sizeof key, "return.%s", call);
    }
    return stub_number_of(key, &value) ? (nvmlReturn_t)value : NVML_SUCCESS;
}

nvmlReturn_t stub_text(nvmlDevice_t device, const char *call, char *out, unsigned size) {
    char key[160];
    nvmlReturn_t refused = stub_refusal(device, call);
    if (refused) return refused;
    if (device) snprintf(key, sizeof key, "%d.%s", device->index, call);
    else snprintf(key, sizeof key, "%s", call);
    return stub_text_of(key, out, size) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t stub_number(nvmlDevice_t device, const char *call, const char *part, unsigned long long *out) {
    char key[160];
    double value;
    nvmlReturn_t refused = stub_refusal(device, call);
    if (refused) return refused;
    snprintf(key, sizeof key, "%d.%s%s%s", device->index, call, *part ? "." : "", part);
    if (!stub_number_of(key, &value)) return NVML_ERROR_NOT_SUPPORTED;
    *out = (unsigned long long)value;
    return NVML_SUCCESS;
}

nvmlReturn_t stub_small(nvmlDevice_t device, const char *call, const char *part, unsigned *out) {
    unsigned long long value = 0;
    nvmlReturn_t result = stub_number(device, call, part, &value);
    if (!result) *out = (unsigned)value;
    return result;
}
