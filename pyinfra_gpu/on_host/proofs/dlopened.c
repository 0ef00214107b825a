/* Opens libcuda.so.1 as PyTorch and the CUDA runtime do; prints the same as linked.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  int version = 0;
  Dl_info library;
  void *handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int (*driver_version)(int *) = (int (*)(int *))dlsym(handle, "cuDriverGetVersion");
  if (driver_version == NULL || !dladdr((void *)driver_version, &library)) {
    fprintf(stderr, "libcuda.so.1 has no cuDriverGetVersion\n");
    return 1;
  }
  int error = driver_version(&version);
  if (error != 0) {
    fprintf(stderr, "cuDriverGetVersion returned error %d\n", error);
    return 1;
  }
  printf("%d %s\n", version, library.dli_fname);
  return 0;
}
