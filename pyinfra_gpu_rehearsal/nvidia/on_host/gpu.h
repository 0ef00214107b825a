/* What the simulated driver's programs and libraries know of the simulated machine.
 *
 * All of it is read anew from where a real machine shows it (the PCI bus, /sys/module), so that
 * these programs are as wrong as the real ones when the machine is.
 */
#ifndef REHEARSAL_GPU_H
#define REHEARSAL_GPU_H

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_GPUS 16
#define PCI "/sys/bus/pci/devices"

struct gpu {
  char address[16]; /* 0000:01:00.0 */
  char name[64];
  char uuid[64];
  int memory_mib, major, minor;
};

/* The version of the loaded module; 0 where none is loaded. */
__attribute__((unused)) static int loaded_version(char *version, size_t size) {
  FILE *file = fopen("/sys/module/nvidia/version", "r");
  if (!file) return 0;
  int read = fgets(version, (int)size, file) != NULL;
  fclose(file);
  if (read) version[strcspn(version, "\n")] = 0;
  return read;
}

/* One card, from the file that describes it; 0 where the driver nvidia is not bound to it. */
static int read_gpu(const char *address, struct gpu *gpu) {
  char path[PATH_MAX], link[PATH_MAX];
  snprintf(path, sizeof path, PCI "/%s/driver", address);
  ssize_t length = readlink(path, link, sizeof link - 1);
  if (length <= 0) return 0;
  link[length] = 0;
  const char *last = strrchr(link, '/');
  if (strcmp(last ? last + 1 : link, "nvidia") != 0) return 0;
  snprintf(path, sizeof path, PCI "/%s/rehearsal", address);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int fields = fscanf(file, "%63[^|]|%63[^|]|%d|%d.%d", gpu->name, gpu->uuid, &gpu->memory_mib,
                      &gpu->major, &gpu->minor);
  fclose(file);
  snprintf(gpu->address, sizeof gpu->address, "%.15s", address);
  return fields == 5;
}

/* The cards the driver is bound to, in the order of their addresses; returns how many. */
__attribute__((unused)) static int find_gpus(struct gpu *gpus) {
  struct dirent **entries;
  int count = 0, found = scandir(PCI, &entries, NULL, alphasort);
  for (int i = 0; i < found; i++) {
    if (entries[i]->d_name[0] != '.' && count < MOST_GPUS)
      count += read_gpu(entries[i]->d_name, &gpus[count]);
    free(entries[i]);
  }
  if (found >= 0) free(entries);
  return count;
}

#endif
