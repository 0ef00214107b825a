__global__ void add(int *sum, int term) { atomicAdd(sum, term); }

int main()
{
    int *sum;
    cudaMalloc(&sum, 4);
    add<<<1, 32>>>(sum, 1);
    return 0;
}
