/* The simulated nvidia-persistenced: holds the cards' devices open, as the real one does. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu.h"

#define FOLDER "/run/nvidia-persistenced"
#define PID_FILE FOLDER "/nvidia-persistenced.pid"

static void end(int signal) {
  (void)signal;
  unlink(PID_FILE);
  _exit(0);
}

int main(void) {
  struct gpu gpus[MOST_GPUS];
  char device[32], loaded[64];
  if (open("/dev/nvidiactl", O_RDWR) < 0 || !loaded_version(loaded, sizeof loaded)) {
    fprintf(stderr, "nvidia-persistenced failed to initialize. Check syslog for more details.\n");
    return 1;
  }
  if (strcmp(loaded, VERSION) != 0) {
    fprintf(stderr, "Failed to query NVIDIA devices: the loaded driver is %s\n", loaded);
    return 1;
  }
  int count = find_gpus(gpus);
  for (int i = 0; i < count; i++) {
    snprintf(device, sizeof device, "/dev/nvidia%d", i);
    if (open(device, O_RDWR) < 0) return 1;
  }
  signal(SIGTERM, end);
  pid_t child = fork();
  if (child < 0) return 1;
  if (child) { /* systemd waits for this: the devices are open and the file is there */
    mkdir(FOLDER, 0755);
    FILE *file = fopen(PID_FILE, "w");
    if (!file) return 1;
    fprintf(file, "%d\n", child);
    return fclose(file) != 0;
  }
  setsid();
  for (;;) pause();
}
