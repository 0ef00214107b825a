#include <stdio.h>

int cuInit(unsigned);

int main(void)
{
    printf("%d\n", cuInit(0));
    return 0;
}
