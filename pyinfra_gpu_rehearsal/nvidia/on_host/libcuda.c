/* The simulated libcuda.so.VERSION: a real library with the few functions a check calls.
 * Built with -DVERSION="580.95.05" -DCUDA=13000.
 */
#include "gpu.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       DRIVER_MISMATCH = 803, UNKNOWN = 999 };

static struct gpu gpus[MOST_GPUS];
static int count = -1; /* -1: cuInit has not succeeded */

int cuInit(unsigned flags) {
  char loaded[64];
  if (flags) return INVALID_VALUE;
  if (!loaded_version(loaded, sizeof loaded)) return NO_DEVICE;
  if (strcmp(loaded, VERSION) != 0) return DRIVER_MISMATCH;
  int found = find_gpus(gpus);
  if (!found) return NO_DEVICE;
  if (access("/dev/nvidiactl", F_OK) || access("/dev/nvidia-uvm", F_OK)) return UNKNOWN;
  count = found;
  return SUCCESS;
}

int cuDriverGetVersion(int *version) {
  *version = CUDA;
  return SUCCESS;
}

int cuDeviceGetCount(int *number) {
  if (count < 0) return NOT_INITIALIZED;
  *number = count;
  return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
  if (count < 0) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= count) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

int cuDeviceGetName(char *name, int size, int device) {
  if (count < 0) return NOT_INITIALIZED;
  if (device < 0 || device >= count) return INVALID_DEVICE;
  snprintf(name, (size_t)size, "%s", gpus[device].name);
  return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
  switch (error) {
  case SUCCESS: *text = "no error"; break;
  case INVALID_VALUE: *text = "invalid argument"; break;
  case NOT_INITIALIZED: *text = "initialization error"; break;
  case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
  case INVALID_DEVICE: *text = "invalid device ordinal"; break;
  case DRIVER_MISMATCH: *text = "system has unsupported display driver / cuda driver combination"; break;
  case UNKNOWN: *text = "unknown error"; break;
  default: *text = NULL; return INVALID_VALUE;
  }
  return SUCCESS;
}
