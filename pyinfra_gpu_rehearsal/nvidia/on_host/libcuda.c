/* The simulated libcuda.so.VERSION: a real library with the few functions a check calls.
 * Built with -DVERSION="580.95.05" -DCUDA=13000. What it knows of the machine it reads anew from
 * where a real one shows it, so that it is as wrong as the real one when the machine is.
 */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       DRIVER_MISMATCH = 803, UNKNOWN = 999, MOST = 16 };

static char names[MOST][64];
static int count = -1; /* -1: cuInit has not succeeded */

/* Read the first word of a file up to one of END; 0 where it cannot be read. */
static int first(const char *path, const char *end, char *text, size_t size) {
  FILE *file = fopen(path, "r");
  int read = file && fgets(text, (int)size, file);
  if (file) fclose(file);
  if (read) text[strcspn(text, end)] = 0;
  return read;
}

/* The cards that nvidia is bound to, in the order of their addresses. */
static int find(void) {
  glob_t cards;
  int found = 0;
  if (glob("/sys/bus/pci/devices/*/rehearsal", 0, NULL, &cards)) return 0;
  for (size_t i = 0; i < cards.gl_pathc && found < MOST; i++) {
    char path[PATH_MAX], link[PATH_MAX] = "";
    snprintf(path, sizeof path, "%s", cards.gl_pathv[i]);
    strcpy(strrchr(path, '/'), "/driver");
    if (readlink(path, link, sizeof link - 1) < 0 || !strstr(link, "/drivers/nvidia")) continue;
    found += first(cards.gl_pathv[i], "|", names[found], sizeof names[found]);
  }
  globfree(&cards);
  return found;
}

int cuInit(unsigned flags) {
  char loaded[64];
  if (flags) return INVALID_VALUE;
  if (!first("/sys/module/nvidia/version", "\n", loaded, sizeof loaded)) return NO_DEVICE;
  if (strcmp(loaded, VERSION) != 0) return DRIVER_MISMATCH;
  int found = find();
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
  *number = count;
  return count < 0 ? NOT_INITIALIZED : SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return count < 0 ? NOT_INITIALIZED : ordinal < 0 || ordinal >= count ? INVALID_DEVICE : SUCCESS;
}

int cuDeviceGetName(char *name, int size, int device) {
  int error = cuDeviceGet(&device, device);
  if (!error) snprintf(name, (size_t)size, "%s", names[device]);
  return error;
}

int cuGetErrorString(int error, const char **text) {
  *text = error == NO_DEVICE ? "no CUDA-capable device is detected"
          : error == DRIVER_MISMATCH
              ? "system has unsupported display driver / cuda driver combination"
              : "unknown error";
  return SUCCESS;
}
