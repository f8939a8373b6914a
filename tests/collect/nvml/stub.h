/* What the files of the stand-in library share: the script, and how a call answers from it. */
#ifndef STUB_H
#define STUB_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS /* the exported names, not those that a program is compiled to */
#include <nvml.h>

#define MOST_DEVICES 16

struct nvmlDevice_st {
    int index; /* 0 to MOST_DEVICES - 1; instances of a card have numbers of their own */
};
extern struct nvmlDevice_st stub_devices[MOST_DEVICES];

/* The text of a key; 0 where the script does not mention it. */
int stub_text_of(const char *key, char *out, unsigned size);
/* The number of a key, grown by its rate; 0 where the script does not mention it. */
int stub_number_of(const char *key, double *out);

/* What a call on a device returns: sleeps where the script says so, and gives the code of a failure. */
nvmlReturn_t stub_refusal(nvmlDevice_t device, const char *call);

/* `KEY.PART` of a device, after its refusal. NOT_SUPPORTED where the script does not mention it. */
nvmlReturn_t stub_text(nvmlDevice_t device, const char *call, char *out, unsigned size);
nvmlReturn_t stub_number(nvmlDevice_t device, const char *call, const char *part, unsigned long long *out);
nvmlReturn_t stub_small(nvmlDevice_t device, const char *call, const char *part, unsigned *out);

/* One line in the log. */
void stub_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
