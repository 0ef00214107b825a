/* The simulated libnvidia-ml.so.VERSION, as far as nvidia-smi needs it. -DVERSION="580.95.05". */
#include "gpu.h"

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, DRIVER_NOT_LOADED = 9,
       VERSION_MISMATCH = 18 };

static struct gpu gpus[MOST_GPUS];
static int count = -1;
static char loaded[64];

int nvmlInit_v2(void) {
  if (!loaded_version(loaded, sizeof loaded)) return DRIVER_NOT_LOADED;
  if (strcmp(loaded, VERSION) != 0) return VERSION_MISMATCH;
  if (access("/dev/nvidiactl", F_OK)) return DRIVER_NOT_LOADED;
  count = find_gpus(gpus);
  return SUCCESS;
}

int nvmlShutdown(void) {
  count = -1;
  return SUCCESS;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
  snprintf(version, size, "13.%s", VERSION);
  return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  if (count < 0) return UNINITIALIZED;
  snprintf(version, size, "%s", loaded);
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *number) {
  if (count < 0) return UNINITIALIZED;
  *number = (unsigned)count;
  return SUCCESS;
}

/* The real library hands out a pointer that only it understands; so does this one. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const struct gpu **device) {
  if (count < 0) return UNINITIALIZED;
  if ((int)index >= count) return INVALID_ARGUMENT;
  *device = &gpus[index];
  return SUCCESS;
}
