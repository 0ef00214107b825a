/* The toolkit's stub of libcuda: for linking only, as the real one is. */
enum { STUB_LIBRARY = 34 };

int cuInit(unsigned flags) { return (void)flags, STUB_LIBRARY; }
int cuDriverGetVersion(int *version) { return (void)version, STUB_LIBRARY; }
int cuDeviceGetCount(int *number) { return (void)number, STUB_LIBRARY; }
int cuDeviceGet(int *device, int ordinal) { return (void)device, (void)ordinal, STUB_LIBRARY; }
int cuDeviceGetName(char *name, int size, int device) {
  return (void)name, (void)size, (void)device, STUB_LIBRARY;
}
int cuGetErrorString(int error, const char **text) { return (void)error, (void)text, STUB_LIBRARY; }
