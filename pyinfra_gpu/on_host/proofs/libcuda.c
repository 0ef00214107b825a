/* Prints the version of CUDA that the driver serves, and the library behind it.
 *
 * It is linked with -lcuda, or, with -DOPENS, opens libcuda.so.1 as PyTorch and the CUDA runtime do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuDriverGetVersion(int *version);

int main(void) {
  int version = 0;
  Dl_info library;
#ifdef OPENS
  void *from = dlopen("libcuda.so.1", RTLD_NOW);
  if (from == NULL) fprintf(stderr, "%s\n", dlerror());
  int (*asked)(int *) = from ? (int (*)(int *))dlsym(from, "cuDriverGetVersion") : NULL;
#else
  void *from = RTLD_DEFAULT;
  int (*asked)(int *) = cuDriverGetVersion;
#endif
  if (asked == NULL) return 1;
  int error = asked(&version);
  if (error != 0) {
    fprintf(stderr, "cuDriverGetVersion returned error %d\n", error);
    return 1;
  }
  /* Not &cuDriverGetVersion: in a program at fixed addresses that names the program itself. */
  if (!dladdr(dlsym(from, "cuDriverGetVersion"), &library)) return 1;
  printf("%d %s\n", version, library.dli_fname);
  return 0;
}
