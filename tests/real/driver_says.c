// What NVIDIA's libcuda says of a host, found there as programs find it.
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
	int version = 0;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) return puts(dlerror()), 1;
	int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(library, "cuInit");
	int (*ask)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
	printf("cuInit %d\n", init(0));
	ask(&version);
	printf("driver version %d\n", version);
	return 0;
}
