/* The toolkit's stub of libcuda: for linking only, as the real one is. */
#define STUB(name) int name(void) { return 34; /* CUDA_ERROR_STUB_LIBRARY */ }
STUB(cuInit)
STUB(cuDriverGetVersion)
STUB(cuDeviceGetCount)
STUB(cuDeviceGet)
STUB(cuDeviceGetName)
STUB(cuGetErrorString)
