/* The simulated nvidia-smi: the questions a deploy asks, answered through libnvidia-ml.so.1. */
#include <dlfcn.h>
#include <glob.h>

#include "gpu.h"

#define DAEMON "nvidia-persiste" /* nvidia-persistenced, as /proc/PID/comm cuts it */

static int (*handle_of)(unsigned, const struct gpu **);
static unsigned count;
static char driver[64];

/* Load the library and begin; on failure say what the real program says and end as it does. */
static void begin(void) {
  void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!nvml) {
    printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that "
           "the NVIDIA Display Driver is properly installed and present in your system.\n"
           "Please also try adding directory that contains libnvidia-ml.so to your system PATH.\n");
    exit(12);
  }
  int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
  int (*version)(char *, unsigned) =
      (int (*)(char *, unsigned))dlsym(nvml, "nvmlSystemGetDriverVersion");
  int (*own)(char *, unsigned) = (int (*)(char *, unsigned))dlsym(nvml, "nvmlSystemGetNVMLVersion");
  int (*number)(unsigned *) = (int (*)(unsigned *))dlsym(nvml, "nvmlDeviceGetCount_v2");
  handle_of = (int (*)(unsigned, const struct gpu **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
  if (!init || !version || !own || !number || !handle_of) {
    printf("Failed to initialize NVML: Function Not Found\n");
    exit(13);
  }
  int said = init();
  if (said == 18) {
    char library[64];
    own(library, sizeof library);
    *strrchr(library, '.') = 0; /* "13.580.95.05" -> "13.580.95", as the real one prints it */
    printf("Failed to initialize NVML: Driver/library version mismatch\n"
           "NVML library version: %s\n", strchr(library, '.') + 1);
    exit(18);
  }
  if (said) {
    printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
           "that the latest NVIDIA driver is installed and running.\n\n");
    exit(9);
  }
  version(driver, sizeof driver);
  number(&count);
  if (!count) {
    printf("No devices were found\n");
    exit(6);
  }
}

static int comm_of(const char *pid, char *comm, size_t size) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "/proc/%s/comm", pid);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int read = fgets(comm, (int)size, file) != NULL;
  fclose(file);
  if (read) comm[strcspn(comm, "\n")] = 0;
  return read;
}

/* Whether the process PID has the device of card INDEX open. */
static int holds(const char *pid, unsigned index) {
  char pattern[PATH_MAX], device[32], target[PATH_MAX];
  glob_t found;
  int held = 0;
  snprintf(device, sizeof device, "/dev/nvidia%u", index);
  snprintf(pattern, sizeof pattern, "/proc/%s/fd/*", pid);
  if (glob(pattern, 0, NULL, &found)) return 0;
  for (size_t i = 0; i < found.gl_pathc && !held; i++) {
    ssize_t length = readlink(found.gl_pathv[i], target, sizeof target - 1);
    if (length > 0) {
      target[length] = 0;
      held = strcmp(target, device) == 0;
    }
  }
  globfree(&found);
  return held;
}

static int persistent(void) {
  char pid[32] = "", comm[64];
  FILE *file = fopen("/run/nvidia-persistenced/nvidia-persistenced.pid", "r");
  if (!file) return 0;
  int read = fscanf(file, "%31s", pid) == 1;
  fclose(file);
  return read && comm_of(pid, comm, sizeof comm) && strcmp(comm, DAEMON) == 0;
}

/* Whether any process but the daemon has the card open. */
static int busy(unsigned index) {
  struct dirent **entries;
  char comm[64];
  int held = 0, found = scandir("/proc", &entries, NULL, alphasort);
  for (int i = 0; i < found; i++) {
    const char *pid = entries[i]->d_name;
    if (*pid >= '1' && *pid <= '9' && !held && holds(pid, index))
      held = !comm_of(pid, comm, sizeof comm) || strcmp(comm, DAEMON) != 0;
    free(entries[i]);
  }
  if (found >= 0) free(entries);
  return held;
}

/* A value that follows from whether the card is at work; 0 where there is no such field. */
static int working(const char *name, unsigned index, char *value, size_t size) {
  int at_work = busy(index);
  if (!strcmp(name, "utilization.gpu")) snprintf(value, size, at_work ? "97" : "0");
  else if (!strcmp(name, "temperature.gpu")) snprintf(value, size, at_work ? "68" : "31");
  else if (!strcmp(name, "power.draw")) snprintf(value, size, at_work ? "541.20" : "14.30");
  else if (!strcmp(name, "power.limit")) snprintf(value, size, "575.00");
  else if (!strcmp(name, "clocks_event_reasons.active"))
    snprintf(value, size, at_work ? "0x0000000000000000" : "0x0000000000000001");
  else return 0;
  return 1;
}

/* One value of --query-gpu; 0 where there is no such field. */
static int field(const char *name, unsigned index, const struct gpu *gpu, int units, char *value,
                 size_t size) {
  const char *mib = units ? " MiB" : "";
  if (!strcmp(name, "index")) snprintf(value, size, "%u", index);
  else if (!strcmp(name, "count")) snprintf(value, size, "%u", count);
  else if (!strcmp(name, "name") || !strcmp(name, "gpu_name")) snprintf(value, size, "%s", gpu->name);
  else if (!strcmp(name, "driver_version")) snprintf(value, size, "%s", driver);
  else if (!strcmp(name, "memory.total")) snprintf(value, size, "%d%s", gpu->memory_mib, mib);
  else if (!strcmp(name, "memory.used")) snprintf(value, size, "0%s", mib);
  else if (!strcmp(name, "memory.free")) snprintf(value, size, "%d%s", gpu->memory_mib, mib);
  else if (!strcmp(name, "compute_cap")) snprintf(value, size, "%d.%d", gpu->major, gpu->minor);
  else if (!strcmp(name, "pci.bus_id") || !strcmp(name, "gpu_bus_id"))
    snprintf(value, size, "0000%s", gpu->address); /* the real one prints eight digits of domain */
  else if (!strcmp(name, "uuid") || !strcmp(name, "gpu_uuid")) snprintf(value, size, "%s", gpu->uuid);
  else if (!strcmp(name, "persistence_mode"))
    snprintf(value, size, "%s", persistent() ? "Enabled" : "Disabled");
  else return working(name, index, value, size);
  return 1;
}

static int query_gpus(char *fields, int head, int units) {
  const struct gpu *gpu;
  char copy[1024], value[128];
  begin();
  for (int row = head ? -1 : 0; row < (int)count; row++) {
    const char *comma = "";
    snprintf(copy, sizeof copy, "%s", fields);
    for (char *name = strtok(copy, ", "); name; name = strtok(NULL, ", "), comma = ", ") {
      handle_of(row < 0 ? 0 : (unsigned)row, &gpu);
      if (!field(name, row < 0 ? 0 : (unsigned)row, gpu, units, value, sizeof value)) {
        printf("Field \"%s\" is not a valid field to query.\n\n", name);
        return 2;
      }
      const char *unit = !strncmp(name, "memory.", 7) && units ? " [MiB]" : "";
      if (row < 0) printf("%s%s%s", comma, name, unit);
      else printf("%s%s", comma, value);
    }
    printf("\n");
  }
  return 0;
}

/* The processes that have a card open; the persistence daemon is no compute process. */
static int query_apps(char *fields, int head) {
  struct dirent **entries;
  char comm[64], copy[1024];
  begin();
  if (head) printf("%s\n", fields);
  int found = scandir("/proc", &entries, NULL, alphasort);
  for (int i = 0; i < found; i++) {
    const char *pid = entries[i]->d_name;
    if (*pid < '1' || *pid > '9' || !comm_of(pid, comm, sizeof comm) || !strcmp(comm, DAEMON))
      continue;
    for (unsigned index = 0; index < count; index++) {
      const struct gpu *gpu;
      const char *comma = "";
      if (!holds(pid, index)) continue;
      handle_of(index, &gpu);
      snprintf(copy, sizeof copy, "%s", fields);
      for (char *name = strtok(copy, ", "); name; name = strtok(NULL, ", "), comma = ", ") {
        const char *value = !strcmp(name, "pid") ? pid
                            : strstr(name, "name") && !strstr(name, "gpu") ? comm
                            : strstr(name, "uuid") ? gpu->uuid
                            : strstr(name, "bus_id") ? gpu->address : "[N/A]";
        printf("%s%s", comma, value);
      }
      printf("\n");
    }
  }
  return 0;
}

static int list(void) {
  const struct gpu *gpu;
  begin();
  for (unsigned index = 0; index < count; index++) {
    handle_of(index, &gpu);
    printf("GPU %u: %s (UUID: %s)\n", index, gpu->name, gpu->uuid);
  }
  return 0;
}

static int table(void) {
  const struct gpu *gpu;
  begin();
  printf("| rehearsal: simulated GPUs | NVIDIA-SMI %-12s Driver Version: %-12s CUDA Version: %s |\n",
         VERSION, driver, CUDA_TEXT);
  for (unsigned index = 0; index < count; index++) {
    handle_of(index, &gpu);
    printf("| %2u  %-28s %-4s | 0000%s | 0MiB / %6dMiB | rehearsal |\n", index, gpu->name,
           persistent() ? "On" : "Off", gpu->address, gpu->memory_mib);
  }
  return 0;
}

int main(int argc, char **argv) {
  char *gpus = NULL, *apps = NULL;
  int head = 1, units = 1;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus")) return list();
    if (!strncmp(argv[i], "--query-gpu=", 12)) gpus = argv[i] + 12;
    else if (!strncmp(argv[i], "--query-compute-apps=", 21)) apps = argv[i] + 21;
    else if (!strncmp(argv[i], "--format=", 9)) {
      head = !strstr(argv[i], "noheader");
      units = !strstr(argv[i], "nounits");
    } else {
      printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
      return 2; /* the simulated one knows few of them */
    }
  }
  if (gpus) return query_gpus(gpus, head, units);
  return apps ? query_apps(apps, head) : table();
}
