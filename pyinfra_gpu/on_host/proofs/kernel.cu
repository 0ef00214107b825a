// A kernel small enough to read, and a host program around it.
//
// The kernel shows that nvcc makes code for an architecture; the program, that the host compiler
// takes what nvcc hands it and that the CUDA runtime is found when linking. It asks for the
// runtime's version, which works without a GPU; given an argument it would launch the kernel, so
// that the compiler cannot leave it out.

#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

__global__ void scale(float *values, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}

int main(int argc, char **) {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) return 1;
  if (argc > 1) scale<<<1, 32>>>(nullptr, 2.0f, 0);
  std::vector<int> digits = {version / 1000, version % 1000 / 10};
  std::printf("%d.%d\n", digits[0], digits[1]);
  return 0;
}
