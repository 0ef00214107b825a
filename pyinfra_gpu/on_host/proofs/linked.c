/* Linked with -lcuda: prints the version of CUDA that the driver serves and the library behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuDriverGetVersion(int *version);

int main(void) {
  int version = 0;
  Dl_info library;
  int error = cuDriverGetVersion(&version);
  if (error != 0) {
    fprintf(stderr, "cuDriverGetVersion returned error %d\n", error);
    return 1;
  }
  /* Not &cuDriverGetVersion: in a program at fixed addresses that names the program itself. */
  if (!dladdr(dlsym(RTLD_DEFAULT, "cuDriverGetVersion"), &library)) return 1;
  printf("%d %s\n", version, library.dli_fname);
  return 0;
}
